"""How long a person waits for the map: `dyno --help`, as a whole process."""

from __future__ import annotations

import subprocess
import sys

from pytest_benchmark.fixture import BenchmarkFixture

from suites.home import PROJECT


def test_help(benchmark: BenchmarkFixture) -> None:
    def ask() -> str:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", "--help"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert "Commands:" in benchmark.pedantic(ask, rounds=10 if benchmark.enabled else 1)
