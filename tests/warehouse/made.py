"""Evidence made for tests: real bundles, grades, manifests and suite snapshots, written as dyno writes them.

A `Maker` plans sweeps over small suites and lets attempts happen; what came of each is said by the test or
drawn from a seed. Everything goes through `warehouse.evidence`, so a test's warehouse is loaded from the
same files that a sweep leaves.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from suites.canonical import digest
from suites.schema import LoadedSuite
from warehouse.evidence import Bundle, Evidence, write_atomically
from warehouse.query import connect
from warehouse.shards import ShardWriter

START = 1_770_000_000.0
"""Unix seconds of the first made attempt: results must not depend on today."""
GRADED = "2026-03-01T12:00:00+00:00"

PRICES = {
    "date": "2026-01-01",
    "input": 1.0,
    "output": 2.0,
    "cache_read": None,
    "cache_write": None,
}


def make_suite(
    name: str = "bfcl-simple-python",
    categories: dict[str, int] | None = None,
    *,
    version: str = "2026.3.23",
    benchmark: str = "bfcl",
    weights: dict[str, float] | None = None,
    difficulties: bool = False,
) -> dict[str, Any]:
    """A suite's header and tasks, as JSON values."""
    tasks = [
        {
            "id": f"{category}_{number}",
            "category": category,
            **({"difficulty": category} if difficulties else {}),
            "messages": [{"role": "user", "content": f"{category} {number}"}],
            "grade": {"grader": "bfcl", "spec": {}},
        }
        for category, count in (categories or {"simple_python": 4}).items()
        for number in range(count)
    ]
    header = {
        "name": name,
        "version": version,
        "benchmark": benchmark,
        "dataset": {"source": "bfcl-eval", "version": "2026.3.23", "sha256": "ab" * 32},
        "grader": "bfcl@2026.3.23+1",
    }
    if weights:
        header["weights"] = weights
    return {"header": header, "tasks": tasks, "digest": digest([header, tasks])}


@dataclass(frozen=True)
class Config:
    """A configuration, as a cell of a manifest states it."""

    harness: str = "reference"
    model: str = "noisy"
    harness_version: str = "1"
    mode: str = "once"
    behaviour: str | None = "noisy"
    prices: dict[str, Any] | None = field(default_factory=lambda: PRICES)
    unmetered: bool = False
    refused: str | None = None
    user_model: str | None = None
    call_cost: float = 0.0002
    """Dollars of each of an attempt's two model calls, where there are prices."""

    def stamp(self, suite: dict[str, Any]) -> dict[str, Any]:
        """The stamp of its attempts on that suite."""
        header = suite["header"]
        return {
            "harness": self.harness,
            "harness_version": self.harness_version,
            "mode": self.mode,
            "config_hash": digest([self.harness, self.harness_version, self.mode, self.model])[:16],
            "model": self.model,
            "model_id": self.model,
            "parameters": {"temperature": 0},
            "endpoint_kind": "scripted" if self.behaviour else "http",
            "suite": header["name"],
            "suite_version": header["version"],
            "dataset_source": header["dataset"]["source"],
            "dataset_version": header["dataset"]["version"],
            "dataset_sha256": header["dataset"]["sha256"],
            "dataset_date": None,
            "user_model": self.user_model,
            "bridge_contract": 1,
            "isolation": "process",
            "sealed": False,
            "dyno_version": "0.1.0",
            "unmetered": self.unmetered,
        }


ORACLE = Config(model="oracle", behaviour="oracle")
NOISY = Config(model="noisy")
NULL = Config(model="null", behaviour="null")
SHELL = Config(harness="shell", model="noisy")


@dataclass(frozen=True)
class Planned:
    """One planned attempt, with all it takes to let it happen."""

    key: str
    suite: dict[str, Any]
    config: Config
    task: dict[str, Any]
    repeat: int
    sweep_id: str


class Maker:
    """Writes evidence under a folder.

    Args:
        home: becomes a DYNO_HOME: `evidence/`, `shards/`.
        shards: also write shards, as workers do.
    """

    def __init__(self, home: Path, *, shards: bool = False) -> None:
        self.root = home / "evidence"
        self.shards_root = home / "shards"
        self.warehouse = home / "warehouse.duckdb"
        self.evidence = Evidence(self.root)
        self._shards = ShardWriter(self.shards_root) if shards else None
        self._clock = START

    # ------------------------------------------------------------ plans

    def sweep(
        self,
        suites: Iterable[dict[str, Any]],
        configs: Iterable[Config],
        *,
        name: str = "made",
        repeats: int = 1,
        limit: int | None = None,
        seed: int = 0,
    ) -> list[Planned]:
        """Write a manifest and the snapshots of its suites; what it planned, in order."""
        suites, configs = list(suites), list(configs)
        sweep_id = f"20260301T000000-{name}"
        planned: list[Planned] = []
        cells, attempts = [], []
        for suite in suites:
            self._snapshot(suite)
            for config in configs:
                cells.append(self._cell(len(cells), suite, config))
                for task in suite["tasks"][:limit] if config.refused is None else ():
                    for repeat in range(repeats):
                        key = digest([task, config.stamp(suite)["config_hash"], repeat, seed])
                        attempts.append(
                            {
                                "key": key,
                                "cell": len(cells) - 1,
                                "task_id": task["id"],
                                "repeat": repeat,
                                "seed": 7,
                            }
                        )
                        planned.append(Planned(key, suite, config, task, repeat, sweep_id))
        manifest = {
            "format": 1,
            "sweep_id": sweep_id,
            "name": name,
            "started_at": START,
            "finished_at": None,
            "dyno_version": "0.1.0",
            "definition": {"name": name, "repeats": repeats, "limit": limit},
            "only": limit is not None,
            "suites": {
                suite["digest"]: {
                    "name": suite["header"]["name"],
                    "version": suite["header"]["version"],
                    "benchmark": suite["header"]["benchmark"],
                    "tasks": len(suite["tasks"]),
                }
                for suite in suites
            },
            "cells": cells,
            "attempts": attempts,
            "refusals": [],
        }
        self.write_manifest(manifest)
        return planned

    def write_manifest(self, manifest: dict[str, Any]) -> Path:
        """Write (or write again) a sweep's manifest."""
        path = self.root / "sweeps" / f"{manifest['sweep_id']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(manifest).encode())
        return path

    def _snapshot(self, suite: dict[str, Any]) -> None:
        folder = self.root / "suites" / suite["digest"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "suite.yaml").write_text(yaml.safe_dump(suite["header"]))
        lines = [json.dumps(task) for task in suite["tasks"]]
        (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")

    def _cell(self, number: int, suite: dict[str, Any], config: Config) -> dict[str, Any]:
        stamp, header = config.stamp(suite), suite["header"]
        endpoint = f"scripted:{config.behaviour}" if config.behaviour else "https://example.org/v1"
        same = ("harness", "harness_version", "mode", "model", "model_id", "user_model", "config_hash",
                "isolation", "sealed", "dataset_version")  # fmt: skip
        return {
            "cell": number,
            "benchmark": header["benchmark"],
            "suite": header["name"],
            "suite_version": header["version"],
            "suite_digest": suite["digest"],
            "grader": header["grader"],
            **{name: stamp[name] for name in same},
            "stamp": stamp,
            "prices": config.prices,
            "refused": config.refused,
            "definitions": {"model": {"name": config.model, "endpoint": endpoint}},
        }

    # ------------------------------------------------------------ what happens

    def attempt(
        self,
        planned: Planned,
        solved: bool | None = True,
        *,
        ending: str = "clean",
        error: str | None = None,
        statuses: tuple[str, ...] = ("ok", "ok"),
        measured: bool = True,
        published: bool = True,
        graded: bool = True,
        graders: tuple[str, ...] = ("2026.3.23+1",),
        scopes: dict[str, bool | None] | None = None,
        score: float | None = None,
        reported: dict[str, Any] | None = None,
        ledger: dict[str, int] | None = None,
    ) -> Bundle:
        """Let an attempt happen: one try, published and graded unless an `error` stopped it.

        Args:
            planned: which.
            solved: the verdict; None: the grader could not judge.
            ending: how the harness ended.
            error: class of an infrastructure error.
            statuses: of the tool calls made, in order.
            measured: False: the upstream told no usage.
            published: False: killed between sealing and publishing.
            graded: False: nobody has graded it yet.
            graders: versions of the grader that have judged it.
            scopes: BFCL's readings, where they differ from `solved`.
            score: where it differs from `solved`.
            reported: what the harness says it used.
            ledger: what a scripted model counted.
        """
        folder = self.evidence.claim_try(planned.key)
        number = int(folder.name[4:])
        self._journal(folder, planned, number, statuses, measured)
        (folder / "stdout").write_text("Done.\n")
        record = self._record(planned, number, ending, error, reported)
        record["host"]["ledger"] = ledger
        bundle = self.evidence.finish(folder, record)
        if self._shards is not None:
            self._shards.append(bundle)
        if error is None and published:
            self.evidence.publish(bundle)
            if graded:
                for version in graders:
                    self.grade(planned.key, bundle, solved, version, scopes, score)
        return bundle

    def interrupted(self, planned: Planned, torn: bool = True) -> Path:
        """A try that was killed: its journals lie there, nothing is sealed."""
        folder = self.evidence.claim_try(planned.key)
        self._journal(folder, planned, int(folder.name[4:]), ("ok",), True)
        if torn:
            with (folder / "bridge.jsonl").open("a") as file:
                file.write('{"seq":99,"event":"ca')
        return folder

    def grade(
        self,
        key: str,
        bundle: Bundle,
        solved: bool | None,
        version: str = "2026.3.23+1",
        scopes: dict[str, bool | None] | None = None,
        score: float | None = None,
        graded_at: str = GRADED,
        grader: str = "bfcl",
    ) -> None:
        """Write a grade of that bundle."""
        readings = {"attempt": solved, "attempt_strict": solved, "first_response": solved}
        checks = [
            {
                "name": name,
                "passed": passed,
                "weight": 1.0,
                "scope": name,
                "headline": name == "attempt",
                "error_type": None if passed else "simple_function_checker:wrong_count",
                "finding": "as gold" if passed else "Wrong number of functions.",
            }
            for name, passed in {**readings, **(scopes or {})}.items()
        ]
        error = {"type": "evidence_hole", "message": "no result row"} if solved is None else None
        self.evidence.write_grade(
            key,
            {
                "grader": grader,
                "grader_version": version,
                "spec_hash": digest({}),
                "bundle_hash": bundle.hash,
                "graded_at": graded_at,
                "solved": solved,
                "score": score if score is not None or solved is None else float(solved),
                "error": error,
                "checks": checks,
            },
        )

    def _record(
        self,
        planned: Planned,
        number: int,
        ending: str,
        error: str | None,
        reported: dict[str, Any] | None,
    ) -> dict[str, Any]:
        header = planned.suite["header"]
        started = self._clock
        self._clock += 3.0
        return {
            "attempt_key": planned.key,
            "try": number,
            "sweep_id": planned.sweep_id,
            "task": {
                "benchmark": header["benchmark"],
                "suite": header["name"],
                "suite_version": header["version"],
                "suite_digest": planned.suite["digest"],
                "task_id": planned.task["id"],
                "category": planned.task["category"],
                "difficulty": planned.task.get("difficulty"),
                "repeat": planned.repeat,
            },
            "stamp": {
                **planned.config.stamp(planned.suite),
                "seed": 7,
                "date": "2026-03-01T00:00:00Z",
            },
            "prices": planned.config.prices,
            "ending": ending if error is None else "interrupted",
            "detail": "the harness ended by itself",
            "blame": "infra" if error else None,
            "error": {"class": error, "message": f"{error} happened"} if error else None,
            "exit_code": 0,
            "signal": None,
            "timings": {
                "started_at": started,
                "ended_at": started + 2.5,
                "wall_s": 2.5,
                "startup_s": 1.5,
                "waited_s": 0.0,
                "cpu_s": 0.2,
            },
            "host": {"listed": True, "dropped": False, "budget": None},
            "output": {"stdout_bytes": 6, "stderr_bytes": 0, "stdout_cut": 0, "stderr_cut": 0},
            "reported": reported,
        }

    def _journal(
        self,
        folder: Path,
        planned: Planned,
        number: int,
        statuses: tuple[str, ...],
        measured: bool,
    ) -> None:
        """Two model calls around the tool calls, in one order of rows."""
        rows = _Rows(number, self._clock)
        usage = {"input": 100, "cache_read": 0, "cache_write": 0, "output": 50, "reasoning": 0}
        cost = planned.config.call_cost if planned.config.prices else None
        rows.add(
            "bridge", "list", server="functions", tools=["area"], protocol="2025-06-18", ms=0.4
        )
        for calls in () if planned.config.unmetered else (len(statuses), 0):
            request = rows.add(
                "model",
                "request",
                wire="chat",
                stream=True,
                model="m",
                edits=["authorization"],
                body="{}",
            )
            rows.add(
                "model", "response", call=request, status=200, ms=12.5, first_byte_ms=3.5, queued_ms=0,
                upstream_tries=1, upstream_statuses=[200], complete=True, body="{}", tool_calls=calls,
                usage=usage if measured else None, cost=cost if measured else None, error=None,
                budget=None,
            )  # fmt: skip
            for status in statuses[:calls]:
                call = rows.add(
                    "bridge", "call", server="functions", tool="area", native="geometry.area",
                    arguments='{"side": 2}',
                )  # fmt: skip
                if status != "unfinished":
                    rows.add(
                        "bridge", "result", call=call, status=status, is_error=status != "ok",
                        text="Recorded.", cut=0, ms=1.5,
                    )  # fmt: skip
        for role in ("assistant", "user") if planned.config.user_model else ():
            rows.add(
                "conversation", "message", role=role, content=f"I am the {role}.", opening=False
            )
        for name, lines in rows.lines.items():
            if lines:
                (folder / f"{name}.jsonl").write_text("".join(lines))


class _Rows:
    """Journal lines of one try under one counter."""

    def __init__(self, number: int, started: float) -> None:
        self.lines: dict[str, list[str]] = {"bridge": [], "model": [], "conversation": []}
        self._number = number
        self._at = started
        self._seq = 0

    def add(self, file: str, event: str, **fields: Any) -> int:
        """One row; its seq."""
        self._seq += 1
        row = {
            "seq": self._seq,
            "turn": 0,
            "requestor": "agent",
            "try": self._number,
            "at": self._at + self._seq / 10,
            "event": event,
            **fields,
        }
        self.lines[file].append(json.dumps(row, separators=(",", ":")) + "\n")
        return self._seq


def run_all(maker: Maker, planned: Iterable[Planned], rate: float = 0.7, seed: int = 1) -> None:
    """Let every attempt happen, each solved or not by a draw that depends on its key alone."""
    for one in planned:
        draw = random.Random(f"{seed}/{one.key}").random()
        behaviour = one.config.behaviour
        solved = {"oracle": True, "null": False}.get(behaviour or "", draw < rate)
        maker.attempt(one, solved, statuses=() if behaviour == "null" else ("ok", "ok"))


def run_as(maker: Maker, suite: LoadedSuite, config: Config, solved: Iterable[str]) -> None:
    """Run a real suite in one configuration; the tasks of those ids are solved, by the suite's own grader."""
    grader, _, version = (suite.suite.grader or "").partition("@")
    made = {
        "header": suite.suite.model_dump(mode="json", exclude_defaults=True),
        "tasks": [
            {"category": "all", **task.model_dump(mode="json", exclude_defaults=True)}
            for task in suite.tasks
        ],
        "digest": suite.digest,
    }
    made["header"]["dataset"].setdefault("sha256", "ab" * 32)
    for one in maker.sweep([made], [config], name="ours"):
        bundle = maker.attempt(one, graded=False, statuses=())
        maker.grade(one.key, bundle, one.task["id"] in solved, version, grader=grader)


def ask(maker: Maker, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of a maker's published warehouse."""
    with connect(maker.warehouse) as con:
        return con.execute(sql, list(values)).fetchall()


def hashes(root: Path) -> dict[str, str]:
    """Every file under `root` with the hash of its bytes."""
    return dict(_hashes(root))


def _hashes(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()
