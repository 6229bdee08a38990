"""Which grader a name means, and what every grader offers.

A grader is a module with three functions, imported when it is first named: planning a sweep must not
pay for graders it does not use.

    version(dataset)             the `grader_version` of its grades, with that version of the package
    validate_spec(spec, tools)   refuses (InputError, `where` the key) what it could not judge by
    grade(job, recorded)         the verdict, pure over both

and perhaps

    needs_judge(spec)            True where a model has to judge; the job then holds a line to one
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from suites.errors import InputError
from suites.schema import Model, Suite, Task
from tasks.grade.jobs import Job, Verdict, job_for, native_names
from tasks.grade.recorded import Recorded

GRADERS = {
    "bfcl": "tasks.grade.bfcl",
    "checks": "tasks.grade.checks",
    "tau2": "tasks.grade.tau2",
}


class Grader(Protocol):
    """What a grader's module offers."""

    def version(self, dataset: str) -> str: ...

    def validate_spec(self, spec: dict[str, Any], tools: Mapping[str, str] | None) -> None: ...

    def grade(self, job: Job, recorded: Recorded) -> Verdict: ...


def grader(name: str) -> Grader:
    """The grader of that name.

    Raises:
        InputError: there is none.
    """
    if name not in GRADERS:
        near = difflib.get_close_matches(name, GRADERS, n=1)
        raise InputError(
            f"{name!r} is not a grader",
            where="grader",
            mend=f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(GRADERS))}",
        )
    return cast(Grader, importlib.import_module(GRADERS[name]))


def needs_judge(name: str, spec: dict[str, Any]) -> bool:
    """True where that grader needs a model that judges, to grade by this spec."""
    asks = getattr(grader(name), "needs_judge", None)
    return asks is not None and bool(asks(spec))


def judged_by(job: Job, judge: Model | None) -> Job:
    """The job as that judge is asked it, in its `spec_hash` too; as it is where no model has to judge.

    The line to the judge is opened when the job is graded (tasks/grade/judging.py).
    """
    if judge is None or not needs_judge(job.grader, job.spec):
        return job
    return replace(job, judge={"model": judge.model or judge.name})


def asked_of(suite: Suite, task: Task, judge: Model | None) -> str:
    """The `spec_hash` of the grades that an attempt at this task answers to."""
    return judged_by(job_for(suite, task, Path(), ""), judge).spec_hash


def validate_grade(task: Task) -> None:
    """Refuse a task whose grader or spec could not judge it; `load_suite` calls this for each task.

    Raises:
        InputError: `where` is the key inside the task.
    """
    try:
        chosen = grader(task.grade.grader)
    except InputError as error:
        raise InputError(error.what, where="grade.grader", mend=error.mend) from error
    try:
        chosen.validate_spec(task.grade.spec, native_names(task))
    except InputError as error:
        raise InputError(error.what, where=f"grade.spec.{error.where}", mend=error.mend) from error
