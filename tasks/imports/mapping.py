"""Which task a published simulation is of: by what it was judged by, not by what it is called.

Real files are dirty. In one the task ids simply count the simulations; the checks that each was judged by
still are those of its true task. So a simulation's checks are compared with those of every task; where
any simulation of the file contradicts its name, no name of the file is believed any more.

    checks           the gold actions with their ids, the assertions, the facts to be told: equal lists
    identity         who the user is (user, reservation and order ids): where the checks say nothing, or
                     fit several tasks
    what is left     a trial asks each task once, so a task that another simulation took is none of its

What none of these settles stays without a task: it is listed, and nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from suites.schema import Task
from tasks.imports.results import Results, Simulation

IDENTITY = re.compile(
    r"\b[a-z]+(?:_[a-z]+)+_\d+\b"  # emma_kim_9957
    r"|#W\d+"  # an order
    r"|\b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{6}\b"  # a reservation: EHGLP3
    r"|\b[\w.+-]+@[\w-]+\.\w+\b"
    r"|\b\d{3}-\d{3}-\d{4}\b"
)
"""What names one customer or one of their orders in a task's scenario."""

KINDS = {
    "action_checks": ("action ids", "actions", "action"),
    "nl_assertions": ("assertion texts", "nl_assertions", "nl_assertion"),
    "communicate_checks": ("facts to be told", "communicate_info", "info"),
    "env_assertions": ("world assertions", "env_assertions", "env_assertion"),
}
"""Key in `reward_info`: what it is called here, the task's list of it, the part of a check that is asked."""


@dataclass(frozen=True)
class Mapped:
    """A simulation and its task.

    Attributes:
        task: id in the suite; None: it is not known which, or the suite has not this edition of it.
        native: upstream's id of that task, also where the suite has another edition of it; None: unknown.
        by: what settles it, or why nothing does.
    """

    simulation: Simulation
    task: str | None
    native: str | None
    by: str

    @property
    def renamed(self) -> bool:
        """True if it is of another task than it says."""
        return self.native is not None and self.native != self.simulation.named


@dataclass(frozen=True)
class Mapping:
    """What became of a file's simulations.

    Attributes:
        all: one a simulation, in the order of the file.
        names_hold: True if no simulation contradicts the task it names.
        changed: ids of the file's tasks that the suite has otherwise.
        foreign: ids of the file's tasks that the suite has not.
    """

    all: tuple[Mapped, ...]
    names_hold: bool
    changed: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def mapped(self) -> list[Mapped]:
        return [one for one in self.all if one.task is not None]


def map_simulations(results: Results, tasks: Iterable[Task]) -> Mapping:
    """Every simulation of a file with its task in a suite.

    Args:
        results: the file.
        tasks: of the suite; their grade's spec holds upstream's own form of them.
    """
    ours = {str(task.grade.spec["task"]["id"]): task for task in tasks}
    theirs = {str(task["id"]): task for task in results.tasks}
    natives = theirs or {name: task.grade.spec["task"] for name, task in ours.items()}
    asked = {
        name: {key: _asked_of_task(task, key) for key in KINDS} for name, task in natives.items()
    }
    found = {one.number: _by_checks(one, asked) for one in results.simulations}
    names_hold = all(
        candidates is None or one.named in candidates
        for one in results.simulations
        for candidates, _ in (found[one.number],)
    )
    if names_hold:
        settled = [_as_named(one, found[one.number], natives) for one in results.simulations]
    else:
        settled = _by_evidence(results.simulations, found, natives)
    settled = _without_twins(settled)
    changed = tuple(
        name
        for name, task in theirs.items()
        if name in ours and essence(task) != essence(ours[name].grade.spec["task"])
    )
    foreign = tuple(name for name in theirs if name not in ours)
    return Mapping(
        tuple(_in_suite(one, ours, changed) for one in settled), names_hold, changed, foreign
    )


def essence(task: dict[str, Any]) -> dict[str, Any]:
    """What of a task a run and its verdict depend on, with what upstream fills in filled in."""
    criteria = dict(task.get("evaluation_criteria") or {})
    criteria["reward_basis"] = sorted(criteria.get("reward_basis") or ["COMMUNICATE", "DB"])
    criteria["actions"] = [
        {"requestor": "assistant", **_filled(action)} for action in criteria.get("actions") or ()
    ]
    criteria["env_assertions"] = [
        {"assert_value": True, **_filled(one)} for one in criteria.get("env_assertions") or ()
    ]
    return _filled(
        {
            "scenario": task.get("user_scenario"),
            "initial_state": task.get("initial_state"),
            "criteria": criteria,
        }
    )


def _filled(value: Any) -> Any:
    """Without what says nothing: null, and empty lists and objects."""
    if isinstance(value, dict):
        told = {key: _filled(item) for key, item in value.items()}
        return {key: item for key, item in told.items() if item not in (None, [], {})}
    return [_filled(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- by what it was judged by


Found = tuple[set[str] | None, str]
"""Tasks whose checks are a simulation's (None: it was judged by none), and which checks told."""


def _by_checks(simulation: Simulation, asked: dict[str, dict[str, list[str]]]) -> Found:
    """The tasks that ask exactly what this simulation was judged by."""
    told = {key: _asked_of_simulation(simulation, key) for key in KINDS}
    told = {key: items for key, items in told.items() if items}
    if not told:
        return None, ""
    fits = {name for name, asks in asked.items() if all(asks[key] == told[key] for key in told)}
    first = next(iter(told))
    return fits, KINDS[first][0]


def _asked_of_task(task: dict[str, Any], key: str) -> list[str]:
    items = (task.get("evaluation_criteria") or {}).get(KINDS[key][1]) or ()
    return [_plain(item) for item in items]


def _asked_of_simulation(simulation: Simulation, key: str) -> list[str]:
    return [_plain(check.get(KINDS[key][2])) for check in simulation.judged.get(key) or ()]


def _plain(item: Any) -> str:
    """One text for what is asked, whichever fields a version of upstream adds to it."""
    if not isinstance(item, dict):
        return str(item)
    names = ("action_id", "name", "func_name", "env_type", "arguments")
    kept = {key: item[key] for key in names if item.get(key) is not None}
    return json.dumps(kept, sort_keys=True)


# ---------------------------------------------------------------- settling


def _as_named(simulation: Simulation, found: Found, natives: dict[str, Any]) -> Mapped:
    """Its name, in a file where nothing speaks against any."""
    candidates, words = found
    if simulation.named not in natives:
        return Mapped(simulation, None, None, f"there is no task {simulation.named!r}")
    by = f"its name; {words} agree" if candidates else "its name, which nothing speaks against"
    return Mapped(simulation, None, simulation.named, by)


def _by_evidence(
    simulations: list[Simulation], found: dict[int, Found], natives: dict[str, Any]
) -> list[Mapped]:
    """Checks first, then who the user is, then what is left of the trial."""
    people = {name: _identity_of(task) for name, task in natives.items()}
    settled: dict[int, Mapped] = {}
    open_: list[tuple[Simulation, set[str], str]] = []
    for one in simulations:
        candidates, words = found[one.number]
        if candidates is not None and not candidates:
            why = f"its {words} are those of no task"
            settled[one.number] = Mapped(one, None, None, why)
        elif candidates is not None and len(candidates) == 1:
            settled[one.number] = Mapped(one, None, candidates.pop(), words)
        else:
            said = _said(one)
            pool = set(natives) if candidates is None else candidates
            fits = {name for name in pool if _is_of(people[name], said)}
            by = f"{words} and the user's identity" if words else "the user's identity"
            if len(fits) == 1:
                settled[one.number] = Mapped(one, None, fits.pop(), by)
            else:
                # Where nothing of the user is to be seen, the checks alone still narrow it down.
                open_.append((one, fits or (candidates or set()), by if fits else words))
    taken = {(one.simulation.trial, one.native) for one in settled.values()}
    for one, pool, by in open_:
        left = [name for name in pool if (one.trial, name) not in taken]
        if len(left) == 1:
            words = f"{by}, the only such task that is left of its trial"
            settled[one.number] = Mapped(one, None, left[0], words)
        else:
            why = f"{len(left)} tasks fit it" if left else "nothing in it tells its task"
            settled[one.number] = Mapped(one, None, None, why)
    return [settled[one.number] for one in simulations]


def _identity_of(task: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Who the user is, and which orders or reservations the task is about."""
    scenario = task.get("user_scenario") or {}
    instructions = scenario.get("instructions") or scenario
    if isinstance(instructions, str):
        who = everything = instructions
    else:
        who = str(instructions.get("known_info") or "")
        everything = " ".join(str(value) for value in instructions.values())
    person = set(IDENTITY.findall(who))
    return person, set(IDENTITY.findall(everything)) - person


def _said(simulation: Simulation) -> str:
    """What the user said and what was looked up: what a customer can be known by."""
    parts = []
    for message in simulation.messages:
        if message["role"] == "user":
            parts.append(message.get("content") or "")
        parts += [json.dumps(call.get("arguments")) for call in message.get("tool_calls") or ()]
    return "\n".join(parts)


def _is_of(identity: tuple[set[str], set[str]], said: str) -> bool:
    person, things = identity
    return (
        bool(person)
        and all(name in said for name in person)
        and (not things or any(name in said for name in things))
    )


def _without_twins(settled: list[Mapped]) -> list[Mapped]:
    """A trial asks each task once: of two that would be of the same task, none is certain."""
    counts = Counter((one.simulation.trial, one.native) for one in settled)
    found = []
    for one in settled:
        twins = counts[one.simulation.trial, one.native]
        if one.native is not None and twins > 1:
            trial = one.simulation.trial
            why = f"{twins} simulations of trial {trial} would be of task {one.native}"
            one = replace(one, native=None, by=why)
        found.append(one)
    return found


def _in_suite(one: Mapped, ours: dict[str, Task], changed: tuple[str, ...]) -> Mapped:
    """The task in the suite, unless that is another edition of it."""
    if one.native is None:
        return one
    if one.native not in ours:
        return replace(one, by=f"task {one.native} ({one.by}) is not in the suite")
    if one.native in changed:
        return replace(one, by=f"task {one.native} ({one.by}) is another edition of the suite's")
    return replace(one, task=ours[one.native].id)
