"""Grading a cell: every finished attempt that has no valid grade yet, in one worker process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tasks.grade.client import Grading
from tasks.grade.graders import grader
from tasks.grade.jobs import Job, job_for
from tasks.plans import Plan
from warehouse.evidence import CorruptBundle, Evidence


def grade_cell(plan: Plan, cell: int, evidence: Evidence, *, again: bool = False) -> Counter[str]:
    """Grade what one cell's attempts left.

    Args:
        plan: the sweep.
        cell: its number.
        evidence: read, and written to beside the bundles.
        again: also grade what has a grade of this very version (regrading).

    Returns:
        `solved`, `failed`, `grader_error` over all finished attempts of the cell; `new` and `unchanged`
        over those graded now; `corrupt`: bundles that could not be read; `no_task`: imported attempts
        of which nobody knows what was asked.
    """
    counts: Counter[str] = Counter()
    jobs: list[Job] = []
    for job, stands in _jobs(plan, cell, evidence, counts):
        if stands is None or again:
            jobs.append(job)
        else:
            counts["solved" if stands else "failed"] += 1
    if jobs:
        with Grading() as grading:
            counts += grading.grade_attempts(evidence, jobs)
    return counts


def _jobs(
    plan: Plan, cell: int, evidence: Evidence, counts: Counter[str]
) -> Iterator[tuple[Job, bool | None]]:
    """Each finished attempt's job, and what its standing grade says (None: there is none)."""
    suite = plan.suites[plan.cells[cell].suite_digest].suite
    for planned in plan.of_cell(cell):
        key = planned["key"]
        if not plan.has_task(planned):
            counts["no_task"] += 1
            continue
        try:
            bundle = evidence.published(key)
            if bundle is None:
                continue
            job = job_for(suite, plan.task(planned), bundle.folder, key)
            version = grader(job.grader).version(job.dataset)
            standing = [
                grade["solved"]
                for grade in evidence.grades(key)
                if grade["grader"] == job.grader
                and grade["grader_version"] == version
                and grade["spec_hash"] == job.spec_hash
                and grade["bundle_hash"] == bundle.hash
            ]
        except CorruptBundle:
            counts["corrupt"] += 1
            continue
        yield job, standing[-1] if standing else None
