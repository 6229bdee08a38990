"""One try from folder to seal, with harnesses that behave and harnesses that do not."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from suites.schema import Harness
from tasks.attempt.collect import keep_files
from tasks.attempt.lease import process_identity
from tasks.attempt.processes import Processes
from tests.tasks.attempt.conftest import Bench

CALL = 'tool get_weather \'{"city": "Oslo"}\'; '

Shell = Callable[..., Harness]


def test_reference_harness_solves_a_task_and_leaves_whole_evidence(bench: Bench) -> None:
    bundle = bench.run("reference")
    record = bundle.record
    assert (record["ending"], record["error"]) == ("clean", None)
    assert record["host"]["listed"]
    assert record["host"]["tool_calls"] == 1
    assert record["host"]["model_calls"] == 2
    assert record["host"]["cost"] > 0
    assert bench.evidence.published(bundle.key) is not None
    events = [row["event"] for row in bundle.rows("bridge.jsonl")]
    assert events == ["list", "call", "result"]
    assert "12 degrees" in bundle.text("stdout")
    for name, stated in record["files"].items():
        data = (bundle.folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == stated["sha256"]


def test_stamp_names_the_whole_configuration(bench: Bench) -> None:
    stamp = bench.run("reference").record["stamp"]
    wanted = (
        "harness harness_version mode config_hash model model_id parameters endpoint_kind suite "
        "suite_version dataset_version user_model bridge_contract isolation sealed seed "
        "dyno_version date unmetered"
    )
    assert set(wanted.split()) <= set(stamp)
    assert stamp["harness_version"].startswith("sha256:")


def test_harness_inherits_nothing_and_cannot_see_who_holds_keys(
    bench: Bench, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.shop.processes.stop_launchers()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-the-user")
    script = CALL + "env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/$PPID/environ"
    bundle = bench.run(shell(script))
    assert bundle.record["ending"] == "clean"
    said = bundle.text("stdout") + bundle.text("stderr")
    assert "DYNO_ATTEMPT=" in said
    assert "sk-secret" not in said
    names = {line.partition("=")[0] for line in said.splitlines() if "=" in line}
    allowed = {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "TZ",
        "NO_PROXY",
        "no_proxy",
        "PWD",
        "OLDPWD",
        "_",
        "SHLVL",
    }
    assert {n for n in names if n.isidentifier()} <= allowed | {"DYNO_ATTEMPT", "DYNO_SERVERS"}


def test_stdin_is_closed_unless_fed(bench: Bench, shell: Shell) -> None:
    assert bench.run(shell(CALL + "cat; echo end")).text("stdout").endswith("end\n")
    fed = bench.run(shell(CALL + "cat", stdin="{{ prompt }}"))
    assert "What is the weather in Oslo?" in fed.text("stdout")


def test_nothing_survives_a_harness_that_forks_daemons(bench: Bench, shell: Shell) -> None:
    script = (
        CALL
        + "for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM HUP; sleep 987' &) ; done; sleep 0.2"
    )
    bundle = bench.run(shell(script))
    assert bundle.record["ending"] == "clean"
    assert bundle.record["left_processes"] >= 3
    assert subprocess.run(["pgrep", "-f", "sleep 987"], capture_output=True).stdout == b""


def test_deadline_ends_a_harness_that_ignores_sigterm(bench: Bench, shell: Shell) -> None:
    started = time.monotonic()
    bundle = bench.run(
        shell(CALL + "trap '' TERM; sleep 986 & wait; sleep 986"), limits={"seconds": 1.5}
    )
    assert time.monotonic() - started < 12
    assert (bundle.record["ending"], bundle.record["blame"]) == ("timeout", "agent")
    assert bench.evidence.published(bundle.key) is not None
    assert subprocess.run(["pgrep", "-f", "sleep 986"], capture_output=True).stdout == b""


def test_flood_of_output_is_cut_and_counted(bench: Bench, shell: Shell) -> None:
    bundle = bench.run(shell(CALL + "head -c 3000000 /dev/zero"), limits={"output_bytes": 1000})
    output = bundle.record["output"]
    assert (bundle.folder / "stdout").stat().st_size == 1000
    assert output["stdout_bytes"] > 3_000_000
    assert output["stdout_cut"] == output["stdout_bytes"] - 1000


def test_spent_budget_ends_the_attempt_as_budget(bench: Bench) -> None:
    bundle = bench.run("reference", limits={"model_calls": 1})
    assert bundle.record["ending"] == "budget"
    assert bundle.record["host"]["budget"] == "model_calls"
    assert bundle.record["error"] is None


@pytest.mark.parametrize("code", [0, 44])
def test_spent_budget_is_the_ending_whatever_the_harness_makes_of_it(
    bench: Bench, shell: Shell, code: int
) -> None:
    ask = (
        'python3 -c "import os, urllib.request as u; '
        "u.urlopen(u.Request(os.environ['URL'] + '/chat/completions', "
        'b\'{\\"model\\": \\"m\\", \\"messages\\": []}\', '
        "{'Content-Type': 'application/json'}))\"; "
    )
    harness = shell(
        CALL + ask + ask + f"exit {code}",
        env={"URL": "{{ model_url }}"},
        exit_codes={44: "infra_error"},
    )
    record = bench.run(harness, limits={"model_calls": 1}).record
    assert (record["ending"], record["error"]) == ("budget", None)


def test_harness_that_fails_at_once_is_quoted(bench: Bench, shell: Shell) -> None:
    bundle = bench.run(shell("echo my-agent: no such option --mcp >&2; exit 2"))
    assert "no such option --mcp" in bundle.record["error"]["message"]


@pytest.mark.parametrize(
    ("script", "error_class"),
    [
        ("exit 0", "bridge_unlisted"),
        (CALL + "kill -9 $$", "harness_killed"),
        (CALL + "exit 137", "harness_killed"),
        (CALL + "exit 127", "harness_missing"),
        ("no-such-program", "harness_missing"),
        (CALL + "exit 44", "harness_infra"),
    ],
)
def test_infrastructure_errors_are_no_result(
    bench: Bench, shell: Shell, script: str, error_class: str
) -> None:
    bundle = bench.run(shell(script, exit_codes={44: "infra_error"}))
    assert bundle.record["error"]["class"] == error_class
    assert bench.evidence.published(bundle.key) is None
    assert not bench.evidence.is_done(bundle.key)


@pytest.mark.parametrize(
    ("code", "ending"), [(0, "clean"), (1, "crashed"), (5, "refused"), (9, "budget")]
)
def test_exit_codes_become_endings(bench: Bench, shell: Shell, code: int, ending: str) -> None:
    harness = shell(CALL + f"exit {code}", exit_codes={5: "refused", 9: "budget"})
    assert bench.run(harness).record["ending"] == ending


def test_done_attempt_is_not_run_again(bench: Bench, shell: Shell, tmp_path: Path) -> None:
    count = tmp_path / "count"
    harness = shell(CALL + f"echo x >> {count}")
    first = bench.run(harness)
    assert bench.run(harness).hash == first.hash
    assert count.read_text() == "x\n"


def test_failed_try_leads_to_another_and_both_are_kept(
    bench: Bench, shell: Shell, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    harness = shell(f"test -e {flag} || {{ touch {flag}; exit 0; }}; {CALL}")
    plan = bench.plan(harness)
    assert bench.run_all(plan) == ["bridge_unlisted"]
    assert bench.run_all(plan) == ["clean"]
    key = next(iter(plan.by_key))
    assert [folder.name for folder in bench.evidence.tries(key)] == ["try-0001", "try-0002"]
    published = bench.evidence.published(key)
    assert published is not None
    assert published.try_number == 2


def test_death_of_the_host_is_infrastructure_and_the_next_attempt_gets_a_new_one(
    bench: Bench, shell: Shell
) -> None:
    plan = bench.plan(shell(CALL + "sleep 30"), limits={"seconds": 60})
    killer = threading.Timer(
        1.5, lambda: os.kill(bench.shop.processes.pids()["host"], signal.SIGKILL)
    )
    bench.shop.processes.host()
    killer.start()
    started = time.monotonic()
    assert bench.run_all(plan) == ["host_lost"]
    assert time.monotonic() - started < 15
    assert bench.run(shell(CALL)).record["ending"] == "clean"


def test_death_of_the_launcher_is_infrastructure_and_leaves_no_harness(
    bench: Bench, shell: Shell
) -> None:
    plan = bench.plan(shell(CALL + "setsid sleep 985"))
    bench.shop.processes.launcher()
    pid = bench.shop.processes.pids()["launcher 0"]
    threading.Timer(1.0, lambda: os.kill(pid, signal.SIGKILL)).start()
    assert bench.run_all(plan) == ["launcher_lost"]
    until = time.monotonic() + 5
    while subprocess.run(["pgrep", "-f", "sleep 985"], capture_output=True).stdout:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_stopping_seals_what_runs_as_cancelled(bench: Bench, shell: Shell) -> None:
    plan = bench.plan(shell(CALL + "sleep 60"), only="*")
    threading.Timer(1.0, bench.shop.stop).start()
    started = time.monotonic()
    assert set(bench.run_all(plan, threads=2)) == {"cancelled"}
    assert time.monotonic() - started < 15
    assert not any(bench.evidence.is_done(key) for key in plan.by_key)


def test_two_workers_on_one_key_run_it_once(bench: Bench, shell: Shell, tmp_path: Path) -> None:
    count = tmp_path / "count"
    harness = shell(CALL + f"sleep 0.5; echo x >> {count}")
    plans = [bench.plan(harness), bench.plan(harness)]
    threads = [threading.Thread(target=bench.run_all, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "x\n"


def test_files_left_behind_are_kept_up_to_the_caps(tmp_path: Path) -> None:
    source, target = tmp_path / "work", tmp_path / "final"
    source.mkdir()
    (source / "answer.txt").write_text("42")
    (source / "huge.bin").write_bytes(b"\0" * 5_000_000)
    (source / "link").symlink_to("/etc/passwd")
    keep_files(source, target)
    assert (target / "files" / "answer.txt").read_text() == "42"
    assert not (target / "files" / "link").exists()
    assert [item["path"] for item in json.loads((target / "left_out.json").read_text())] == [
        "huge.bin"
    ]


def test_a_place_is_removed_whatever_the_harness_did_to_it(bench: Bench, shell: Shell) -> None:
    bench.run(shell(CALL + "mkdir -p deep/er; touch deep/er/f; chmod 000 deep/er; chmod 000 deep"))
    assert list(bench.shop.run.iterdir()) == []


def test_servants_end_when_their_parent_hangs_up(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.host()
    processes.launcher()
    pids = processes.pids()
    assert set(pids) == {"host", "launcher 0"}
    processes.stop()
    assert all(process_identity(pid) is None for pid in pids.values())
