"""Sweeps from the command line: run, resume, stop, and two at once."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from suites.home import PROJECT
from tests.flows.conftest import CALL, Dyno

pytestmark = pytest.mark.prefect


def children_of(pid: int) -> list[int]:
    """All processes below one."""
    found, todo = [], [pid]
    while todo:
        listed = subprocess.run(["pgrep", "-P", str(todo.pop())], capture_output=True, text=True)
        new = [int(line) for line in listed.stdout.split()]
        found += new
        todo += new
    return found


def keys_of(dyno: Dyno) -> dict[str, str]:
    """Each published attempt's key, and the hash of its bundle."""
    import hashlib

    found = {}
    for marker in dyno.home.glob("evidence/attempts/*/*/published"):
        data = (marker.parent / marker.read_text().strip() / "attempt.json").read_bytes()
        found[marker.parent.name] = hashlib.sha256(data).hexdigest()
    return found


def test_sweep_ends_with_a_scorecard_and_the_next_commands(dyno: Dyno) -> None:
    output = dyno.run(
        "sweep", str(dyno.sweep_file(CALL, harnesses=["reference"], models=["oracle", "null"]))
    )
    assert "hello-tools" in output
    assert "1.000" in output
    assert "dyno run" in output
    rows = dyno.sql("select model, outcome, count(*) as n from attempts group by all order by all")
    assert rows == [
        {"model": "null", "outcome": "failed", "n": 4},
        {"model": "oracle", "outcome": "solved", "n": 4},
    ]


def test_finished_sweep_runs_nothing_again_and_needs_no_server(dyno: Dyno, tmp_path: Path) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; echo x >> {count}")
    dyno.run("sweep", str(file))
    before = keys_of(dyno)
    dyno.env["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    assert "4 attempts are done already" in dyno.run("sweep", str(file))
    assert count.read_text() == "x\n" * 4
    assert keys_of(dyno) == before


def test_fresh_runs_all_again_and_counts_each_repeat_once(dyno: Dyno, tmp_path: Path) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; echo x >> {count}")
    dyno.run("sweep", str(file))
    dyno.run("sweep", str(file), "--fresh")
    assert count.read_text() == "x\n" * 8
    (row,) = dyno.sql("select n from scorecard where category is null")
    assert row["n"] == 4


def test_warehouse_shards_and_prefect_home_can_be_lost(dyno: Dyno, tmp_path: Path) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; echo x >> {count}")
    dyno.run("sweep", str(file))
    dyno.run("load", "--rebuild")
    first = dyno.run("scorecard", "--json", "-")
    (dyno.home / "warehouse.duckdb").unlink()
    shutil.rmtree(dyno.home / "shards")
    shutil.rmtree(dyno.home / "prefect", ignore_errors=True)
    dyno.run("load", "--rebuild")
    assert dyno.run("scorecard", "--json", "-") == first
    dyno.run("sweep", str(file))
    assert count.read_text() == "x\n" * 4


def test_infrastructure_errors_are_retried_and_then_reported_as_such(
    dyno: Dyno, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(
        f"echo x >> {count}", repeats=1, retries={"tries": 3, "backoff_seconds": 0.1}
    )
    output = dyno.run("sweep", str(file), code=1)
    assert count.read_text() == "x\n" * 3
    assert "have no result" in output
    (row,) = dyno.sql("select outcome, error_class from attempts")
    assert row == {"outcome": "infra_error", "error_class": "bridge_unlisted"}
    (card,) = dyno.sql("select coverage, pass_at_1 from scorecard where category is null")
    assert card == {"coverage": 0.0, "pass_at_1": None}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_no_process_and_says_how_to_resume(
    dyno: Dyno, tmp_path: Path, number: signal.Signals
) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; echo x >> {count}; setsid sleep 984 & wait", repeats=3)
    process = dyno.start("sweep", str(file))
    until = time.monotonic() + 90
    while not count.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    below = children_of(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "dyno resume" in output.splitlines()[-1]
    assert subprocess.run(["pgrep", "-f", "sleep 984"], capture_output=True).stdout == b""
    until = time.monotonic() + 10  # the kernel may still be clearing up after their parent
    while [pid for pid in below if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until
        time.sleep(0.05)
    outcomes = {row["outcome"] for row in dyno.sql("select outcome from attempts")}
    assert outcomes <= {"cancelled", None}


def test_stopped_fresh_sweep_is_resumed_as_it_was_planned(dyno: Dyno, tmp_path: Path) -> None:
    count, gate = tmp_path / "count", tmp_path / "gate"
    script = f"{CALL}; echo x >> {count}; test -e {gate} || sleep 60"
    file = dyno.sweep_file(script, repeats=3)
    process = dyno.start("sweep", str(file), "--fresh", "--repeats", "2")
    until = time.monotonic() + 90
    while not count.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    gate.touch()
    dyno.run("resume")
    assert [row["n"] for row in dyno.sql("select n from scorecard where category is null")] == [2]
    assert len(list(dyno.home.glob("evidence/sweeps/*.json"))) == 1


def test_cancel_in_the_ui_ends_the_sweep_and_its_harnesses(dyno: Dyno, tmp_path: Path) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; echo x >> {count}; setsid sleep 983 & wait", repeats=2)
    process = dyno.start("sweep", str(file))
    until = time.monotonic() + 90
    while not count.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    api = dyno.env["PREFECT_API_URL"]
    running = {
        "flow_runs": {"name": {"any_": [str(file)]}, "state": {"type": {"any_": ["RUNNING"]}}}
    }
    (run,) = _post(f"{api}/flow_runs/filter", running)
    _post(
        f"{api}/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}, "force": True}
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert subprocess.run(["pgrep", "-f", "sleep 983"], capture_output=True).stdout == b""


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        return json.load(reply)


def test_two_sweeps_at_once_share_the_work(dyno: Dyno, tmp_path: Path) -> None:
    count = tmp_path / "count"
    file = dyno.sweep_file(f"{CALL}; sleep 0.3; echo x >> {count}", repeats=8)
    both = [dyno.start("sweep", str(file)) for _ in range(2)]
    for process in both:
        output, _ = process.communicate(timeout=200)
        assert process.returncode == 0, output
    assert count.read_text() == "x\n" * 8
    (row,) = dyno.sql("select n, coverage from scorecard where category is null")
    assert row == {"n": 8, "coverage": 1.0}


def test_kill_minus_nine_at_any_moment_loses_and_doubles_nothing(
    dyno: Dyno, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    script = f'{CALL}; sleep 0.4; echo "$DYNO_ATTEMPT" >> {count}'
    kills = int(os.environ.get("DYNO_TEST_KILLS", "6"))
    retries = {"tries": 6, "backoff_seconds": 0.1}
    file = dyno.sweep_file(script, repeats=20 + 4 * kills, concurrency=2, retries=retries)
    chance = random.Random(7)
    seen: dict[str, str] = {}
    for victim in itertools.islice(itertools.cycle(("flow", "host", "harness", "launcher")), kills):
        process = dyno.start("sweep", str(file))
        until = time.monotonic() + 60
        while len(keys_of(dyno)) <= len(seen) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(chance.random())
        assert process.poll() is None, "the sweep ended before it could be killed"
        _kill(victim, process.pid)
        if victim != "flow":
            time.sleep(1)
            process.kill()
        process.communicate(timeout=60)
        now = keys_of(dyno)
        assert seen.items() <= now.items()
        seen = now
    dyno.run("sweep", str(file))
    final = keys_of(dyno)
    assert seen.items() <= final.items()
    assert len(final) == 20 + 4 * kills
    finished = [line.split("-")[0] for line in count.read_text().split()]
    assert {key[:16] for key in final} == set(finished)
    (row,) = dyno.sql(
        "select count(*) as n, count(distinct attempt_key) as k from attempts where outcome = 'solved'"
    )
    assert row == {"n": len(final), "k": len(final)}
    _no_process_of(dyno)


def _kill(victim: str, flow: int) -> None:
    if victim == "flow":
        os.kill(flow, signal.SIGKILL)
        return
    needle = {"host": "bridges.host", "launcher": "launcher.py", "harness": "sh -c tool"}[victim]
    for pid in children_of(flow):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if needle in line:
            os.kill(pid, signal.SIGKILL)
            return


def _no_process_of(dyno: Dyno) -> None:
    until = time.monotonic() + 10
    while True:
        left = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    entry.name.isdigit()
                    and str(dyno.home).encode() in (entry / "environ").read_bytes()
                ):
                    left.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
        if not left:
            return
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_stranger_adds_a_harness_without_python(dyno: Dyno, tmp_path: Path) -> None:
    (tmp_path / "mine.sh").write_text(f"#!/bin/sh\n{CALL}\n")
    (tmp_path / "stranger.yaml").write_text(
        'name: stranger\nspeaks: [shell]\nwire: none\ncommand: [sh, "{{ harness_dir }}/mine.sh"]\n'
    )
    file = dyno.sweep_file("", harnesses=[str(tmp_path / "stranger.yaml")], repeats=1)
    output = dyno.run("sweep", str(file))
    assert "stranger" in output
    (row,) = dyno.sql("select outcome, cost from attempts")
    assert row == {"outcome": "solved", "cost": None}


def test_gold_is_not_blamed_for_a_harness_that_did_not_carry_it_out(dyno: Dyno) -> None:
    output = dyno.run("sweep", str(dyno.sweep_file("tool --list > out.txt", repeats=1)))
    assert "0.000" in output
    assert "whose gold fails" not in output


def test_ad_hoc_agent_needs_no_yaml(dyno: Dyno, tmp_path: Path) -> None:
    agent = tmp_path / "my-agent"
    agent.write_text(f'#!/bin/sh\n{CALL} && echo "$1" | grep -q Oslo\n')
    agent.chmod(0o755)
    output = dyno.run(
        "run",
        "hello-tools",
        "--agent",
        f"{agent} {{prompt}}",
        "--model",
        "oracle",
        "--only",
        "weather",
    )
    assert "adhoc-my-agent" in output
    assert dyno.sql("select ending, outcome from attempts") == [
        {"ending": "clean", "outcome": "solved"}
    ]


def test_regrade_runs_nothing_and_show_tells_what_happened(dyno: Dyno) -> None:
    file = dyno.sweep_file(CALL, harnesses=["reference"], repeats=1)
    dyno.run("sweep", str(file))
    before = keys_of(dyno)
    assert "1 solved" in dyno.run("regrade")
    assert keys_of(dyno) == before
    shown = dyno.run("show", next(iter(before)))
    for part in (
        "What is the weather in Oslo?",
        "call get_weather",
        '{"city": "Oslo"}',
        "grade: solved",
    ):
        assert part in shown


def test_deployed_sweep_gives_the_same_and_leaves_a_table_artifact(dyno: Dyno) -> None:
    file = dyno.sweep_file(CALL, harnesses=["reference"], repeats=1)
    env = {**dyno.env, "DYNO_PROJECT": str(PROJECT), "PREFECT_HOME": str(dyno.home / "prefect")}
    env["PREFECT_CLI_PROMPT"] = "false"
    prefect = [sys.executable, "-m", "prefect"]

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [*prefect, *arguments],
            env=env,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("work-pool", "create", "dyno", "--type", "process", "--overwrite")
    call("--no-prompt", "deploy", "--all")
    worker = subprocess.Popen(
        [*prefect, "worker", "start", "--pool", "dyno"],
        env=env,
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = call("deployment", "run", "sweep/sweep", "--param", f"file={file}", "--watch")
        assert "Completed" in said or "success" in said.lower(), said
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(40)
    assert dyno.sql("select outcome from attempts") == [{"outcome": "solved"}]
    assert "scorecard" in call("artifact", "ls")
    assert json.loads(dyno.run("scorecard", "--json", "-"))["rows"]


def test_full_disk_stops_the_sweep_and_loses_nothing(dyno: Dyno) -> None:
    evidence = dyno.home / "evidence"
    evidence.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(evidence)])
    assert mount.returncode == 0, "this test needs to be root, as CI is"
    try:
        script = f"{CALL}; head -c 300000 /dev/zero"
        file = dyno.sweep_file(script, repeats=12, retries={"tries": 1}, concurrency=2)
        output = dyno.run("sweep", str(file), code=None)
        assert "disk is full" in output
        assert "Traceback" not in output
        before = keys_of(dyno)
        subprocess.run(["mount", "-o", "remount,size=40m", str(evidence)], check=True)
        dyno.run("sweep", str(file))
        after = keys_of(dyno)
        assert len(after) == 12
        assert before.items() <= after.items()
    finally:
        subprocess.run(["umount", "-l", str(evidence)], check=True)


def test_corrupt_bundle_is_named_and_the_rest_goes_on(dyno: Dyno) -> None:
    file = dyno.sweep_file(CALL, repeats=3)
    dyno.run("sweep", str(file))
    broken = sorted(dyno.home.glob("evidence/attempts/*/*/try-*/bridge.jsonl"))[0]
    broken.write_bytes(broken.read_bytes()[:-20])
    output = dyno.run("load", "--rebuild")
    assert str(broken.parent.parent.name) in output
    dyno.run("sweep", str(file), code=None)
    (row,) = dyno.sql("select count(*) as n from attempts where outcome = 'solved'")
    assert row["n"] >= 2


def test_server_that_is_configured_and_away_is_one_clear_error(dyno: Dyno) -> None:
    dyno.env["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    output = dyno.run("sweep", str(dyno.sweep_file(CALL)), code=2)
    assert "PREFECT_API_URL" in output
    assert "Traceback" not in output


def test_model_out_of_reach_is_refused_before_anything_runs(dyno: Dyno) -> None:
    model = {"name": "away", "endpoint": "http://127.0.0.1:9/v1"}
    file = dyno.sweep_file(CALL, harnesses=["reference"], models=[model])
    output = dyno.run("sweep", str(file), "--yes", code=2)
    assert "out of reach" in output
    assert not (dyno.home / "evidence").exists()
