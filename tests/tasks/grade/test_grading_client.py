from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from suites.home import PROJECT
from suites.loading_suites import load_suite
from tasks.grade.calls import rows_of
from tasks.grade.client import Grading
from tasks.grade.jobs import Job, job_for
from warehouse.evidence import Bundle, Evidence

FINE = {"checks": [{"kind": "tool_called", "tool": "f"}]}
HANGS = {"checks": [{"kind": "stdout_matches", "pattern": "^(a+)+$"}]}
"""A regular expression that holds the interpreter for longer than any test."""


def job(name: str = "fine", spec: dict[str, Any] = FINE, **changes: Any) -> Job:
    rows = {"bridge": rows_of([("f", {})]), "model": [], "stdout": "a" * 60 + "!"}
    return Job(**{"id": name, "grader": "checks", "spec": spec, "rows": rows, **changes})


def worker_pid(grading: Grading) -> int:
    assert grading._worker is not None
    return grading._worker.process.pid


def make_bundle(evidence: Evidence, key: str, **record: Any) -> Bundle:
    """A finished, published try in which `get_weather` was called for Oslo."""
    folder = evidence.claim_try(key)
    rows = rows_of([("get_weather", {"city": "Oslo"})])
    (folder / "bridge.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "stdout").write_text("12 degrees\n")
    bundle = evidence.finish(folder, {"ending": "clean", "error": None, "host": {}, **record})
    evidence.publish(bundle)
    return bundle


def weather_job(bundle: Bundle) -> Job:
    loaded = load_suite("hello-tools")
    return job_for(loaded.suite, loaded.task("weather"), bundle.folder, bundle.key)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "evidence")


def test_a_job_that_hangs_costs_itself_alone() -> None:
    started = time.monotonic()
    with Grading(seconds=1) as grading:
        jobs = [job("one"), job("hangs", HANGS), job("two"), job("three")]
        grades = list(grading.grade_bundles(jobs))
    assert [grade["solved"] for grade in grades] == [True, None, True, True]
    assert grades[1]["error"] == {
        "type": "grader_died",
        "message": "the grader took longer than 1 s",
    }
    assert grades[1]["grader_version"] == "1"
    assert time.monotonic() - started < 20


def test_a_worker_that_was_killed_is_replaced(grading: Grading) -> None:
    assert grading.grade(job())["solved"] is True
    first = worker_pid(grading)
    os.kill(first, signal.SIGKILL)
    assert grading.grade(job())["solved"] is True
    assert worker_pid(grading) != first


def test_a_worker_that_dies_at_work_does_not_cost_the_job_that_found_it_so(
    grading: Grading,
) -> None:
    assert grading.grade(job())["solved"] is True
    first = worker_pid(grading)
    os.kill(first, signal.SIGSTOP)
    killer = threading.Timer(0.3, os.kill, (first, signal.SIGKILL))
    killer.start()
    assert grading.grade(job())["solved"] is True
    killer.join()


def test_an_unknown_grader_and_a_broken_spec_are_grader_errors(grading: Grading) -> None:
    unknown = grading.grade(job(grader="bfcll"))
    assert unknown["error"]["type"] == "grader_missing"
    assert "did you mean 'bfcl'?" in unknown["error"]["message"]
    broken = grading.grade(job(spec={"checks": [{"kind": "nothing"}]}))
    assert broken["error"]["type"] == "grader_raised"
    assert grading.grade(job())["solved"] is True


def test_threads_share_one_worker(grading: Grading) -> None:
    grades: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda: grades.extend(grading.grade(job()) for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [grade["solved"] for grade in grades] == [True] * 80


def test_the_worker_sees_no_key(grading: Grading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    grading.grade(job())
    seen = Path(f"/proc/{worker_pid(grading)}/environ").read_bytes()
    assert b"sk-secret" not in seen
    assert {name.split(b"=")[0] for name in seen.split(b"\0") if name} <= {
        b"PATH",
        b"LANG",
        b"TZ",
        b"TMPDIR",
        b"DYNO_HOME",
        b"LC_CTYPE",
    }


PARENT = """
import sys
from tasks.grade.client import Grading
from tasks.grade.jobs import Job
grading = Grading(seconds=30)
fine = {"checks": [{"kind": "tool_calls_at_most", "at_most": 0}]}
grading.grade(Job(id="a", grader="checks", spec=fine, rows={}))
print(grading._worker.process.pid, flush=True)
sys.stdin.read()
"""


def test_the_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(worker)


def is_alive(pid: int) -> bool:
    """False for a zombie too: what is left of an orphan until its new parent looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_bundles_are_graded_and_grading_again_changes_nothing(
    grading: Grading, evidence: Evidence
) -> None:
    jobs = [weather_job(make_bundle(evidence, key)) for key in ("aa1", "bb2")]
    first = grading.grade_attempts(evidence, jobs)
    assert first == {"solved": 2, "failed": 0, "grader_error": 0, "new": 2, "unchanged": 0}
    again = grading.grade_attempts(evidence, jobs)
    assert again == {"solved": 2, "failed": 0, "grader_error": 0, "new": 0, "unchanged": 2}
    (grade,) = evidence.grades("aa1")
    published = evidence.published("aa1")
    assert published is not None
    assert grade["bundle_hash"] == published.hash
    assert grade["spec_hash"] == jobs[0].spec_hash
    assert grade["file"] == f"checks@1-{jobs[0].spec_hash[:8]}.json"


def test_a_grade_never_reads_an_old_one(grading: Grading, evidence: Evidence) -> None:
    asked = weather_job(make_bundle(evidence, "aa1"))
    grading.grade_attempts(evidence, [asked])
    (path,) = (evidence.attempt_folder("aa1") / "grades").glob("*.json")
    path.write_text(path.read_text().replace('"solved": true', '"solved": false'))
    assert grading.grade(asked)["solved"] is True


@pytest.mark.parametrize("name", ["bridge.jsonl", "stdout", "attempt.json"])
def test_evidence_that_was_tampered_with_is_a_grader_error(
    grading: Grading, evidence: Evidence, name: str
) -> None:
    bundle = make_bundle(evidence, "aa1")
    with (bundle.folder / name).open("a") as file:
        file.write("{")
    counts = grading.grade_attempts(evidence, [weather_job(bundle)])
    assert counts["grader_error"] == 1
    (grade,) = evidence.grades("aa1")
    assert grade["solved"] is None
    assert grade["error"]["type"] == "corrupt_bundle"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"host": {"dropped": True}}, "lost"),
        ({"error": {"class": "host_lost", "message": "gone"}}, "infrastructure error"),
    ],
)
def test_evidence_with_holes_is_a_grader_error(
    grading: Grading, evidence: Evidence, record: dict[str, Any], words: str
) -> None:
    grade = grading.grade(weather_job(make_bundle(evidence, "aa1", **record)))
    assert grade["error"]["type"] == "evidence_hole"
    assert words in grade["error"]["message"]


def test_an_unfinished_try_is_never_graded(grading: Grading, evidence: Evidence) -> None:
    bundle = make_bundle(evidence, "aa1")
    (bundle.folder / "attempt.json").unlink()
    grade = grading.grade(weather_job(bundle))
    assert grade["solved"] is None
    assert "interrupted" in grade["error"]["message"]


@pytest.mark.parametrize("rule", ["not_passed", "zero"])
def test_an_ending_that_is_not_clean_fails_where_the_benchmark_says_so(
    grading: Grading, evidence: Evidence, rule: str
) -> None:
    asked = weather_job(make_bundle(evidence, "aa1", ending="timeout"))
    assert grading.grade(asked)["solved"] is True  # grade_work: the work is there
    ruled = grading.grade(dataclasses.replace(asked, on_error=rule))
    assert (ruled["solved"], ruled["score"]) == (False, 0.0)
    assert ruled["checks"][0]["error_type"] == "ending:timeout"
    assert ruled["spec_hash"] != asked.spec_hash
