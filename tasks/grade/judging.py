"""A judge's line to its model, opened at the host for the length of one grade, and the grade by it.

Claim: the judge is metered like every model and apart from the agent: its calls land in a `model.jsonl` of
their own, with requestor `judge`, and the grade worker holds a token that ends with the grade. The grade
says which record that is, so that no call of a judge is in the figures twice, or in none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridges.channel import Channel, ChannelClosed, RemoteError
from suites.canonical import file_sha256
from suites.home import dyno_home
from suites.schema import Model
from tasks.attempt.processes import Processes
from tasks.grade.client import Grading, refused
from tasks.grade.jobs import Job

OPEN_SECONDS = 60.0
"""How long the host may take to open or close a line."""
LIMITS = {"tool_seconds": 60}
"""A judge has no tools; a host wants to be told."""


@contextmanager
def judge_line(
    host: Channel, model: Mapping[str, Any], folder: Path, attempt: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A line for one grade.

    Args:
        host: the host's line (`Processes.host()`).
        model: the judge, as an agent's model is given to `Host.open`.
        folder: where `judge-<n>/` is made for its record; it is never one that exists already.
        attempt: the key of the attempt that is judged.

    Yields:
        `Job.judge`, and the host's summary of what was asked (`model_calls`, `usage`, `cost`) with the
        name of the `record` (None where nothing was asked: nothing is kept then), which is empty until the
        line is closed.

    Raises:
        RemoteError, ChannelClosed: the host refuses the model, or is gone.
    """
    number, own = _own_folder(folder)
    key = f"{attempt}-judge"
    summary: dict[str, Any] = {}
    opened = host.call(
        "open",
        attempt=key,
        folder=str(own),
        environments=[],
        limits=LIMITS,
        model={**model, "requestor": "judge"},
        timeout=OPEN_SECONDS,
        **{"try": number},
    )
    line = {
        "model_url": opened["model_url"],
        "token": opened["model_token"],
        "model": model.get("model") or model["name"],
    }
    try:
        yield line, summary
    finally:
        summary |= host.call("close", attempt=key, timeout=OPEN_SECONDS, **{"try": number})
        summary["record"] = own.name if summary["model_calls"] else None
        if summary["record"] is None:
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def own_host() -> Iterator[Callable[[], Channel]]:
    """A host for judges where no sweep is running one, started when it is first asked for, and its end."""
    processes = Processes(dyno_home() / "logs")
    try:
        yield processes.host
    finally:
        processes.stop()


def grade_judged(
    grading: Grading, job: Job, judge: Model, host: Callable[[], Channel], folder: Path
) -> dict[str, Any]:
    """The grade of a job that a model has to judge.

    Args:
        job: with the judge's name (`judged_by`).
        host: gives the host's line.
        folder: the attempt's.

    Returns:
        As `Grading.grade`; where the judge was asked also `judge`, with what the gateway metered. A line
        that cannot be had is a grader_error (`judge_failed`), and never a failure.
    """
    try:
        with judge_line(host(), _described(judge), folder, job.id) as (line, summary):
            grade = grading.grade(replace(job, judge=line))
    except (ChannelClosed, RemoteError, TimeoutError) as error:
        return refused(job, "judge_failed", f"there was no line to the judge model: {error}")
    record = summary["record"]
    if record is not None:
        grade["judge"] = {
            "model": line["model"],
            **(grade.get("judge") or {}),
            "model_calls": summary["model_calls"],
            "usage": summary["usage"],
            "cost": summary["cost"],
            "record": record,
            "sha256": file_sha256(folder / record / "model.jsonl"),
        }
    return grade


def _described(judge: Model) -> dict[str, Any]:
    """The judge as the host wants a model."""
    told = judge.model_dump(mode="json", exclude={"description", "estimate", "scripted"})
    told["model"] = judge.model or judge.name
    told["wire"] = "chat"
    told["scripted"] = None
    if judge.is_scripted:
        told["scripted"] = {"behaviour": judge.behaviour, "settings": judge.scripted, "seed": 0}
    return told


def _own_folder(folder: Path) -> tuple[int, Path]:
    number = 1
    while True:
        own = folder / f"judge-{number}"
        try:
            own.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return number, own.absolute()
