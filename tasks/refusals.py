"""What of a sweep is refused, in words: a cell that cannot run, and choices that choose nothing.

A cell that is refused costs the others nothing: it is shown with its reason, and the rest is run.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from suites.errors import InputError
from suites.schema import (
    DEFAULT_LIMITS,
    Harness,
    Limits,
    LoadedSuite,
    Model,
    Sweep,
    Task,
    Tau2World,
)
from tasks.configurations import Configurations
from tasks.users import User

SUPPORTED_WIRES = ("chat", "responses", "messages", "none")


def resolved_limits(sweep: Sweep, suite: LoadedSuite, task: Task, harness: Harness) -> Limits:
    """The limits of one attempt: sweep > suite > task > harness > dyno's own."""
    return sweep.limits.over(suite.suite.limits, task.limits, harness.limits, DEFAULT_LIMITS)


def refusal(
    suite: LoadedSuite,
    harness: Harness,
    model: Model,
    sweep: Sweep,
    tasks: Iterable[Task],
    user: User | None,
) -> str | None:
    """Why this cell cannot be run, in words; None if it can."""
    if sweep.isolation != "process":
        return f"isolation {sweep.isolation!r} is not built yet; `process` is"
    if harness.wire not in SUPPORTED_WIRES:
        return (
            f"the harness {harness.name} speaks the {harness.wire} wire, which the gateway does not"
        )
    if harness.wire != "none" and model.endpoint != "none" and not model.speaks(harness.wire):
        return (
            f"the harness speaks the {harness.wire} wire and the model {' and '.join(model.wires)}"
        )
    if harness.wire != "none" and model.endpoint == "none":
        return f"the model {model.name} is only a label, and the harness needs an endpoint"
    for task in tasks:
        limits = resolved_limits(sweep, suite, task, harness)
        if limits.dollars and model.prices is None and harness.wire != "none":
            return f"a limit in dollars needs prices, and the model {model.name} has none"
        reason = _refused_task(task, harness, sweep) or _refused_conversation(task, harness, user)
        if reason:
            return reason
    return None


def _refused_task(task: Task, harness: Harness, sweep: Sweep) -> str | None:
    needs = [name for name in ("turns", "verify") if getattr(task, name)]
    if needs:
        return f"the task {task.id} needs `{needs[0]}`, which is not built yet"
    if task.setup and not any(isinstance(e, Tau2World) for e in task.environments):
        return f"the task {task.id} has a `setup`, and no environment that begins with one"
    if task.grade.needs == "judge":
        if sweep.judge is None:
            return (
                f"the task {task.id} is graded with a judge, and the sweep names none: write "
                "`judge: MODEL` in it, or add --judge MODEL"
            )
    elif task.grade.needs:
        return f"the task {task.id} is graded with a {task.grade.needs}, which is not built yet"
    if task.environments and not harness.speaks:
        return f"the task {task.id} has tools, and the harness {harness.name} speaks to none"
    return None


def _refused_conversation(task: Task, harness: Harness, user: User | None) -> str | None:
    if task.user is None:
        return None
    if user is None:
        return (
            f"the task {task.id} is a conversation, and the sweep does not say who plays the user: "
            "write `user: scripted` or `user: MODEL` in it, or add --user scripted or --user MODEL"
        )
    if any(environment.name == "user" for environment in task.environments):
        return f"the task {task.id} has an environment named `user`, which is the user's own server"
    if harness.conversation in (None, "tool") and not harness.speaks:
        return (
            f"the harness {harness.name} would talk with the user by a tool, and speaks to none; "
            "with `conversation: turns` what it prints is said"
        )
    return user.lacks(task)


def refuse_no_task(sweep: Sweep, suites: list[LoadedSuite]) -> None:
    """Say that `only` matches nothing, with what it could match."""
    names = ", ".join(suite.suite.name for suite in suites)
    some = ", ".join(task.id for task in suites[0].tasks[:3])
    raise InputError(
        f"no task of {names} matches --only {sweep.only!r}", mend=f"ids look like {some}"
    )


def refuse_idle_exclusions(
    sweep: Sweep, suites: list[LoadedSuite], configured: Configurations
) -> None:
    """An exclusion that matches no cell is most likely a misspelt name, and what it meant would run."""
    for number, rule in enumerate(sweep.exclude):
        for key, names in (
            ("suite", [suite.suite.name for suite in suites]),
            ("harness", [harness.harness.name for harness in configured.harnesses]),
            ("model", [model.name for model in configured.models]),
        ):
            pattern = getattr(rule, key)
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise InputError(
                    f"exclude[{number}].{key} is {pattern!r}, which matches nothing in the sweep",
                    mend=f"its {key} names are {', '.join(names)}",
                )
