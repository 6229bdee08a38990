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
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from suites.canonical import canonical_json, digest
from suites.errors import InputError
from suites.loading_suites import load_suite
from suites.schema import Environment, Functions, LoadedSuite, Model, Suite, Sweep, Task
from tasks.configurations import Configurations, Configured, check_configurations, model_part
from tasks.grade.graders import asked_of
from tasks.plans import Cell, Plan
from tasks.refusals import refusal, refuse_idle_exclusions, refuse_no_task, resolved_limits
from tasks.users import User
from tasks.versions import dyno_version

KEY_VERSION = 1
"""Raised when the key's make-up changes: old attempts then stay where they are, under old keys."""
BRIDGE_CONTRACT = 1
"""Version of what a bridge shows an agent (texts of refusals, protocol, naming)."""
CONVERSATION_CONTRACT = 1
"""Version of how a harness is told of a conversation; in the keys of conversations only."""
SEED_POLICY = 1


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
    configured = check_configurations(sweep, need_keys=need_keys)
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
        shared: dict[int, bytes] = {}
        judge = configured.judge
        parts = {task.id: _task_part(suite.suite, task, shared, judge) for task in tasks}
        for harness in configured.harnesses:
            for model in configured.models:
                if _excluded(sweep, suite.suite.name, harness.harness.name, model.name):
                    continue
                cell = _cell(len(cells), suite, harness, model, sweep, tasks, configured)
                cells.append(cell)
                if cell["refused"] is None:
                    attempts += _attempts(
                        cell, tasks, parts, harness, model, sweep, suite, configured.user, nonce
                    )
    if not any_task:
        refuse_no_task(sweep, suites)
    refuse_idle_exclusions(sweep, suites, configured)
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


def _sweep_id(name: str, now: float) -> str:
    """Sorts by time; two sweeps started in one second differ."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    return f"{stamp}-{name}-{secrets.token_hex(3)}"


def _chosen(suite: LoadedSuite, sweep: Sweep) -> list[Task]:
    tasks = list(suite.tasks)
    if sweep.only:
        tasks = [task for task in tasks if fnmatch.fnmatchcase(task.id, sweep.only)]
    return tasks[: sweep.limit]


def _excluded(sweep: Sweep, suite: str, harness: str, model: str) -> bool:
    return any(
        fnmatch.fnmatchcase(suite, rule.suite)
        and fnmatch.fnmatchcase(harness, rule.harness)
        and fnmatch.fnmatchcase(model, rule.model)
        for rule in sweep.exclude
    )


def _task_part(
    suite: Suite, task: Task, shared: dict[int, bytes], judge: Model | None
) -> dict[str, str]:
    """Digests of what can be observed of a task, of its gold (for models scripted from it), and of what
    its grader is asked (by which a grade is known to be this edition's).

    Args:
        shared: policies and environments in canonical form, by their identity: the thousands of tasks
            of a suite may share one of 60 kB.
        judge: the sweep's; a part of what is asked where one has to judge the task.
    """
    seen = task.model_dump(
        mode="json", include={"messages", "turns", "user", "setup"}, exclude_defaults=True
    )
    parts = {name: canonical_json(value) for name, value in seen.items()}
    for name, value in (("policy", task.policy), ("environments", task.environments)):
        if value is None:
            continue
        if id(value) not in shared:
            plain = value if isinstance(value, str) else [_shown(e) for e in value]
            shared[id(value)] = canonical_json(plain)
        parts[name] = shared[id(value)]
    gold = task.oracle.model_dump(mode="json") if task.oracle else None
    for call in gold["calls"] + [gold["vandal"] or {}] if gold else ():
        if call.get("requestor") == "agent":  # younger than the keys of older attempts
            del call["requestor"]
    return {
        "seen": _digest_of(parts),
        "gold": digest(gold),
        "spec_hash": asked_of(suite, task, judge),
    }


def _shown(environment: Environment) -> dict[str, Any]:
    """An environment as it can be observed, the code of its tools by content."""
    shown = environment.model_dump(mode="json", exclude={"root"})
    for tool in environment.tools:
        if isinstance(environment, Functions) and tool.run and environment.root:
            code = Path(environment.root) / tool.run.partition(":")[0]
            shown.setdefault("code", {})[tool.run] = hashlib.sha256(code.read_bytes()).hexdigest()
    return shown


def _digest_of(members: dict[str, bytes]) -> str:
    """`digest` of an object whose members are in canonical form already."""
    text = b",".join(canonical_json(name) + b":" + members[name] for name in sorted(members))
    return hashlib.sha256(b"{" + text + b"}").hexdigest()


def _cell(
    number: int,
    suite: LoadedSuite,
    harness: Configured,
    model: Model,
    sweep: Sweep,
    tasks: list[Task],
    configured: Configurations,
) -> dict[str, Any]:
    dataset = suite.suite.dataset
    unmetered = harness.harness.wire == "none" or model.endpoint == "none"
    user = configured.user if any(task.user for task in tasks) else None
    # A grader of conversations may ask for a judge by what its spec says, which only it can read.
    may_judge = any(task.user or task.grade.needs == "judge" for task in tasks)
    judge = configured.judge if may_judge else None
    configuration = {
        "harness": harness.part,
        "model": model_part(model),
        "isolation": sweep.isolation,
        "limits": sweep.limits.over(harness.harness.limits).model_dump(exclude_none=True),
    }
    if user:
        configuration["user"] = user.part(model_part(user.model) if user.model else None)
    config_hash = digest(configuration)[:16]
    kind = "scripted" if model.is_scripted else "none" if model.endpoint == "none" else "http"
    stamp: dict[str, Any] = {
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
        "user_model": user.name if user else None,
        "bridge_contract": BRIDGE_CONTRACT,
        "isolation": sweep.isolation,
        "sealed": False,
        "dyno_version": dyno_version(),
        "unmetered": unmetered,
    }
    if harness.harness.native_tools:
        stamp["native_tools"] = list(harness.harness.native_tools)
    definitions: dict[str, Any] = {
        "harness": harness.harness.model_dump(
            mode="json", exclude_defaults=True, exclude={"folder"}
        ),
        "harness_dir": harness.relative_folder,
        "model": model.model_dump(mode="json", exclude_defaults=True),
    }
    if user:
        definitions["user"] = user.definition
    if judge:
        definitions["judge"] = judge.model_dump(mode="json", exclude_defaults=True)
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
        "user_model": user.name if user else None,
        "config_hash": config_hash,
        "isolation": sweep.isolation,
        "sealed": False,
        "tasks": len(tasks),
        "stamp": stamp,
        "prices": model.prices.model_dump() if model.prices else None,
        "refused": refusal(suite, harness.harness, model, sweep, tasks, configured.user),
        "definitions": definitions,
    }


def _attempts(
    cell: dict[str, Any],
    tasks: list[Task],
    parts: dict[str, dict[str, str]],
    harness: Configured,
    model: Model,
    sweep: Sweep,
    suite: LoadedSuite,
    user: User | None,
    nonce: str | None,
) -> Iterator[dict[str, Any]]:
    asked = digest(model_part(model))
    users_model = model_part(user.model) if user and user.model else None
    for task in tasks:
        limits = resolved_limits(sweep, suite, task, harness.harness)
        for repeat in range(sweep.repeats):
            seed = attempt_seed(task.id, repeat, sweep.seed)
            key = {
                "key": KEY_VERSION,
                "bridge": BRIDGE_CONTRACT,
                "task": parts[task.id]["seen"],
                "limits": limits.model_dump(),
                "harness": harness.digest,
                "model": asked,
                "isolation": sweep.isolation,
                "seed": seed,
                "repeat": repeat,
            }
            if model.is_scripted:
                key["gold"] = parts[task.id]["gold"]
            if task.user and user:
                told = user.part(users_model, task)
                key["user"] = {**told, "contract": CONVERSATION_CONTRACT}
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


def attempt_seed(task_id: str, repeat: int, sweep_seed: int) -> int:
    """31 bits from the task, the repeat and the sweep's seed: the same on every machine."""
    text = f"{SEED_POLICY}/{sweep_seed}/{task_id}/{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def with_changes(sweep: Sweep, **given: Any) -> Sweep:
    """The sweep with what was given on the command line or in the UI's form; None changes nothing."""
    changes = {key: value for key, value in given.items() if value is not None}
    return Sweep.model_validate(sweep.model_dump() | changes)
