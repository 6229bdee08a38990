"""Harnesses killed on purpose and started again: what is kept, what is counted, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from suites.schema import Harness
from tests.tasks.attempt.conftest import Bench

CALL = 'tool get_weather \'{"city": "Oslo"}\'; '
HEADERS = '-H "content-type: application/json" -H "accept: application/json"'
PUT = f'put() {{ curl -s "$STORE" {HEADERS} -d "$1"; }}; '

Phased = Callable[..., Harness]


@pytest.fixture
def phased() -> Phased:
    """A harness of lines of sh, one a phase: `(script, kill_after)`."""

    def make(*phases: tuple[str, int | None], **changes: Any) -> Harness:
        told = [{"command": ["sh", "-c", s], "kill_after": n} for s, n in phases]
        values = {
            "name": "phased",
            "mode": "durable",
            "phases": told,
            "speaks": ["shell", "mcp"],
            "version": "1",
        } | changes
        return Harness.model_validate(values)

    return make


def called(bundle: Any) -> list[str]:
    """The status of each call of the agent."""
    return [r["status"] for r in bundle.rows("bridge.jsonl") if r["event"] == "result"]


def test_killed_phase_is_followed_by_the_next_over_what_it_left(
    bench: Bench, phased: Phased
) -> None:
    first = f"echo kept > $HOME/mine; echo kept > mine; {CALL}{CALL}{CALL}echo never"
    second = f"cat $HOME/mine mine; {CALL}"
    bundle = bench.run(phased((first, 2), (second, None)))
    record = bundle.record
    assert (record["ending"], record["error"], record["blame"]) == ("clean", None, None)
    told = [(one["phase"], one["killed"], one["exit_code"]) for one in record["launches"]]
    assert told == [(1, True, None), (2, False, 0)]
    assert "never" not in bundle.text("stdout")
    assert bundle.text("phases/002.stdout").startswith("kept\nkept\n")
    assert bundle.text("stdout") == bundle.text("phases/001.stdout") + bundle.text(
        "phases/002.stdout"
    )
    # the third call of the first phase came to the door after the last that was let in
    assert called(bundle) == ["ok"] * 3
    assert record["host"]["tool_calls"] == 3


def test_kill_takes_the_whole_tree(bench: Bench, phased: Phased) -> None:
    first = f"(setsid sh -c 'sleep 2; echo alive > $HOME/alive' &); {CALL}{CALL}"
    bundle = bench.run(phased((first, 1), ("sleep 3; ls $HOME; " + CALL, None)))
    assert bundle.record["ending"] == "clean"
    assert "alive" not in bundle.text("phases/002.stdout")


def test_phase_that_ends_by_itself_before_its_kill_ends_the_attempt(
    bench: Bench, phased: Phased
) -> None:
    bundle = bench.run(phased((CALL + "echo done", 5), ("echo again", None)))
    assert bundle.record["ending"] == "clean"
    assert [one["phase"] for one in bundle.record["launches"]] == [1]
    crashed = bench.run(phased((CALL + "exit 1", 5), ("echo again", None)))
    assert crashed.record["ending"] == "crashed"


def test_last_phase_is_how_it_ends(bench: Bench, phased: Phased) -> None:
    harness = phased((CALL + CALL, 1), (CALL + "exit 5", None), exit_codes={5: "refused"})
    assert bench.run(harness).record["ending"] == "refused"


def test_phases_share_one_deadline(bench: Bench, phased: Phased) -> None:
    harness = phased((f"sleep 1.5; {CALL}{CALL}", 1), (CALL + "sleep 30", None))
    record = bench.run(harness, limits={"seconds": 3}).record
    assert record["ending"] == "timeout"
    assert record["timings"]["wall_s"] < 15
    assert len(record["launches"]) == 2


def test_store_outlives_the_kill_and_is_no_tool_of_the_agents(bench: Bench, phased: Phased) -> None:
    def request(tool: str, **arguments: Any) -> str:
        params = {"name": tool, "arguments": arguments}
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    put = request("state.put", key="run/1", seq=1, state={"done": ["a"]})
    first = f"{PUT}put '{put}'; {CALL}{CALL}"
    second = f"{PUT}put '{request('state.get', key='run/1')}'; {CALL}echo \"$DYNO_SERVERS\""
    harness = phased(
        (first, 1), (second, None), store=True, env={"STORE": "{{ store_url }}"}, requires=["curl"]
    )
    bundle = bench.run(harness)
    assert bundle.record["ending"] == "clean", bundle.text("stderr")
    answer = bundle.text("phases/002.stdout")
    assert '\\"state\\":{\\"done\\":[\\"a\\"]}' in answer
    assert "store" not in answer.rpartition("[{")[2]
    assert bundle.record["host"]["tool_calls"] == 2
    rows = [r for r in bundle.rows("bridge.jsonl") if r["requestor"] == "store"]
    assert [r["tool"] for r in rows if r["event"] == "call"] == ["state.put", "state.get"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"command": ["true"]}, "in place of"),
        ({"conversation": "turns"}, "exclude each other"),
        ({"phases": [{"command": ["true"], "kill_after": 1}]}, "ends by itself"),
    ],
)
def test_phases_that_make_no_sense_are_refused(
    phased: Phased, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValidationError, match=says):
        phased((CALL, None), **changes)


def test_keys_of_harnesses_without_a_store_are_as_they_were() -> None:
    from tasks.configurations import Configured

    plain = Harness(name="plain", command=("true",), version="1")
    assert "store" not in Configured(plain, "", "1", {}).part
    stored = plain.model_copy(update={"store": True})
    assert Configured(stored, "", "1", {}).part["store"] is True
