"""What a τ² world costs: ready in under 50 ms from `open`, once its domain is loaded.

Without --benchmark-enable each runs for a moment only, to see that it works; the targets hold for a
machine that does nothing else.

    .venv/bin/python -m pytest tests/bench/test_tau2_worlds_bench.py --benchmark-enable -s
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridges.tau2_package import PACKAGE
from suites.home import PROJECT
from tasks.convert.fetch import fetch_package

sys.path.insert(0, str(PROJECT / "tests" / "bridges"))

from host_parts import Opened, RunningHost
from tau2_parts import PINNED, Reference, calls_in_any_order, setup_of

DOMAINS = ("airline", "retail", "telecom", "mock")


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("tau2-bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        fetch_package(PACKAGE, *PINNED)
    reference = Reference(home)
    yield reference
    reference.stop()


@pytest.fixture
def host(upstream: Reference, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    home = {"DYNO_HOME": str(upstream.folder.parents[1])}
    running = RunningHost(tmp_path_factory.mktemp("bench-worlds"), env=home)
    yield running
    running.stop()


def begun(host: RunningHost, upstream: Reference, domain: str) -> Callable[[], Opened]:
    """What opens a world of a domain as its first task begins; the domain is loaded."""
    spec, setup = upstream.spec(domain), setup_of(upstream.tasks(domain)[0])

    def opened() -> Opened:
        return host.open(environments=[spec], setup=setup)

    began = time.perf_counter()
    opened().close()
    print(f"\n{domain}: the first world, its domain not loaded: {_ms(began):.0f} ms")
    return opened


def _ms(began: float) -> float:
    return (time.perf_counter() - began) * 1000


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_world_is_ready_in_under_fifty_milliseconds(
    host: RunningHost, upstream: Reference, benchmark: Any, domain: str
) -> None:
    make = begun(host, upstream, domain)
    opened: list[Opened] = []
    benchmark.pedantic(lambda: opened.append(make()), rounds=100 if benchmark.enabled else 5)
    times = []
    for each in opened:
        began = time.perf_counter()
        each.close()
        times.append(_ms(began))
    print(f"{domain}: {len(opened)} worlds at once, closed in {statistics.median(times):.1f} ms")
    assert host.stats()["workers"] == 0
    if benchmark.enabled:
        assert benchmark.stats.stats.median < 0.05


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_call_in_a_world(
    host: RunningHost, upstream: Reference, benchmark: Any, domain: str
) -> None:
    opened = begun(host, upstream, domain)()
    client = opened.client()
    benchmark.pedantic(
        lambda: client.call("transfer_to_human_agents", '{"summary": "x"}'),
        rounds=500 if benchmark.enabled else 5,
    )
    began = time.perf_counter()
    opened.state()
    print(f"{domain}: the hashes of its databases take {_ms(began):.0f} ms")


@pytest.mark.parametrize("domain", ["airline", "telecom"])
def test_a_killed_world_is_rebuilt(
    host: RunningHost, upstream: Reference, benchmark: Any, domain: str
) -> None:
    opened = begun(host, upstream, domain)()
    calls = calls_in_any_order(upstream, domain, 100, seed=1)
    client = opened.client()
    made = [each for each in calls if each["requestor"] == "assistant"]
    for each in made:
        client.call(each["name"], json.dumps(each["arguments"]))

    def killed() -> None:
        for pid in _worlds(host):
            os.kill(pid, signal.SIGKILL)
        while host.stats()["workers"]:
            time.sleep(0.001)

    rounds = 10 if benchmark.enabled else 2
    benchmark.pedantic(lambda: client.call("nope", "{}"), setup=killed, rounds=rounds)
    print(f"{domain}: rebuilt from {len(made)} calls")


def _worlds(host: RunningHost) -> list[int]:
    def children(pid: int) -> list[int]:
        files = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in files for child in file.read_text().split()]

    return [world for zygote in children(host.process.pid) for world in children(zygote)]


@pytest.mark.parametrize("domain", DOMAINS)
def test_memory_of_worlds(host: RunningHost, upstream: Reference, domain: str) -> None:
    make = begun(host, upstream, domain)
    opened = [make() for _ in range(20)]
    for each in opened:
        each.client().call("transfer_to_human_agents", '{"summary": "x"}')
    own = [_private(pid) for pid in _worlds(host)]
    assert len(own) == 20
    print(f"{domain}: each of 20 worlds has {statistics.median(own) / 1e6:.1f} MB of its own")
    assert statistics.median(own) < 30_000_000


def _private(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_"))
