"""From a sweep file to a list of attempt keys: all that will be run, and all that will be refused.

Nothing is spent here, and everything that a person can get wrong comes out here. What is made is a `Plan`
(tasks/plans.py).

The attempt key is a sha256 over canonical JSON of what the agent (or user) can observe. Two equal keys
are one attempt, in whatever sweep they occur; that is what makes a sweep resumable, and two sweeps share
their work.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from suites.canonical import digest
from suites.errors import InputError
from suites.home import PROJECT
from suites.loading import Located, load_harness, load_model
from suites.loading_suites import load_suite
from suites.schema import (
    DEFAULT_LIMITS,
    Functions,
    Harness,
    Limits,
    LoadedSuite,
    Model,
    Suite,
    Sweep,
    Task,
)
from tasks.attempt.environment import check_templates, source_files
from tasks.grade.jobs import job_for
from tasks.plans import Cell, Plan
from tasks.versions import dyno_version, harness_version

KEY_VERSION = 1
"""Raised when the key's make-up changes: old attempts then stay where they are, under old keys."""
BRIDGE_CONTRACT = 1
"""Version of what a bridge shows an agent (texts of refusals, protocol, naming)."""
SEED_POLICY = 1

SUPPORTED_WIRES = ("chat", "none")


def make_plan(
    sweep: Sweep,
    *,
    fresh: bool = False,
    validate_grade: Callable[[Task], None] | None = None,
    need_keys: bool = True,
) -> Plan:
    """Everything a sweep will do.

    Args:
        sweep: as loaded, with the command line's changes applied.
        fresh: give every attempt a new key, so that nothing already done is reused.
        validate_grade: see `load_suite`.
        need_keys: refuse real models whose API key is not in the environment (False to only look).

    Raises:
        InputError: anything that a person can mend; nothing has been written or spent.
    """
    configured, models = check_configurations(sweep, need_keys=need_keys)
    suites = [load_suite(ref, validate_grade) for ref in sweep.suites]
    nonce = secrets.token_hex(8) if fresh else None
    cells: list[dict[str, Any]] = []
    attempts: list[dict[str, Any]] = []
    any_task = False
    for suite in suites:
        tasks = _chosen(suite, sweep)
        if not tasks:
            continue
        any_task = True
        parts = {task.id: _task_part(suite.suite, task) for task in tasks}
        for harness in configured:
            for model in models:
                if _excluded(sweep, suite.suite.name, harness.harness.name, model.name):
                    continue
                cell = _cell(len(cells), suite, harness, model, sweep, tasks)
                cells.append(cell)
                if cell["refused"] is None:
                    attempts += _attempts(cell, tasks, parts, harness, model, sweep, suite, nonce)
    if not any_task:
        _refuse_no_task(sweep, suites)
    _refuse_idle_exclusions(sweep, suites, configured, models)
    if cells and all(cell["refused"] for cell in cells):
        raise InputError(
            f"no cell of the sweep can be run; the first, {Cell(cells[0]).label}, is refused because "
            f"{cells[0]['refused']}"
        )
    if not cells:
        raise InputError("the sweep has no cell left", mend="look at its `exclude` and `only`")
    cut = bool(sweep.only or sweep.limit)
    now = time.time()
    manifest = {
        "format": 1,
        "sweep_id": _sweep_id(sweep.name, now),
        "name": sweep.name,
        "started_at": now,
        "finished_at": None,
        "dyno_version": dyno_version(),
        "definition": sweep.model_dump(mode="json", exclude_defaults=True),
        "only": cut,
        "suites": {
            s.digest: {
                "name": s.suite.name,
                "version": s.suite.version,
                "benchmark": s.suite.benchmark,
                "tasks": len(s.tasks),
            }
            for s in suites
        },
        "cells": cells,
        "attempts": attempts,
        "refusals": [
            {"cell": cell["cell"], "reason": cell["refused"]} for cell in cells if cell["refused"]
        ],
    }
    return Plan(manifest, {suite.digest: suite for suite in suites})


def check_configurations(
    sweep: Sweep, *, need_keys: bool = True
) -> tuple[list[Configured], list[Model]]:
    """The harnesses, made exact, and the models of a sweep: all but its suites.

    Raises:
        InputError: one is missing, wrong, not on this machine, named twice, or has no key.
    """
    located = [load_harness(ref) for ref in sweep.harnesses]
    models = [load_model(ref) for ref in sweep.models]
    _refuse_twins("harness", [h.harness.name for h in located])
    _refuse_twins("model", [model.name for model in models])
    if need_keys:
        _check_keys(models)
    for model in models:
        _check_script(model)
    return [Configured.of(h) for h in located], models


def _sweep_id(name: str, now: float) -> str:
    """Sorts by time; two sweeps started in one second differ."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"{stamp}-{name}-{secrets.token_hex(3)}"


def _refuse_twins(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"the {kind} {name!r} is in the sweep twice, and their results would look like one",
                mend="give one of them another `name`",
            )


def _check_keys(models: list[Model]) -> None:
    for model in models:
        variable = model.api_key_env
        if variable and not os.environ.get(variable):
            raise InputError(
                f"the model {model.name!r} needs its API key in the environment variable {variable}, "
                "which is not set",
                mend=f"export {variable}=…",
            )


def _check_script(model: Model) -> None:
    """Refuse a scripted model whose settings or playbook the scripted process would refuse later."""
    if not model.is_scripted:
        return
    from bridges.scripted_playbook import check_script

    settings = dict(model.scripted)
    if isinstance(
        settings.get("playbook"), str
    ):  # read where the scripted process will look for it
        settings["playbook"] = str(PROJECT / settings["playbook"])
    try:
        check_script({"behaviour": model.behaviour, "settings": settings})
    except ValueError as error:
        raise InputError(
            f"the model {model.name!r}: {error}", mend="docs/models.md has all settings"
        ) from error


def _chosen(suite: LoadedSuite, sweep: Sweep) -> list[Task]:
    tasks = list(suite.tasks)
    if sweep.only:
        tasks = [task for task in tasks if fnmatch.fnmatchcase(task.id, sweep.only)]
    return tasks[: sweep.limit]


def _refuse_no_task(sweep: Sweep, suites: list[LoadedSuite]) -> None:
    names = ", ".join(suite.suite.name for suite in suites)
    some = ", ".join(task.id for task in suites[0].tasks[:3])
    raise InputError(
        f"no task of {names} matches --only {sweep.only!r}", mend=f"ids look like {some}"
    )


def _excluded(sweep: Sweep, suite: str, harness: str, model: str) -> bool:
    return any(
        fnmatch.fnmatchcase(suite, rule.suite)
        and fnmatch.fnmatchcase(harness, rule.harness)
        and fnmatch.fnmatchcase(model, rule.model)
        for rule in sweep.exclude
    )


def _refuse_idle_exclusions(
    sweep: Sweep, suites: list[LoadedSuite], harnesses: list[Configured], models: list[Model]
) -> None:
    """An exclusion that matches no cell is most likely a misspelt name, and what it meant would run."""
    for number, rule in enumerate(sweep.exclude):
        for key, names in (
            ("suite", [suite.suite.name for suite in suites]),
            ("harness", [harness.harness.name for harness in harnesses]),
            ("model", [model.name for model in models]),
        ):
            pattern = getattr(rule, key)
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                raise InputError(
                    f"exclude[{number}].{key} is {pattern!r}, which matches nothing in the sweep",
                    mend=f"its {key} names are {', '.join(names)}",
                )


@dataclass(frozen=True)
class Configured:
    """A harness with all that makes it exact."""

    harness: Harness
    folder: str
    version: str
    sources: dict[str, str]

    @classmethod
    def of(cls, located: Located) -> Configured:
        harness, folder = located.harness, located.folder
        check_templates(harness, f"{folder}/{harness.name}.yaml")
        sources = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in source_files(harness, folder).items()
        }
        return cls(harness, folder, harness_version(harness, folder, sources), sources)

    @cached_property
    def part(self) -> dict[str, Any]:
        """What of it an agent's run depends on."""
        told = self.harness.model_dump(
            mode="json",
            exclude={"name", "description", "telemetry", "version_command", "requires", "folder"},
        )
        if not told["resume"]:  # younger than the keys of older attempts
            del told["resume"]
        return {**told, "version": self.version, "sources": self.sources}

    @property
    def relative_folder(self) -> str:
        path = Path(self.folder)
        return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def _model_part(model: Model) -> dict[str, Any]:
    """What of a model its answers depend on: not its prices, its limits or where it is."""
    part: dict[str, Any] = {
        "id": model.model or model.name,
        "wire": model.wire,
        "parameters": model.parameters,
    }
    if model.is_scripted:
        part |= {"behaviour": model.behaviour, "settings": _settings_part(model.scripted)}
    return part


def _settings_part(settings: dict[str, Any]) -> dict[str, Any]:
    """A scripted model's settings; a playbook counts by its content, not by its path."""
    playbook = settings.get("playbook")
    if isinstance(playbook, str) and (PROJECT / playbook).is_file():
        content = hashlib.sha256((PROJECT / playbook).read_bytes()).hexdigest()
        return {**settings, "playbook": content}
    return settings


def _task_part(suite: Suite, task: Task) -> dict[str, str]:
    """Digests of what can be observed of a task, of its gold (for models scripted from it), and of what
    its grader is asked (by which a grade is known to be this edition's)."""
    seen = task.model_dump(
        mode="json", include={"messages", "turns", "policy", "user", "setup"}, exclude_defaults=True
    )
    seen["environments"] = []
    for environment in task.environments:
        shown = environment.model_dump(mode="json", exclude={"root"})
        for tool in environment.tools:
            if isinstance(environment, Functions) and tool.run and environment.root:
                code = Path(environment.root) / tool.run.partition(":")[0]
                shown.setdefault("code", {})[tool.run] = hashlib.sha256(
                    code.read_bytes()
                ).hexdigest()
        seen["environments"].append(shown)
    gold = task.oracle.model_dump(mode="json") if task.oracle else None
    for call in gold["calls"] + [gold["vandal"] or {}] if gold else ():
        if call.get("requestor") == "agent":  # younger than the keys of older attempts
            del call["requestor"]
    asked = job_for(suite, task, Path(), "").spec_hash
    return {"seen": digest(seen), "gold": digest(gold), "spec_hash": asked}


def _cell(
    number: int,
    suite: LoadedSuite,
    harness: Configured,
    model: Model,
    sweep: Sweep,
    tasks: list[Task],
) -> dict[str, Any]:
    dataset = suite.suite.dataset
    unmetered = harness.harness.wire == "none" or model.endpoint == "none"
    configuration = {
        "harness": harness.part,
        "model": _model_part(model),
        "isolation": sweep.isolation,
        "limits": sweep.limits.over(harness.harness.limits).model_dump(exclude_none=True),
    }
    config_hash = digest(configuration)[:16]
    kind = "scripted" if model.is_scripted else "none" if model.endpoint == "none" else "http"
    stamp = {
        "harness": harness.harness.name,
        "harness_version": harness.version,
        "mode": harness.harness.mode,
        "config_hash": config_hash,
        "model": model.name,
        "model_id": model.model or model.name,
        "parameters": model.parameters,
        "endpoint_kind": kind,
        "suite": suite.suite.name,
        "suite_version": suite.suite.version,
        "dataset_source": dataset.source,
        "dataset_version": dataset.version,
        "dataset_sha256": dataset.sha256,
        "dataset_date": dataset.date,
        "user_model": None,
        "bridge_contract": BRIDGE_CONTRACT,
        "isolation": sweep.isolation,
        "sealed": False,
        "dyno_version": dyno_version(),
        "unmetered": unmetered,
    }
    return {
        "cell": number,
        "benchmark": suite.suite.benchmark,
        "suite": suite.suite.name,
        "suite_version": suite.suite.version,
        "suite_digest": suite.digest,
        "dataset_version": dataset.version,
        "grader": suite.suite.grader,
        "harness": harness.harness.name,
        "harness_version": harness.version,
        "mode": harness.harness.mode,
        "model": model.name,
        "model_id": model.model or model.name,
        "user_model": None,
        "config_hash": config_hash,
        "isolation": sweep.isolation,
        "sealed": False,
        "tasks": len(tasks),
        "stamp": stamp,
        "prices": model.prices.model_dump() if model.prices else None,
        "refused": _refusal(suite, harness.harness, model, sweep, tasks),
        "definitions": {
            "harness": harness.harness.model_dump(
                mode="json", exclude_defaults=True, exclude={"folder"}
            ),
            "harness_dir": harness.relative_folder,
            "model": model.model_dump(mode="json", exclude_defaults=True),
        },
    }


def _refusal(
    suite: LoadedSuite, harness: Harness, model: Model, sweep: Sweep, tasks: list[Task]
) -> str | None:
    """Why this cell cannot be run, in words; None if it can."""
    if sweep.isolation != "process":
        return f"isolation {sweep.isolation!r} is not built yet; `process` is"
    if harness.phases or harness.conversation:
        return f"the harness {harness.name} runs in phases or turns, which are not built yet"
    if harness.wire not in SUPPORTED_WIRES:
        return f"the harness {harness.name} speaks the {harness.wire} wire; the gateway speaks chat"
    if harness.wire != "none" and model.endpoint != "none" and harness.wire != model.wire:
        return f"the harness speaks the {harness.wire} wire and the model {model.wire}"
    if harness.wire != "none" and model.endpoint == "none":
        return f"the model {model.name} is only a label, and the harness needs an endpoint"
    for task in tasks:
        limits = resolved_limits(sweep, suite, task, harness)
        if limits.dollars and model.prices is None and harness.wire != "none":
            return f"a limit in dollars needs prices, and the model {model.name} has none"
        needs = [name for name in ("turns", "user", "setup", "verify") if getattr(task, name)]
        if needs:
            return f"the task {task.id} needs `{needs[0]}`, which is not built yet"
        if task.grade.needs:
            return f"the task {task.id} is graded with a {task.grade.needs}, which is not built yet"
        if task.environments and not harness.speaks:
            return f"the task {task.id} has tools, and the harness {harness.name} speaks to none"
    return None


def _attempts(
    cell: dict[str, Any],
    tasks: list[Task],
    parts: dict[str, dict[str, str]],
    harness: Configured,
    model: Model,
    sweep: Sweep,
    suite: LoadedSuite,
    nonce: str | None,
) -> Iterator[dict[str, Any]]:
    harness_part, model_part = digest(harness.part), digest(_model_part(model))
    for task in tasks:
        limits = resolved_limits(sweep, suite, task, harness.harness)
        for repeat in range(sweep.repeats):
            seed = attempt_seed(task.id, repeat, sweep.seed)
            key = {
                "key": KEY_VERSION,
                "bridge": BRIDGE_CONTRACT,
                "task": parts[task.id]["seen"],
                "limits": limits.model_dump(),
                "harness": harness_part,
                "model": model_part,
                "isolation": sweep.isolation,
                "seed": seed,
                "repeat": repeat,
            }
            if model.is_scripted:
                key["gold"] = parts[task.id]["gold"]
            if nonce:
                key["fresh"] = nonce
            yield {
                "key": digest(key),
                "cell": cell["cell"],
                "task_id": task.id,
                "repeat": repeat,
                "seed": seed,
                "spec_hash": parts[task.id]["spec_hash"],
            }


def resolved_limits(sweep: Sweep, suite: LoadedSuite, task: Task, harness: Harness) -> Limits:
    """The limits of one attempt: sweep > suite > task > harness > dyno's own."""
    return sweep.limits.over(suite.suite.limits, task.limits, harness.limits, DEFAULT_LIMITS)


def attempt_seed(task_id: str, repeat: int, sweep_seed: int) -> int:
    """31 bits from the task, the repeat and the sweep's seed: the same on every machine."""
    text = f"{SEED_POLICY}/{sweep_seed}/{task_id}/{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def with_changes(sweep: Sweep, **given: Any) -> Sweep:
    """The sweep with what was given on the command line or in the UI's form; None changes nothing."""
    changes = {key: value for key, value in given.items() if value is not None}
    return Sweep.model_validate(sweep.model_dump() | changes)
