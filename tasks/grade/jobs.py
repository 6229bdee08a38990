"""What a grader is given and what it answers: values that cross the line to the grade worker.

A job names everything a grade depends on (the spec, the tools' native names, the benchmark's package,
the ending's rule) and where the evidence lies; it never carries an old grade. A verdict is pure over
that: the same job gives the same verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suites.canonical import digest
from suites.schema import Suite, Task


@dataclass(frozen=True)
class Job:
    """One try to grade.

    Attributes:
        id: what the answer is known by: the attempt key, or any text for rows without a bundle.
        grader: a name in `tasks/grade/graders.py`.
        spec: the task's `grade.spec`.
        tools: wire name to native name, of every tool of the task.
        dataset: version of the benchmark's package (`2026.3.23`); "" where the grader needs none.
        on_error: the task's rule for an ending other than `clean`.
        folder: the try's folder, read and verified by the worker; None if `rows` are given.
        rows: `{"bridge": […], "model": […], "conversation": […], "stdout": text, "ending": "clean"}`, for
            oracles and tests.
        judge: a line to the model that judges, where the grader needs one: `model_url` (up to `/v1`),
            `token`, `model` (before the line is opened: that alone); None where none is configured.
    """

    id: str
    grader: str
    spec: dict[str, Any]
    tools: dict[str, str] = field(default_factory=dict)
    dataset: str = ""
    on_error: str = "grade_work"
    folder: str | None = None
    rows: dict[str, Any] | None = None
    judge: dict[str, Any] | None = None

    @property
    def spec_hash(self) -> str:
        """By which two grades are known to have asked the same."""
        asked: dict[str, Any] = {"spec": self.spec, "tools": self.tools}
        if self.on_error != "grade_work":
            asked["on_error"] = self.on_error
        if self.judge is not None:
            asked["judge"] = self.judge["model"]  # another judge is another question
        return digest(asked)

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON values (not copied: a deep copy of a spec costs more than grading it)."""
        return dict(vars(self))


def job_for(suite: Suite, task: Task, folder: Path, key: str) -> Job:
    """The job that grades one finished try of a task.

    Args:
        suite: the suite as it was run.
        task: the task as it was run.
        folder: the try's folder.
        key: the attempt key.
    """
    return Job(
        id=key,
        grader=task.grade.grader,
        spec=task.grade.spec,
        tools=native_names(task),
        dataset=suite.dataset.version,
        on_error=task.on_error,
        folder=str(folder),
    )


def native_names(task: Task) -> dict[str, str]:
    """Wire name to native name, of every tool of the task."""
    return {
        tool.name: tool.native_name or tool.name
        for environment in task.environments
        for tool in environment.tools
    }


@dataclass(frozen=True)
class Check:
    """One finding of a grader.

    Attributes:
        passed: None where the evidence cannot tell (the finding says why).
        headline: True if the verdict rests on it.
        error_type: the native grader's own class of error, None where it passed.
        finding: what was found, in words that can be argued with.
    """

    name: str
    passed: bool | None
    finding: str
    weight: float = 1.0
    scope: str = "attempt"
    headline: bool = True
    error_type: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What a grader says of one try.

    Attributes:
        solved: None if the grader could not judge (`error` says why).
        score: between 0 and 1; None with `solved` None.
        error: `{"type", "message"}` of a grader_error.
        judge: the model that judged a part, and the usage it stated: `{"model", "usage"}`; else None.
    """

    solved: bool | None
    score: float | None
    checks: tuple[Check, ...] = ()
    error: dict[str, str] | None = None
    judge: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON values; what no UTF-8 can hold (lone surrogates) as visible text."""
        value = dict(vars(self))
        if self.judge is None:
            del value["judge"]
        value["checks"] = [
            {**vars(check), "finding": _plain(check.finding)} for check in self.checks
        ]
        if self.error is not None:
            value["error"] = {key: _plain(text) for key, text in self.error.items()}
        return value


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def grader_error(kind: str, message: str) -> Verdict:
    """The verdict of a grader that could not judge: no result, and never a failure."""
    return Verdict(solved=None, score=None, error={"type": kind, "message": message})
