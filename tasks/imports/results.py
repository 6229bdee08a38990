"""A published τ² results file, read as it is: what upstream's `tau2 run` saved, of any of its versions.

Only what is needed is asked for, so that fields which one version has and another has not are no
mistake. A file that is no results file is refused with the key that tells, before anything is written.

    results.json                   {"info", "tasks", "simulations": […]}
    results.json + simulations/    the same with a file a simulation (upstream's `dir` format)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from suites.canonical import digest, file_sha256
from suites.errors import InputError

IS_ONE = "give the JSON file in which `tau2 run` saved its results (data/simulations/….json)"

NOT_EVALUABLE = frozenset({"infrastructure_error", "context_window_exceeded"})
"""Upstream's reasons for a simulation that came to no result; it leaves them out of every rate."""


@dataclass(frozen=True)
class Simulation:
    """One simulation of the file.

    Attributes:
        number: its place in the file, from 0.
        raw: the object as it stands there.
    """

    number: int
    raw: dict[str, Any]

    @property
    def named(self) -> str:
        """The task it says it is of."""
        return str(self.raw["task_id"])

    @property
    def trial(self) -> int:
        return self.raw.get("trial") or 0

    @property
    def reason(self) -> str:
        """Upstream's termination reason; `unknown` where the file has none."""
        return self.raw.get("termination_reason") or "unknown"

    @property
    def judged(self) -> dict[str, Any]:
        """Its `reward_info`; {} where nobody judged it."""
        return self.raw.get("reward_info") or {}

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Its messages in order, bundles of tool messages unpacked."""
        return [
            message
            for entry in self.raw["messages"]
            for message in (entry.get("tool_messages") or [entry])
        ]


@dataclass(frozen=True)
class Results:
    """A results file.

    Attributes:
        path: where it was read.
        sha256: of its bytes (with a file a simulation: over the hashes of all of them).
        info: what upstream says of the run.
        tasks: the tasks as the run had them; [] where the file has none.
        simulations: in the order of the file.
    """

    path: Path
    sha256: str
    info: dict[str, Any]
    tasks: list[dict[str, Any]]
    simulations: list[Simulation]

    @property
    def domain(self) -> str:
        return self.info["environment_info"]["domain_name"]

    @property
    def commit(self) -> str:
        """Upstream's commit, in twelve digits; `unknown` where the file has none."""
        said = str(self.info.get("git_commit") or "")
        kept = "".join(c for c in said if c.isalnum() or c in ".+-")
        return kept[:12] or "unknown"

    @property
    def trials(self) -> int:
        return 1 + max((simulation.trial for simulation in self.simulations), default=0)


def read_results(path: Path) -> Results:
    """A results file, checked.

    Raises:
        InputError: it is not there, is no results file, or holds what cannot be understood.
    """
    if path.is_dir():
        path = path / "results.json"
    value = _json(path)
    if not isinstance(value, dict) or "info" not in value:
        raise InputError("is no τ² results file: it has no `info`", where=str(path), mend=IS_ONE)
    check = _Checker(path)
    info = check.object(value["info"], "info")
    environment = check.object(info.get("environment_info"), "info.environment_info")
    check.text(environment.get("domain_name"), "info.environment_info.domain_name")
    for key in ("agent_info", "user_info"):
        check.object(info.get(key), f"info.{key}")
    tasks = value.get("tasks")
    tasks = [] if tasks is None else tasks
    for number, task in enumerate(check.list(tasks, "tasks")):
        if "id" not in check.object(task, f"tasks[{number}]"):
            raise check.wrong(f"tasks[{number}].id", "is missing", "a task's id")
    entries, sha256 = _simulations(path, value, check)
    for number, entry in enumerate(entries):
        check.simulation(entry, f"simulations[{number}]")
    simulations = [Simulation(number, entry) for number, entry in enumerate(entries)]
    if not simulations:
        raise InputError("holds no simulation", where=f"{path}: simulations", mend=IS_ONE)
    return Results(path, sha256, info, tasks, simulations)


def seconds_of(moment: Any) -> float | None:
    """Unix seconds of an ISO moment of the file, which are UTC where they say nothing else; None: none."""
    if not isinstance(moment, str):
        return None
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _simulations(path: Path, value: dict[str, Any], check: _Checker) -> tuple[list[Any], str]:
    """The simulations and the hash of all that was read."""
    beside = path.parent / "simulations"
    if not value.get("simulations") and beside.is_dir():
        files = sorted(beside.glob("*.json"))
        return [_json(file) for file in files], digest([file_sha256(f) for f in (path, *files)])
    if "simulations" not in value:
        raise InputError(
            "is no τ² results file: it has no `simulations`", where=str(path), mend=IS_ONE
        )
    return check.list(value["simulations"], "simulations"), file_sha256(path)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=str(path), mend=IS_ONE) from error


class _Checker:
    """Refuses what the rest could not understand, and names its key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wrong(self, key: str, what: str, mend: str) -> InputError:
        return InputError(what, where=f"{self._path}: {key}", mend=f"it should be {mend}")

    def object(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(key, f"is {_kind(value)}", "an object")
        return value

    def list(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.wrong(key, f"is {_kind(value)}", "a list")
        return value

    def text(self, value: Any, key: str) -> None:
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"is {_kind(value)}", "a text")

    def number(self, value: Any, key: str) -> None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.wrong(key, f"is {_kind(value)}", "a number or null")

    def simulation(self, value: Any, at: str) -> None:
        """One simulation and its messages."""
        entry = self.object(value, at)
        if not isinstance(entry.get("task_id"), str | int):
            raise self.wrong(f"{at}.task_id", f"is {_kind(entry.get('task_id'))}", "a task's id")
        trial = entry.get("trial")
        if trial is not None and (not isinstance(trial, int) or trial < 0):
            raise self.wrong(f"{at}.trial", f"is {trial!r}", "a number from 0")
        for key in ("agent_cost", "user_cost", "duration"):
            self.number(entry.get(key), f"{at}.{key}")
        if entry.get("messages") is None and entry.get("ticks"):
            raise self.wrong(
                f"{at}.messages",
                "is null: this is a spoken simulation, told in ticks",
                "a list: only text simulations can be imported",
            )
        for number, message in enumerate(self.list(entry.get("messages"), f"{at}.messages")):
            self.message(message, f"{at}.messages[{number}]")
        self.reward(entry.get("reward_info"), f"{at}.reward_info")

    def message(self, value: Any, at: str) -> None:
        message = self.object(value, at)
        role = message.get("role")
        if role not in ("system", "assistant", "user", "tool"):
            raise self.wrong(f"{at}.role", f"is {role!r}", "system, assistant, user or tool")
        if not isinstance(message.get("content"), str | None):
            raise self.wrong(f"{at}.content", f"is {_kind(message['content'])}", "a text or null")
        for number, call in enumerate(
            self.list(message.get("tool_calls") or [], f"{at}.tool_calls")
        ):
            where = f"{at}.tool_calls[{number}]"
            self.text(self.object(call, where).get("name"), f"{where}.name")
        for number, inner in enumerate(message.get("tool_messages") or ()):
            self.message(inner, f"{at}.tool_messages[{number}]")

    def reward(self, value: Any, at: str) -> None:
        if value is None:
            return
        reward = self.object(value, at).get("reward")
        self.number(reward, f"{at}.reward")
        if reward is not None and not 0 <= reward <= 1:
            raise self.wrong(f"{at}.reward", f"is {reward}", "between 0 and 1")
        for key in ("action_checks", "nl_assertions", "communicate_checks", "env_assertions"):
            for number, check in enumerate(self.list(value.get(key) or [], f"{at}.{key}")):
                self.object(check, f"{at}.{key}[{number}]")


def _kind(value: Any) -> str:
    return "missing or null" if value is None else f"a {type(value).__name__} ({value!r:.40})"
