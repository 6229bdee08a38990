"""A sweep as planned, and as any worker reads it back: cells, attempts, and the suites they ask.

The plan is written to the evidence as the sweep's manifest before the first attempt starts, with
snapshots of its suites beside it; so what crosses between processes is two ids and no payload, and old
evidence can be graded after the suites in DYNO_HOME have moved on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from suites.errors import InputError
from suites.home import PROJECT
from suites.loading_suites import load_suite, save_suite
from suites.schema import Harness, LoadedSuite, Model, Sweep, Task
from tasks.users import User
from warehouse.evidence import Evidence, write_atomically


@dataclass(frozen=True)
class Cell:
    """One suite × configuration, as the manifest states it (see docs/evidence.md)."""

    record: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.record[name]
        except KeyError:
            raise AttributeError(name) from None

    @cached_property
    def harness_definition(self) -> Harness:
        return Harness.model_validate(self.record["definitions"]["harness"])

    @cached_property
    def model_definition(self) -> Model:
        return Model.model_validate(self.record["definitions"]["model"])

    @cached_property
    def user(self) -> User | None:
        """Who plays the users; None where no task of the cell is a conversation."""
        definition = self.record["definitions"].get("user")
        return User.read(definition) if definition else None

    @cached_property
    def judge_definition(self) -> Model | None:
        """The model that judges, where a grader asks for one; None where the sweep names none, or where no
        task of the cell can need it."""
        definition = self.record["definitions"].get("judge")
        return Model.model_validate(definition) if definition else None

    @property
    def harness_dir(self) -> str:
        return str(PROJECT / self.record["definitions"]["harness_dir"])

    @property
    def label(self) -> str:
        """`suite · harness · model`, with the mode where it is not `once`."""
        mode = "" if self.record["mode"] == "once" else f" ({self.record['mode']})"
        return f"{self.record['suite']} · {self.record['harness']}{mode} · {self.record['model']}"


@dataclass
class Plan:
    """A sweep as planned: its manifest and the suites it asks.

    Attributes:
        manifest: what is (or will be) in evidence/sweeps/<id>.json.
        suites: by digest.
    """

    manifest: dict[str, Any]
    suites: dict[str, LoadedSuite]
    _tasks: dict[str, dict[str, Task]] = field(default_factory=dict)

    @property
    def sweep_id(self) -> str:
        return self.manifest["sweep_id"]

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep.model_validate(self.manifest["definition"])

    @cached_property
    def cells(self) -> list[Cell]:
        return [Cell(record) for record in self.manifest["cells"]]

    @cached_property
    def by_key(self) -> dict[str, dict[str, Any]]:
        """Planned attempts by key (the first, where two cells plan the same)."""
        found: dict[str, dict[str, Any]] = {}
        for planned in self.manifest["attempts"]:
            found.setdefault(planned["key"], planned)
        return found

    def has_task(self, planned: dict[str, Any]) -> bool:
        """False for an imported attempt of which nobody knows what task it is."""
        return planned["task_id"] in self._tasks_of(planned)

    def task(self, planned: dict[str, Any]) -> Task:
        """The task of a planned attempt."""
        return self._tasks_of(planned)[planned["task_id"]]

    def _tasks_of(self, planned: dict[str, Any]) -> dict[str, Task]:
        suite_digest = self.cells[planned["cell"]].suite_digest
        if suite_digest not in self._tasks:
            suite = self.suites[suite_digest]
            self._tasks[suite_digest] = {task.id: task for task in suite.tasks}
        return self._tasks[suite_digest]

    def of_cell(self, cell: int) -> list[dict[str, Any]]:
        """The planned attempts of one cell, in order."""
        return [planned for planned in self.manifest["attempts"] if planned["cell"] == cell]

    def write(self, evidence: Evidence) -> None:
        """Put the manifest and the suites it asks into the evidence."""
        for suite in self.suites.values():
            folder = evidence.root / "suites" / suite.digest
            if not folder.is_dir():
                save_suite(folder, suite.suite, suite.tasks)
        self.write_manifest(evidence)

    def write_manifest(self, evidence: Evidence) -> None:
        """Write (or, at the end, rewrite) the manifest alone."""
        path = evidence.root / "sweeps" / f"{self.sweep_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(self.manifest, ensure_ascii=False).encode())

    @classmethod
    def read(cls, evidence: Evidence, sweep_id: str) -> Plan:
        """The plan of a sweep that some process wrote.

        Raises:
            InputError: there is no such sweep.
        """
        path = evidence.root / "sweeps" / f"{sweep_id}.json"
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise InputError(f"there is no sweep {sweep_id!r} in {evidence.root}") from error
        except ValueError as error:
            raise InputError(
                f"is not a sweep's manifest: {error}",
                where=str(path),
                mend="move it away; its attempts are kept",
            ) from error
        suites = {
            suite_digest: load_suite(evidence.root / "suites" / suite_digest)
            for suite_digest in manifest["suites"]
        }
        return cls(manifest, suites)
