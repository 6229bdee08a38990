"""A results file into the evidence: a sweep that somebody else ran, with a bundle a simulation.

Bundles and grades are made first, each in a draft that is renamed when it is whole; the sweep's manifest
is written last, by rename. No view counts an imported attempt without its manifest, so an import that
was killed counts for nothing, and the next one goes on where it ended. Keys follow from the file's
content, so that importing it again makes nothing new.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from suites.canonical import digest
from suites.schema import LoadedSuite
from tasks.imports.bundles import write_attempt
from tasks.imports.grades import GRADER, published_spec
from tasks.imports.mapping import Mapping
from tasks.imports.results import Results
from tasks.plans import Plan
from tasks.versions import dyno_version
from warehouse.evidence import Evidence

IMPORT_VERSION = 1
"""Raised when what an import makes of a file changes: it is then imported anew, under new keys."""


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
            write_attempt(results, one, attempt, suite, stamp, evidence, sweep_id)
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
