"""One published simulation as a bundle: the files that a live attempt leaves, and the verdict it has.

Made in a draft beside its place and renamed when it is whole, so that no try is ever half of one.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from suites.schema import LoadedSuite
from tasks.imports.grades import published_grade
from tasks.imports.journals import BLAMES, Journals, detail_of, journals_of
from tasks.imports.mapping import Mapped
from tasks.imports.results import NOT_EVALUABLE, Results, Simulation, seconds_of
from warehouse.evidence import Evidence

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


def write_attempt(
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
