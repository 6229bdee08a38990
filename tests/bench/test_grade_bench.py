"""Grading BFCL from bundles on disk: all 3,641 in under 3 s, the worker's start included (issue 2).

    pytest tests/bench/test_grade_bench.py --benchmark-enable

Without that switch one small category is graded, once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tasks.convert.bfcl import convert_bfcl, fetch_bfcl
from tasks.convert.bfcl_oracles import oracle_job
from tasks.grade.client import Grading
from tasks.grade.jobs import Job, job_for
from warehouse.evidence import Evidence


@pytest.fixture
def fetched(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("home")
    monkeypatch.setenv("DYNO_HOME", str(home))
    fetch_bfcl()


def bundles(evidence: Evidence, categories: list[str] | None) -> list[Job]:
    """A finished try of every task, in which the oracle's calls were made after one model call."""
    jobs = []
    for converted in convert_bfcl(categories=categories):
        for task in converted.tasks:
            assert task.oracle is not None
            folder = evidence.claim_try(f"{len(jobs):064x}")
            rows = oracle_job(task, task.oracle.calls, "").rows or {}
            bridge = [{**row, "seq": row["seq"] + 2} for row in rows["bridge"]]
            for row in bridge:
                if "call" in row:
                    row["call"] += 2
            model = [{"seq": 1, "event": "request"}, {"seq": 2, "event": "response", "call": 1}]
            for name, content in (("bridge", bridge), ("model", model)):
                text = "".join(json.dumps(row) + "\n" for row in content)
                (folder / f"{name}.jsonl").write_text(text)
            bundle = evidence.finish(folder, {"ending": "clean", "error": None, "host": {}})
            jobs.append(job_for(converted.suite, task, bundle.folder, bundle.key))
    return jobs


@pytest.mark.usefixtures("fetched")
def test_grade_every_bundle(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    jobs = bundles(Evidence(tmp_path), None if benchmark.enabled else ["live_parallel"])

    def grade() -> int:
        with Grading() as grading:
            return sum(bool(grade["solved"]) for grade in grading.grade_bundles(jobs))

    solved = benchmark.pedantic(grade, rounds=3)
    assert solved == (3641 - 7 if benchmark.enabled else 16)


@pytest.mark.usefixtures("fetched")
def test_grade_and_keep_every_grade(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    jobs = bundles(evidence, None if benchmark.enabled else ["live_parallel"])
    with Grading() as grading:
        counts = benchmark.pedantic(grading.grade_attempts, (evidence, jobs), rounds=1)
    assert counts["new"] == len(jobs)
