"""Regrading the 50 simulations of a published τ² run: ours, and upstream's evaluator called plainly.

    pytest tests/bench/test_tau2_grade_bench.py --benchmark-enable -s

Both sides judge the same trajectories in one process with the same code of upstream; plainly means that
each environment is made from its files and hashed whole, as upstream does. Issue 3 asks for ten times.
Without the switch six simulations are judged, once. The seven simulations without an action id are judged
by the task of their place in the file, which need not be theirs: both sides see the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from suites.home import PROJECT
from tasks.convert.tau2 import fetch_tau2
from tests.published import REAL

pytestmark = pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not on this machine")
SIMULATIONS = 50
FEW = 6


@pytest.fixture
def fetched(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("home")
    monkeypatch.setenv("DYNO_HOME", str(home))
    fetch_tau2()
    return home


class Process:
    """`tau2_grade_process.py`, with upstream loaded and everything read."""

    def __init__(self, home: Path, count: int) -> None:
        script = Path(__file__).with_name("tau2_grade_process.py")
        self._process = subprocess.Popen(
            [sys.executable, "-B", str(script), str(home), str(count)],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def judge(self, how: str) -> list[float | str]:
        """The rewards; what upstream raised where it raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(how + "\n")
        self._process.stdin.flush()
        return [
            float(reward) if reward[0].isdigit() else reward
            for reward in self._process.stdout.readline().split()
        ]

    def stop(self) -> None:
        self._process.communicate()


@pytest.mark.timeout(600)
def test_regrade_a_published_run(benchmark: BenchmarkFixture, fetched: Path) -> None:
    count = SIMULATIONS if benchmark.enabled else FEW
    process = Process(fetched, count)
    try:
        began = time.perf_counter()
        plain = process.judge("plainly")
        plainly = time.perf_counter() - began
        ours = benchmark.pedantic(process.judge, ("ours",), rounds=3)
    finally:
        process.stop()
    assert len(ours) == count
    assert ours == plain
    assert {0.0, 1.0} <= set(ours)
    if benchmark.enabled:
        assert benchmark.stats is not None
        mean = benchmark.stats.stats.mean
        ratio = plainly / mean
        benchmark.extra_info |= {"plainly_seconds": round(plainly, 2), "ratio": round(ratio, 1)}
        print(
            f"\n{count} simulations: {plainly:.1f} s plainly, {mean:.2f} s here:"
            f" {ratio:.0f} times faster, the same rewards"
        )
