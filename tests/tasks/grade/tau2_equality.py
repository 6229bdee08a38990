"""Our worlds beside upstream's, in a process of its own (one version of upstream a process).

    python tau2_equality.py FOLDER DOMAIN [calls at random: number of sequences]

Plays the gold of every task and sequences of calls in any order, each in one of our worlds and in a fork
of a process that holds the databases as upstream parsed them. Prints one JSON line: how many were played,
how many different states they came to, and what was not the same.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridges.tau2_package import Tau2, load, read_tasks
from bridges.tau2_world import steady_ids
from tasks.grade.tau2_worlds import Worlds

OFF: tuple[Any, ...] = (
    "",
    "no such thing",
    -1,
    0,
    1e308,
    True,
    None,
    [],
    {},
    ["a", None],
    {"a": {"b": []}},
)

Call = dict[str, Any]


def sequences(
    tasks: list[dict[str, Any]], count: int
) -> Iterator[tuple[dict[str, Any], list[Call]]]:
    """(task, calls): every task's gold, then calls of several tasks mixed and spoilt."""
    golds = [(task.get("evaluation_criteria") or {}).get("actions") or [] for task in tasks]
    yield from zip(tasks, golds, strict=True)
    chosen = random.Random(7)
    known = [action for gold in golds for action in gold]
    for _ in range(count):
        calls = []
        for action in chosen.choices(known, k=10):
            call = {**action, "arguments": copy.deepcopy(action["arguments"])}
            if call["arguments"] and chosen.random() < 0.3:
                call["arguments"][chosen.choice(sorted(call["arguments"]))] = chosen.choice(OFF)
            calls.append(call)
        yield chosen.choice(tasks), calls


def played(tau2: Tau2, environment: Any, task: dict[str, Any], calls: list[Call]) -> Any:
    """What an environment answers, and its hashes."""
    state = tau2.module("data_model.tasks").InitialState.model_validate(
        task.get("initial_state") or {}
    )
    environment.set_state(
        state.initialization_data, state.initialization_actions, state.message_history or []
    )
    answers = []
    for call in calls:
        made = tau2.module("data_model.message").ToolCall(
            name=call["name"],
            arguments=call["arguments"],
            requestor=call.get("requestor", "assistant"),
        )
        response = environment.get_response(made)
        answers.append([response.content, response.error])
    return answers, [environment.get_db_hash(), environment.get_user_db_hash()]


def upstreams(tau2: Tau2, domain: str, task: dict[str, Any], calls: list[Call]) -> Any:
    """The same by upstream alone, in a fork that is then gone."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        steady_ids()
        environment = tau2.environment(domain, **tau2.databases(domain))
        told = played(tau2, environment, task, calls)
        with os.fdopen(write, "w") as pipe:
            json.dump(told, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = json.load(pipe)
    os.waitpid(child, 0)
    return told


def main() -> None:
    folder, domain, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    tau2 = load(folder)
    tasks = read_tasks(tau2.data / "domains" / domain / "tasks.json")
    if len(tasks) > 200:
        tasks = tasks[::20]
    worlds = Worlds(tau2, domain)
    pristine = {name: db.model_dump_json() for name, db in tau2.databases(domain).items()}
    ours_to_theirs: dict[str, str] = {}
    theirs_to_ours: dict[str, str] = {}
    wrong = []
    asked = list(sequences(tasks, count))
    # Upstream's first, so that nothing of ours has happened in the process that is forked.
    told = [upstreams(tau2, domain, task, calls) for task, calls in asked]
    for (task, calls), (expected, upstream_hashes) in zip(asked, told, strict=True):
        worlds.begin()
        world = worlds.make()
        answers, hashes = played(tau2, world.environment, task, calls)
        if answers != expected:
            wrong.append(f"{task['id']}: other answers")
        for side, (mine, theirs) in enumerate(zip(hashes, upstream_hashes, strict=True)):
            mine, theirs = f"{side} {mine}", f"{side} {theirs}"
            if ours_to_theirs.setdefault(mine, theirs) != theirs:
                wrong.append(f"{task['id']}: equal to us, not to upstream")
            if theirs_to_ours.setdefault(theirs, mine) != mine:
                wrong.append(f"{task['id']}: equal to upstream, not to us")
    for name, db in tau2.databases(domain).items():
        if db.model_dump_json() != pristine[name]:
            wrong.append(f"{name} is not what it was")
    states = len(ours_to_theirs)
    print(json.dumps({"played": len(asked), "states": states, "wrong": wrong}))


if __name__ == "__main__":
    main()
