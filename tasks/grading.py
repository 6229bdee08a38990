"""Grading a cell: every finished attempt that has no valid grade yet, in one worker process.

A model that judges is asked once: its judgement costs, and another time it might be another. What it has
judged stands, until another judge or another version of the grader is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from bridges.channel import Channel
from tasks.grade.client import Grading
from tasks.grade.graders import grader, judged_by
from tasks.grade.jobs import Job, job_for
from tasks.plans import Cell, Plan
from warehouse.evidence import CorruptBundle, Evidence


def grade_cell(
    plan: Plan,
    cell: int,
    evidence: Evidence,
    *,
    again: bool = False,
    host: Callable[[], Channel] | None = None,
) -> Counter[str]:
    """Grade what one cell's attempts left.

    Args:
        plan: the sweep.
        cell: its number.
        evidence: read, and written to beside the bundles.
        again: also grade what has a grade of this very version (regrading), but for what a model has judged.
        host: gives a host's line, where the judge can be asked; None leaves what it has to judge.

    Returns:
        `solved`, `failed`, `grader_error` over all finished attempts of the cell; `new` and `unchanged`
        over those graded now; `corrupt`: bundles that could not be read; `no_task`: imported attempts
        of which nobody knows what was asked; `unjudged`: left because there is no host.
    """
    counts: Counter[str] = Counter()
    plain: list[Job] = []
    judged: list[Job] = []
    for job, stands in _jobs(plan, cell, evidence, counts):
        if stands is not None and (job.judge or not again):
            counts["solved" if stands else "failed"] += 1
        else:
            (judged if job.judge else plain).append(job)
    if host is None:
        counts["unjudged"] += len(judged)
        judged = []
    if plain or judged:
        with Grading() as grading:
            counts += grading.grade_attempts(evidence, plain)
            if judged:
                counts += _judge(plan.cells[cell], judged, grading, evidence, host)
    return counts


def _judge(
    cell: Cell,
    jobs: list[Job],
    grading: Grading,
    evidence: Evidence,
    host: Callable[[], Channel] | None,
) -> Counter[str]:
    """Grade what a model has to judge, one after the other, so that each has a record of its own."""
    from tasks.grade.judging import grade_judged

    judge = cell.judge_definition
    assert judge is not None
    assert host is not None
    counts: Counter[str] = Counter()
    for job in jobs:
        grade = grade_judged(grading, job, judge, host, evidence.attempt_folder(job.id))
        counts[{True: "solved", False: "failed", None: "grader_error"}[grade["solved"]]] += 1
        counts["new" if evidence.write_grade(job.id, grade) else "unchanged"] += 1
    return counts


def _jobs(
    plan: Plan, cell: int, evidence: Evidence, counts: Counter[str]
) -> Iterator[tuple[Job, bool | None]]:
    """Each finished attempt's job, and what its standing grade says (None: there is none)."""
    suite = plan.suites[plan.cells[cell].suite_digest].suite
    judge = plan.cells[cell].judge_definition
    for planned in plan.of_cell(cell):
        key = planned["key"]
        if not plan.has_task(planned):
            counts["no_task"] += 1
            continue
        try:
            bundle = evidence.published(key)
            if bundle is None:
                continue
            job = judged_by(job_for(suite, plan.task(planned), bundle.folder, key), judge)
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
