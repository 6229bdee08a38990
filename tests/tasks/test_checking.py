"""A check of a harness says what is wrong with it: harnesses of every bad kind, run for real."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suites.schema import Harness
from tasks.checking import Check, Report
from tasks.checking_lines import Line, offered_tools

CALL = 'tool look_up_word \'{"topic": "dyno"}\'; '


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """One host for all of these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(tmp_path_factory.mktemp("home")))
        with Check(tmp_path_factory.mktemp("checks"), grace=1.0) as check:
            yield check


def line(script: str, **changes: Any) -> Harness:
    """A harness made of one line of sh."""
    values = {"name": "line", "command": ["sh", "-c", script], "speaks": ["shell"], "version": "1"}
    return Harness.model_validate(values | changes)


def checked(checking: Check, ref: str | Harness, seconds: float = 30.0) -> dict[str, Line]:
    """The lines by name; the report is the last that comes, and holds the same lines."""
    *lines, report = checking.harness(ref, seconds)
    assert isinstance(report, Report)
    assert list(report.lines) == lines
    assert report.ok == all(one.state in ("ok", "none") for one in report.lines)
    return {one.name: one for one in report.lines}


def test_a_harness_that_works_is_found_to(checking: Check) -> None:
    lines = checked(checking, "reference")
    states = {name: one.state for name, one in lines.items()}
    assert states.pop("reports its tokens") == "none"
    assert set(states.values()) == {"ok"}, lines
    assert lines["sees the tool"].says == "as look_up_word"
    assert lines["result reaches model"].says == "in model call 2"


@pytest.mark.parametrize(
    ("script", "name", "state", "says"),
    [
        ("exit 0", "starts", "fail", "neither the bridge nor the model"),
        ("sleep 1000", "starts", "fail", "timeout: "),
        ("test -t 0 || { echo not a terminal >&2; exit 1; }", "starts", "fail", "not a terminal"),
        ("exit 127", "starts", "fail", "not found"),
        (CALL + "sleep 1000", "ends clean", "fail", "timeout: "),
        (CALL + "kill -SEGV $$", "ends clean", "fail", "SIGSEGV"),
        (CALL + "exit 3", "ends clean", "fail", "exited with 3"),
        (CALL + CALL, "calls it", "warn", "2 calls"),
        ("tool --list", "calls it", "fail", "0 calls"),
        (CALL, "result reaches model", "fail", "in none of 0"),
        (CALL, "told the task whole", "fail", "never called the model"),
        (CALL + "setsid sleep 971 & sleep 0.2", "leaves no process", "warn", "1 were left"),
        (
            CALL + "trap '' TERM; sleep 972 & wait; sleep 972",
            "respects a deadline",
            "warn",
            "killed",
        ),
        (CALL + "head -c 100000000 /dev/zero", "gives the answer", "fail", "not in its output"),
        (CALL, "wrong key", "fail", "a result, clean"),
    ],
)
def test_what_a_bad_harness_does_is_said(
    checking: Check, script: str, name: str, state: str, says: str
) -> None:
    lines = checked(checking, line(script), seconds=3.0)
    assert lines[name].state == state, lines
    assert says in lines[name].says
    for sleeper in ("sleep 971", "sleep 972", "sleep 1000"):
        assert subprocess.run(["pgrep", "-f", f"^{sleeper}$"], capture_output=True).stdout == b""
    assert lines.get("nothing left", Line("", "ok", "")).state == "ok"


def test_a_harness_that_cannot_be_started_is_not_run(checking: Check, tmp_path: Path) -> None:
    lines = checked(checking, line("", command=["no-such-agent"]))
    assert list(lines) == ["found"]
    assert "no-such-agent" in lines["found"].says
    assert checked(checking, "no-such-file.yaml")["found"].state == "fail"
    broken = tmp_path / "agent"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    lines = checked(checking, line("", command=[str(broken)]))
    assert "not found or not runnable" in lines["starts"].says
    assert lines["the rest"].state == "none"


def test_a_harness_with_a_model_of_its_own_cannot_be_checked_so(checking: Check) -> None:
    lines = checked(checking, line(CALL, wire="none"))
    assert (lines["runs"].state, "model of its own" in lines["runs"].says) == ("none", True)


def test_what_it_reports_is_held_against_the_meter(checking: Check) -> None:
    reader = {"usage": "last_line_json"}
    lines = checked(checking, line(CALL + "echo '{\"output\": 7}'", telemetry=reader))
    assert lines["reports its tokens"].state == "warn"
    assert "output 7, metered 0" in lines["reports its tokens"].says
    lines = checked(checking, line(CALL + "echo hello", telemetry=reader))
    assert lines["reports its tokens"].state == "fail"


def test_tools_of_its_own_are_held_against_its_file(checking: Check) -> None:
    lines = checked(checking, line(CALL, native_tools=["Bash"]))
    assert lines["tools of its own"].state == "warn"
    assert "Bash: said in `native_tools`, and not offered" in lines["tools of its own"].says


def test_the_tools_of_a_request_are_read_on_every_wire() -> None:
    schema = {"type": "object"}
    chat = {"tools": [{"type": "function", "function": {"name": "a", "parameters": schema}}]}
    inner = {"type": "function", "name": "b"}
    responses = {
        "tools": [
            {"type": "function", "name": "a"},
            {"type": "namespace", "name": "mcp__bridge", "tools": [inner]},
            {"type": "web_search"},
        ]
    }
    messages = {"tools": [{"name": "a", "input_schema": schema}]}
    assert offered_tools(chat) == offered_tools(messages) == ["a"]
    assert offered_tools(responses) == ["a", "mcp__bridge.b", "web_search"]
    assert offered_tools({}) == []
