"""What the host costs: an open under 5 ms, a call under 8 ms at the median with 8 clients at 5/s.

Host and clients are processes of their own. Without --benchmark-enable each runs for a moment only, to
see that it works; the targets hold for a machine that does nothing else.

    .venv/bin/python -m pytest tests/bench/test_host_bench.py --benchmark-enable -s
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges.journal import Journal
from suites.home import PROJECT

sys.path.insert(0, str(PROJECT / "tests" / "bridges"))

from host_parts import WEATHER, RunningHost, coded

HOGS = """
import time
def spin():
    while True: pass
def hang():
    time.sleep(1000)
def huge():
    return "x" * 50_000_000
"""
TOOLS = [{**WEATHER, "name": f"tool_{number}", "native_name": None} for number in range(20)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    running = RunningHost(tmp_path_factory.mktemp("bench-host"))
    yield running
    running.stop()


def measure(
    host: RunningHost, clients: int, rate: float, seconds: float, *tools: Any
) -> list[float]:
    """Latencies (ms) of `clients` attempts that each call their first tool."""
    opened = [host.open(*tools) for _ in range(clients)]
    script = Path(__file__).with_name("calls_process.py")
    targets = [word for attempt in opened for word in (attempt.url, tools[0]["name"])]
    command = [sys.executable, str(script), str(seconds), str(rate), *targets]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    for attempt in opened:
        attempt.close()
    return json.loads(ran.stdout)


def told(name: str, times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"{name}: p50 {cuts[49]:.2f}, p95 {cuts[94]:.2f}, p99 {cuts[98]:.2f} ms ({len(times)})"


def test_opening_and_closing_an_attempt(host: RunningHost, benchmark: Any) -> None:
    def live() -> None:
        host.open(*TOOLS).close()

    live()
    benchmark.pedantic(live, rounds=200 if benchmark.enabled else 20)


def test_opening_an_attempt_takes_less_than_five_milliseconds(
    host: RunningHost, benchmark: Any
) -> None:
    opened = []

    def ready() -> None:
        opened.append(host.open(*TOOLS))

    ready()
    benchmark.pedantic(ready, rounds=200 if benchmark.enabled else 20)
    for attempt in opened:
        attempt.close()
    if benchmark.enabled:
        assert benchmark.stats.stats.median < 0.005


def test_calls_of_eight_clients_at_five_a_second(host: RunningHost, benchmark: Any) -> None:
    seconds = 20 if benchmark.enabled else 1
    times = benchmark.pedantic(measure, args=(host, 8, 5.0, seconds, *TOOLS), rounds=1)
    print(told("8 clients, 5 calls a second each", times))
    assert not benchmark.enabled or statistics.median(times) < 8


def test_calls_into_workers_of_eight_clients_at_five_a_second(
    host: RunningHost, benchmark: Any, tmp_path: Path
) -> None:
    (tmp_path / "code.py").write_text("def f(city):\n    return city\n")
    tool = {**coded("f")[0], "run": f"{tmp_path}/code.py:f"}
    seconds = 20 if benchmark.enabled else 1
    times = benchmark.pedantic(measure, args=(host, 8, 5.0, seconds, tool), rounds=1)
    print(told("8 clients, 5 calls a second each, code in workers", times))
    assert not benchmark.enabled or statistics.median(times) < 8


@pytest.mark.parametrize("hog", ["none", "spin", "hang", "huge"])
def test_calls_beside_an_attempt_that_misbehaves(
    host: RunningHost, benchmark: Any, tmp_path: Path, hog: str
) -> None:
    (tmp_path / "code.py").write_text(HOGS)
    over = threading.Event()

    def disturb() -> None:
        client = host.open(*coded(hog), root=tmp_path, tool_seconds=1).client()
        while not over.wait(0.01):
            client.call(hog)

    hogs = [threading.Thread(target=disturb) for _ in range(0 if hog == "none" else 2)]
    for thread in hogs:
        thread.start()
    seconds = 10 if benchmark.enabled else 0.5
    try:
        times = benchmark.pedantic(measure, args=(host, 8, 5.0, seconds, *TOOLS), rounds=1)
    finally:
        over.set()
        for thread in hogs:
            thread.join()
    print(told(f"8 clients beside two that {hog}", times))
    assert not benchmark.enabled or statistics.median(times) < 8


def test_saturated(host: RunningHost, benchmark: Any) -> None:
    seconds = 10 if benchmark.enabled else 0.5
    before = host.stats()["cpu_seconds"]
    times = benchmark.pedantic(measure, args=(host, 16, 0.0, seconds, *TOOLS), rounds=1)
    cpu = (host.stats()["cpu_seconds"] - before) / len(times)
    print(told("16 clients without a pause", times))
    print(
        f"{len(times) / seconds:.0f} calls a second, {cpu * 1000:.2f} ms of the host's CPU a call"
    )


def test_memory_with_and_without_attempts(host: RunningHost) -> None:
    empty = host.stats()["rss_bytes"]
    opened = [host.open(*TOOLS) for _ in range(100)]
    full = host.stats()["rss_bytes"]
    for attempt in opened:
        attempt.close()
    print(f"resident: {empty / 1e6:.1f} MB, with 100 attempts {full / 1e6:.1f} MB")
    assert full < 110_000_000


def test_a_row_takes_less_than_fifty_microseconds(tmp_path: Path, benchmark: Any) -> None:
    journal = Journal(tmp_path, 1)
    row = {"server": "functions", "tool": "t", "native": "t", "arguments": '{"city":"Paris"}' * 10}

    def write() -> None:
        journal.append("bridge", "call", **row)

    benchmark(write)
    journal.close()
    if benchmark.enabled:
        assert benchmark.stats.stats.median < 50e-6
