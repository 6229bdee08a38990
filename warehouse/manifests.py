"""What was planned and what was asked, as rows: sweep manifests, suite snapshots and grade files.

Each reader takes one file (or folder) and gives the rows of the tables that it fills. What cannot be read
raises `Unreadable` with the path and what was found there; the loader lists that and goes on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from warehouse.calls import Mark
from warehouse.rows import CONFIGURATION, Rows, cell_id, configuration_id

FORMAT = 1
"""Newest manifest format that is understood."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unreadable(Exception):  # noqa: N818 - the condition, as CorruptBundle is
    """A file of the evidence that is not what it should be.

    Attributes:
        path: the file.
        reason: what was found.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


def sweep_rows(path: Path, data: bytes) -> Rows:
    """Rows of `sweeps`, `sweep_cells`, `cells`, `configurations`, `suites` and `planned`.

    Args:
        path: the manifest, named in errors.
        data: its bytes.

    Returns:
        One `sweeps` row and what belongs to it. `suites` rows hold only what the manifest knows; the
        suite's snapshot says more.
    """
    with _named(path):
        manifest = _object(path, data)
        if manifest["format"] > FORMAT:
            raise Unreadable(path, f"format {manifest['format']}; this dyno reads up to {FORMAT}")
        sweep = manifest["sweep_id"]
        cells = {int(cell["cell"]): cell for cell in manifest["cells"]}
        names = {number: cell_id(cell["suite_digest"], cell) for number, cell in cells.items()}
        return {
            "sweeps": [
                {
                    "sweep_id": sweep,
                    "name": manifest["name"],
                    "started_at": moment(manifest.get("started_at")),
                    "finished_at": moment(manifest.get("finished_at")),
                    "dyno_version": manifest.get("dyno_version"),
                    "cut": bool(manifest.get("only")),
                    "definition": manifest.get("definition"),
                    "manifest_sha256": hashlib.sha256(data).hexdigest(),
                }
            ],
            "sweep_cells": [_sweep_cell(sweep, cell) for cell in cells.values()],
            "cells": [_cell(cell) for cell in cells.values()],
            "configurations": [_configuration(cell) for cell in cells.values()],
            "suites": [
                {
                    "suite_digest": suite_digest,
                    "benchmark": suite["benchmark"],
                    "suite": suite["name"],
                    "suite_version": suite["version"],
                    "tasks": int(suite["tasks"]),
                    "weights": {},
                }
                for suite_digest, suite in manifest["suites"].items()
            ],
            "planned": [
                {
                    "sweep_id": sweep,
                    "cell": attempt["cell"],
                    "cell_id": names[attempt["cell"]],
                    "attempt_key": attempt["key"],
                    "task_id": attempt["task_id"],
                    "repeat": int(attempt["repeat"]),
                    "seed": None if attempt.get("seed") is None else int(attempt["seed"]),
                    "spec_hash": attempt.get("spec_hash"),
                }
                for attempt in manifest["attempts"]
            ],
        }


def suite_rows(folder: Path) -> Rows:
    """Rows of `suites` and `tasks` from `evidence/suites/<digest>/`."""
    with _named(folder):
        suite = yaml.load((folder / "suite.yaml").read_bytes(), Loader=_Loader)
        dataset = suite["dataset"]
        lines = (folder / "tasks.jsonl").read_bytes().splitlines()
        tasks = [
            _task(folder.name, position, json.loads(line))
            for position, line in enumerate(line for line in lines if line.strip())
        ]
        return {
            "suites": [
                {
                    "suite_digest": folder.name,
                    "benchmark": suite["benchmark"],
                    "suite": suite["name"],
                    "suite_version": str(suite["version"]),
                    "description": suite.get("description"),
                    "dataset_source": dataset["source"],
                    "dataset_version": str(dataset["version"]),
                    "dataset_sha256": dataset.get("sha256"),
                    "dataset_date": _text(dataset.get("date")),
                    "licence": dataset.get("licence"),
                    "grader": suite.get("grader"),
                    "weights": suite.get("weights") or {},
                    "tasks": len(tasks),
                }
            ],
            "tasks": tasks,
        }


def grade_rows(path: Path) -> Rows:
    """Rows of `grades` and `checks` from one grade file, and of `model_calls` if a model was its judge.

    A judge's record is read with the grade that names it, so that what it cost is in once.
    """
    with _named(path):
        grade = _object(path, path.read_bytes())
        key, name = path.parent.parent.name, path.name
        error, judge = grade.get("error") or {}, grade.get("judge") or {}
        if grade["solved"] not in (True, False, None) or not isinstance(grade["bundle_hash"], str):
            raise Unreadable(path, f"`solved` is {grade['solved']!r}: neither true, false nor null")
        return {
            "grades": [
                {
                    "attempt_key": key,
                    "grade_file": name,
                    "grader": str(grade["grader"]),
                    "grader_version": str(grade["grader_version"]),
                    "spec_hash": grade.get("spec_hash"),
                    "bundle_hash": grade["bundle_hash"],
                    "graded_at": moment(grade.get("graded_at")),
                    "solved": grade["solved"],
                    "score": _number(grade.get("score")),
                    "error_type": _text(error.get("type")) or ("unnamed" if error else None),
                    "error_message": _text(error.get("message")),
                    "judge_model": _text(judge.get("model")),
                    "judge_calls": judge.get("model_calls"),
                    "judge_cost": _number(judge.get("cost")),
                }
            ],
            "model_calls": _judges_calls(path, judge, grade["bundle_hash"]),
            "checks": [
                {
                    "attempt_key": key,
                    "grade_file": name,
                    "position": position,
                    "name": str(check["name"]),
                    "passed": None if check["passed"] is None else bool(check["passed"]),
                    "weight": _number(check.get("weight")),
                    "scope": _text(check.get("scope")),
                    "headline": bool(check.get("headline")),
                    "error_type": _text(check.get("error_type")),
                    "finding": _text(check.get("finding")),
                }
                for position, check in enumerate(grade.get("checks") or ())
            ],
        }


def moment(value: Any) -> str | None:
    """UTC as DuckDB reads it, from ISO text or Unix seconds; None stays None.

    Raises:
        ValueError: no such moment.
    """
    if value is None:
        return None
    if isinstance(value, int | float):
        found = datetime.fromtimestamp(value, UTC)
    else:
        found = datetime.fromisoformat(value)
    found = found.astimezone(UTC) if found.tzinfo else found
    return found.replace(tzinfo=None).isoformat(" ")


# ---------------------------------------------------------------- parts


def _sweep_cell(sweep: str, cell: dict[str, Any]) -> dict[str, Any]:
    endpoint = ((cell.get("definitions") or {}).get("model") or {}).get("endpoint") or ""
    return {
        "sweep_id": sweep,
        "cell": cell["cell"],
        "cell_id": cell_id(cell["suite_digest"], cell),
        "behaviour": endpoint.partition(":")[2] if endpoint.startswith("scripted:") else None,
        "sealed": None if cell.get("sealed") is None else bool(cell["sealed"]),
        **{
            key: cell.get(key)
            for key in ("grader", "model_id", "prices", "refused", "origin", "stamp")
        },
    }


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    names = ("suite_digest", "benchmark", "suite", "suite_version", "dataset_version")
    return {
        "cell_id": cell_id(cell["suite_digest"], cell),
        "configuration_id": configuration_id(cell),
        **{name: cell.get(name) for name in names},
    }


def _configuration(cell: dict[str, Any]) -> dict[str, Any]:
    return {
        "configuration_id": configuration_id(cell),
        **{name: cell.get(name) for name in CONFIGURATION},
    }


def _judges_calls(path: Path, judge: dict[str, Any], bundle_hash: str) -> list[dict[str, Any]]:
    """Rows of `model_calls` from the record that a grade names; none where it names none."""
    record = judge.get("record")
    if record is None:
        return []
    if not re.fullmatch(r"judge-[1-9][0-9]*", str(record)):
        raise Unreadable(path, f"names {record!r} as the record of its judge")
    journal = path.parent.parent / record / "model.jsonl"
    data = journal.read_bytes()
    if hashlib.sha256(data).hexdigest() != judge["sha256"]:
        raise Unreadable(journal, "its hash is not the one in the grade")
    mark = Mark(path.parent.parent.name, None, bundle_hash)
    rows = [json.loads(line) for line in data.splitlines() if line]
    answers = {row["call"]: row for row in rows if row["event"] == "response"}
    number = int(record.removeprefix("judge-"))
    return [
        {**mark.model_call(row, answers.get(row["seq"])), "judge": number}
        for row in rows
        if row["event"] == "request"
    ]


def _task(suite_digest: str, position: int, task: dict[str, Any]) -> dict[str, Any]:
    return {
        "suite_digest": suite_digest,
        "task_id": task["id"],
        "position": position,
        "category": task.get("category") or "all",
        "difficulty": task.get("difficulty"),
        "grader": task["grade"]["grader"],
        "unsolvable": (task.get("oracle") or {}).get("unsolvable"),
    }


def _object(path: Path, data: bytes) -> dict[str, Any]:
    value = json.loads(data, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise Unreadable(path, f"holds a {type(value).__name__}, not an object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON knows")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong in reading into one error that names the file and what was found."""
    try:
        yield
    except KeyError as error:
        raise Unreadable(path, f"has no {error}") from error
    except OSError as error:
        raise Unreadable(Path(error.filename or path), str(error.strerror)) from error
    except (ValueError, TypeError, AttributeError, OverflowError, yaml.YAMLError) as error:
        raise Unreadable(path, f"is not what it should be ({error})") from error
