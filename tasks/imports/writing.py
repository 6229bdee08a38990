"""A results file into the evidence: a sweep that somebody else ran, with a bundle a simulation.

Bundles and grades are made first, each in a draft that is renamed when it is whole; the sweep's manifest
is written last, by rename. No view counts an imported attempt without its manifest, so an import that
was killed counts for nothing, and the next one goes on where it ended. Keys follow from the file's
content, so that importing it again makes nothing new.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from suites.canonical import digest
from suites.schema import LoadedSuite
from tasks.imports.grades import GRADER, published_grade, published_spec
from tasks.imports.journals import BLAMES, Journals, detail_of, journals_of
from tasks.imports.mapping import Mapped, Mapping
from tasks.imports.results import NOT_EVALUABLE, Results, Simulation, seconds_of
from tasks.plans import Plan
from tasks.versions import dyno_version
from warehouse.evidence import Evidence

IMPORT_VERSION = 1
"""Raised when what an import makes of a file changes: it is then imported anew, under new keys."""
PLAIN_BYTES = 1_000_000
"""A simulation larger than this is kept compressed."""

ENDINGS = {
    "user_stop": "clean",
    "agent_stop": "clean",
    "judge_stop": "clean",
    "max_steps": "budget",
    "too_many_errors": "budget",
    "timeout": "timeout",
}
"""Upstream's termination reasons as endings; all others are `crashed`."""


@dataclass(frozen=True)
class Imported:
    """What an import made.

    Attributes:
        sweep_id: of the sweep it stands for.
        new: attempts that were not there before.
        again: True if the sweep was there already.
    """

    sweep_id: str
    new: int
    again: bool


def write_import(
    results: Results,
    mapping: Mapping,
    suite: LoadedSuite,
    evidence: Evidence,
    name: str | None = None,
) -> Imported:
    """Write all of a results file as evidence, or what of it is missing.

    Args:
        results: the file.
        mapping: its simulations' tasks in the suite.
        suite: the suite of its domain.
        evidence: where to.
        name: what the agent is called in results; None: as the file calls its implementation.
    """
    stamp = _stamp(results, suite, name)
    attempts = _attempts(results, mapping, suite, stamp)
    known = _known_sweep(evidence, results, suite, stamp)
    sweep_id = known or _sweep_id(results, suite, stamp)
    new = 0
    for one, attempt in zip(mapping.all, attempts, strict=True):
        if not evidence.is_done(attempt["key"]):
            _write_attempt(results, one, attempt, suite, stamp, evidence, sweep_id)
            new += 1
    if known is None:
        manifest = _manifest(results, mapping, suite, stamp, attempts, sweep_id)
        Plan(manifest, {suite.digest: suite}).write(evidence)
    return Imported(sweep_id, new, known is not None)


def imported_sweeps(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """Manifests of all imports by sweep id, oldest first; broken manifests are none."""
    found = {}
    for path in sorted((evidence.root / "sweeps").glob("*-import-*.json")):
        try:
            manifest = json.loads(path.read_bytes())
        except ValueError:
            continue
        if manifest.get("origin") == "imported":
            found[path.stem] = manifest
    return found


# ---------------------------------------------------------------- the sweep


def _stamp(results: Results, suite: LoadedSuite, name: str | None) -> dict[str, Any]:
    agent, user = results.info["agent_info"], results.info["user_info"]
    header = suite.suite
    model = str(agent.get("llm") or "unknown")
    configuration = {"file": results.sha256, "agent": agent, "user": user}
    return {
        "origin": "imported",
        "harness": name or str(agent.get("implementation") or "unknown"),
        "harness_version": results.commit,
        "mode": "published",
        "config_hash": digest(configuration)[:16],
        "model": model,
        "model_id": model,
        "parameters": agent.get("llm_args") or {},
        "endpoint_kind": "none",
        "suite": header.name,
        "suite_version": header.version,
        "dataset_source": header.dataset.source,
        "dataset_version": header.dataset.version,
        "dataset_sha256": header.dataset.sha256,
        "dataset_date": header.dataset.date,
        "user_model": str(user.get("llm") or user.get("implementation") or "unknown"),
        "bridge_contract": None,
        "isolation": "none",
        "sealed": None,
        "dyno_version": dyno_version(),
        "unmetered": True,
    }


def _attempts(
    results: Results, mapping: Mapping, suite: LoadedSuite, stamp: dict[str, Any]
) -> list[dict[str, Any]]:
    """The manifest's line of each simulation.

    A trial is a repeat. Simulations without a task keep the grouping of the file, under names that no
    task has, so that the published figure is over all of them.
    """
    taken: set[tuple[str, int]] = set()
    found = []
    for one in mapping.all:
        task_id = one.task or "unmapped-" + "-".join(one.simulation.named.split())
        repeat = one.simulation.trial
        while (task_id, repeat) in taken:
            if one.task is None:
                task_id += "'"
            else:
                repeat += 1
        taken.add((task_id, repeat))
        told = [
            IMPORT_VERSION,
            results.sha256,
            one.simulation.number,
            suite.digest,
            task_id,
            repeat,
        ]
        found.append(
            {
                "key": digest({"import": [*told, stamp["harness"]]}),
                "cell": 0,
                "task_id": task_id,
                "repeat": repeat,
                "seed": one.simulation.raw.get("seed"),
                "spec_hash": published_spec(results),
            }
        )
    return found


def _sweep_id(results: Results, suite: LoadedSuite, stamp: dict[str, Any]) -> str:
    """Sorts by time, as those of our own; two imports of one second differ."""
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    told = digest([results.sha256, suite.digest, stamp["harness"]])
    return f"{moment}-import-{suite.suite.name}-{told[:6]}"


def _known_sweep(
    evidence: Evidence, results: Results, suite: LoadedSuite, stamp: dict[str, Any]
) -> str | None:
    """The sweep that an earlier import of this very file made of this very suite."""
    for sweep_id, manifest in imported_sweeps(evidence).items():
        cell = manifest["cells"][0]
        if (
            manifest["imported"]["sha256"] == results.sha256
            and manifest["imported"]["version"] == IMPORT_VERSION
            and cell["suite_digest"] == suite.digest
            and cell["harness"] == stamp["harness"]
        ):
            return sweep_id
    return None


def _manifest(
    results: Results,
    mapping: Mapping,
    suite: LoadedSuite,
    stamp: dict[str, Any],
    attempts: list[dict[str, Any]],
    sweep_id: str,
) -> dict[str, Any]:
    header, now = suite.suite, time.time()
    names = ("harness", "harness_version", "mode", "model", "model_id", "user_model")
    cell = {
        "cell": 0,
        "origin": "imported",
        "benchmark": header.benchmark,
        "suite": header.name,
        "suite_version": header.version,
        "suite_digest": suite.digest,
        "dataset_version": header.dataset.version,
        "grader": f"{GRADER}@{results.commit}",
        **{key: stamp[key] for key in (*names, "config_hash", "isolation", "sealed")},
        "tasks": len({attempt["task_id"] for attempt in attempts}),
        "stamp": stamp,
        "prices": None,
        "refused": None,
        "definitions": {},
    }
    return {
        "format": 1,
        "sweep_id": sweep_id,
        "name": f"import-{header.name}",
        "origin": "imported",
        "imported": {
            "version": IMPORT_VERSION,
            "file": results.path.name,
            "sha256": results.sha256,
            "info": _short_info(results.info),
            "names_hold": mapping.names_hold,
            "simulations": [
                {
                    "simulation": one.simulation.number,
                    "named": one.simulation.named,
                    "task_id": one.task,
                    "by": one.by,
                }
                for one in mapping.all
            ],
        },
        "started_at": now,
        "finished_at": now,
        "dyno_version": dyno_version(),
        "definition": {
            "name": f"import-{header.name}",
            "description": f"imported from {results.path.name}",
            "suites": [header.name],
            "harnesses": [stamp["harness"]],
            "models": [stamp["model"]],
            "repeats": results.trials,
        },
        "only": False,
        "suites": {
            suite.digest: {
                "name": header.name,
                "version": header.version,
                "benchmark": header.benchmark,
                "tasks": len(suite.tasks),
            }
        },
        "cells": [cell],
        "attempts": attempts,
        "refusals": [],
    }


def _short_info(info: dict[str, Any]) -> dict[str, Any]:
    """What upstream says of the run, without the texts that every file has alike."""
    left_out = {"environment_info": {"policy", "tool_defs"}}
    left_out["user_info"] = {"global_simulation_guidelines"}
    return {
        key: {k: v for k, v in value.items() if k not in left_out.get(key, ())}
        if isinstance(value, dict)
        else value
        for key, value in info.items()
    }


# ---------------------------------------------------------------- one simulation


def _write_attempt(
    results: Results,
    one: Mapped,
    attempt: dict[str, Any],
    suite: LoadedSuite,
    stamp: dict[str, Any],
    evidence: Evidence,
    sweep_id: str,
) -> None:
    """The bundle of one simulation and its published grade, then the marker by which it is done."""
    key = attempt["key"]
    folder = evidence.attempt_folder(key)
    target = folder / "try-0001"
    if not (target / "attempt.json").is_file():
        draft = folder / f".import-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "final").mkdir(parents=True)
        try:
            _fill(draft, results, one, attempt, suite, stamp, evidence, sweep_id)
            draft.rename(target)
        except OSError:
            # Another import of the file was first: what it made is the same.
            if not (target / "attempt.json").is_file():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    bundle = evidence.bundle(target)
    assert bundle is not None
    evidence.write_grade(key, published_grade(results, one.simulation, bundle.hash))
    evidence.publish(bundle)
    for left in folder.glob(".import-*"):  # of an import that was killed
        shutil.rmtree(left, ignore_errors=True)


def _fill(
    draft: Path,
    results: Results,
    one: Mapped,
    attempt: dict[str, Any],
    suite: LoadedSuite,
    stamp: dict[str, Any],
    evidence: Evidence,
    sweep_id: str,
) -> None:
    """All files of a bundle, `attempt.json` last."""
    simulation = one.simulation
    task = next((task for task in suite.tasks if task.id == one.task), None)
    worlds = [env.name for env in suite.tasks[0].environments if env.kind == "tau2"]
    journals = journals_of(simulation, task, worlds[0] if worlds else "world")
    for name, rows in (("bridge", journals.bridge), ("conversation", journals.conversation)):
        lines = b"".join(_line(row) for row in rows)
        if lines:
            (draft / f"{name}.jsonl").write_bytes(lines)
    whole = json.dumps(simulation.raw, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    if len(whole) > PLAIN_BYTES:
        (draft / "final" / "simulation.json.gz").write_bytes(gzip.compress(whole, mtime=0))
    else:
        (draft / "final" / "simulation.json").write_bytes(whole)
    identity = {
        "benchmark": suite.suite.benchmark,
        "suite": suite.suite.name,
        "suite_version": suite.suite.version,
        "suite_digest": suite.digest,
        "task_id": attempt["task_id"],
        "category": task.category if task else _category_of_unmapped(suite),
        "difficulty": task.difficulty if task else None,
        "repeat": attempt["repeat"],
    }
    evidence.finish(
        draft,
        {
            "attempt_key": attempt["key"],
            "try": 1,
            "sweep_id": sweep_id,
            "task": identity,
            "stamp": {**stamp, "seed": attempt["seed"], "date": simulation.raw.get("end_time")},
            "imported": {
                "file": results.path.name,
                "sha256": results.sha256,
                "simulation": simulation.number,
                "id": simulation.raw.get("id"),
                "named": simulation.named,
                "mapped_by": one.by if one.task else None,
                "unmapped_because": None if one.task else one.by,
            },
            **_end(simulation, journals),
        },
    )


def _end(simulation: Simulation, journals: Journals) -> dict[str, Any]:
    """How it ended and what it took, as far as the file says."""
    raw = simulation.raw
    started, ended = seconds_of(raw.get("start_time")), seconds_of(raw.get("end_time"))
    lasted = raw.get("duration")
    if lasted is None and started is not None and ended is not None:
        lasted = ended - started
    blame = BLAMES.get(simulation.reason)
    if simulation.reason in NOT_EVALUABLE:
        blame = "infra"
    return {
        "prices": None,
        "ending": ENDINGS.get(simulation.reason, "crashed"),
        "detail": detail_of(simulation),
        "blame": blame,
        "error": None,
        "exit_code": None,
        "signal": None,
        "left_processes": None,
        "timings": {
            "started_at": started,
            "ended_at": ended,
            "wall_s": lasted,
            "startup_s": None,
            "waited_s": None,
            "cpu_s": None,
        },
        "host": {
            "tool_calls": sum(
                row["event"] == "call" and row["requestor"] == "agent" for row in journals.bridge
            ),
            "tool_errors": sum(
                row["event"] == "result" and row["is_error"] and row["requestor"] == "agent"
                for row in journals.bridge
            ),
            "model_calls": None,
            "usage": None,
            "cost": None,
            "budget": None,
            "dropped": False,
            "upstream_error": None,
            "conversation": journals.ended(simulation),
            "user": None,
        },
        "output": {"stdout_bytes": 0, "stderr_bytes": 0, "stdout_cut": 0, "stderr_cut": 0},
        "reported": {
            "cost": raw.get("agent_cost"),
            "user_cost": raw.get("user_cost"),
            "output": _output_tokens(simulation),
        },
    }


def _output_tokens(simulation: Simulation) -> int | None:
    """What the agent generated, where every message of its own says so (a greeting is not generated)."""
    own = [m for m in simulation.messages[1:] if m["role"] == "assistant"]
    counts = []
    for message in own:
        count = (message.get("usage") or {}).get("completion_tokens")
        if not isinstance(count, int):
            return None
        counts.append(count)
    return sum(counts) if counts else None


def _category_of_unmapped(suite: LoadedSuite) -> str:
    """The suite's category where it has only one; else nobody can say which."""
    categories = {task.category for task in suite.tasks}
    return categories.pop() if len(categories) == 1 else "unmapped"


def _line(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row) + b"\n"
    except TypeError:  # half a surrogate pair: kept as visible text, as the host's journal does
        return orjson.dumps(_visible(row)) + b"\n"


def _visible(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _visible(item) for key, item in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
