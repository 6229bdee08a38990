"""What dyno adds to an attempt: a harness that exits at once, four at a time, Prefect and its server
included. With `make bench` over 1,000 attempts; as a plain test over a few, so that it keeps running.

The server records task runs after the sweep has ended, so its drain is waited for and counted too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from pytest_benchmark.fixture import BenchmarkFixture

from tests.flows.conftest import Dyno, prefect_api  # noqa: F401  the fixture

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def write_sweep(home: Path, tasks: int) -> Path:
    """A suite of tasks without tools, and a harness that ends at once."""
    check = {"kind": "stdout_contains", "text": "x"}
    suite = {
        "name": "nothing",
        "version": "1",
        "benchmark": "none",
        "dataset": {"source": "made", "version": "1"},
        "tasks": [
            {
                "id": f"t{number}",
                "messages": [{"role": "user", "content": f"say {number}"}],
                "grade": {"grader": "checks", "spec": {"checks": [check]}},
            }
            for number in range(tasks)
        ],
    }
    (home / "nothing.yaml").write_text(yaml.safe_dump(suite))
    sweep = {
        "name": "overhead",
        "suites": [str(home / "nothing.yaml")],
        "harnesses": [
            {"name": "exits", "command": ["true"], "wire": "none", "speaks": [], "version": "1"}
        ],
        "models": [{"name": "label", "endpoint": "none"}],
        "concurrency": 4,
    }
    (home / "overhead.yaml").write_text(yaml.safe_dump(sweep))
    return home / "overhead.yaml"


def server_pid(api: str) -> int:
    """The session's Prefect server, by its port."""
    port = api.rsplit(":", 1)[1].partition("/")[0]
    listed = subprocess.run(
        ["pgrep", "-f", f"prefect server start .*--port {port}"], capture_output=True, text=True
    )
    return int(listed.stdout.split()[0])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def wait_for_drain(pid: int) -> None:
    """Until the server has been quiet for two seconds."""
    before = cpu_seconds(pid)
    while True:
        time.sleep(2)
        now = cpu_seconds(pid)
        if now - before < 0.15:
            return
        before = now


@pytest.mark.prefect
def test_overhead_of_an_attempt(
    benchmark: BenchmarkFixture,
    tmp_path: Path,
    prefect_api: str,  # noqa: F811
) -> None:
    attempts = 1000 if benchmark.enabled else 8
    dyno = Dyno(tmp_path, prefect_api)
    file = write_sweep(tmp_path, attempts)
    server = server_pid(prefect_api)
    wait_for_drain(server)
    served = cpu_seconds(server)
    peak: list[float] = []

    def sweep() -> float:
        process = dyno.start("sweep", str(file))
        started = time.monotonic()
        while process.poll() is None:
            time.sleep(0.5)
            peak.append(_own_memory(process.pid))
        assert process.returncode == 0, process.stdout.read() if process.stdout else ""
        return time.monotonic() - started

    wall = benchmark.pedantic(sweep, rounds=1)
    started = time.monotonic()
    wait_for_drain(server)
    drain = max(0.0, time.monotonic() - started - 2)
    (row,) = dyno.sql("select count(*) as n from attempts where ending = 'clean'")
    assert row["n"] == attempts
    benchmark.extra_info |= {
        "attempts": attempts,
        "wall_ms_an_attempt": round(wall / attempts * 1000, 1),
        "drain_ms_an_attempt": round(drain / attempts * 1000, 1),
        "server_cpu_ms_an_attempt": round((cpu_seconds(server) - served) / attempts * 1000, 1),
        "own_processes_peak_mb": round(max(peak), 0),
        "own_processes_median_mb": round(sorted(peak)[len(peak) // 2], 0),
    }
    sys.stderr.write(f"\n{benchmark.extra_info}\n")


def _own_memory(pid: int) -> float:
    """Resident memory of the flow and all below it."""
    total, todo = 0.0, [pid]
    while todo:
        current = todo.pop()
        try:
            total += resident_mb(current)
        except (OSError, IndexError):
            continue
        listed = subprocess.run(["pgrep", "-P", str(current)], capture_output=True, text=True)
        todo += [int(line) for line in listed.stdout.split()]
    return total
