"""Converting, once fetched: BFCL's 13 categories in under 5 s (issue 2), τ²-bench's six suites.

    pytest tests/bench/test_convert_bench.py --benchmark-enable

Without that switch one small category is converted, once.
Most of τ²'s time goes into proving 2,285 telecom oracles by upstream's grader.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from suites.loading_suites import load_suite
from tasks.convert.bfcl import convert_bfcl, fetch_bfcl
from tasks.convert.tau2 import convert_tau2, fetch_tau2
from tasks.grade.graders import validate_grade


@pytest.fixture
def fetched(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("home")
    monkeypatch.setenv("DYNO_HOME", str(home))
    fetch_bfcl()
    fetch_tau2()


@pytest.mark.usefixtures("fetched")
def test_convert_every_category(benchmark: BenchmarkFixture) -> None:
    categories = None if benchmark.enabled else ["live_parallel"]
    done = benchmark.pedantic(convert_bfcl, kwargs={"categories": categories}, rounds=3)
    assert sum(len(category.tasks) for category in done) == (3641 if benchmark.enabled else 16)


@pytest.mark.usefixtures("fetched")
def test_load_the_largest_suite(benchmark: BenchmarkFixture) -> None:
    name = "live_multiple" if benchmark.enabled else "live_parallel"
    (converted,) = convert_bfcl(categories=[name])
    loaded = benchmark.pedantic(load_suite, (converted.suite.name, validate_grade), rounds=5)
    assert len(loaded.tasks) == len(converted.tasks)


@pytest.mark.usefixtures("fetched")
def test_convert_every_domain(benchmark: BenchmarkFixture) -> None:
    categories = None if benchmark.enabled else ["mock"]
    done = benchmark.pedantic(convert_tau2, kwargs={"categories": categories}, rounds=1)
    assert sum(len(suite.tasks) for suite in done) == (2592 if benchmark.enabled else 9)


@pytest.mark.usefixtures("fetched")
def test_load_the_largest_domain(benchmark: BenchmarkFixture) -> None:
    name = "telecom-full" if benchmark.enabled else "mock"
    (converted,) = convert_tau2(categories=[name])
    loaded = benchmark.pedantic(load_suite, (converted.suite.name, validate_grade), rounds=3)
    assert len(loaded.tasks) == len(converted.tasks)
