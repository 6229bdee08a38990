"""Simulations are mapped to tasks by evidence, and what is not certain is not guessed."""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suites.errors import InputError
from tasks.imports.mapping import Mapping, essence, map_simulations
from tasks.imports.results import Results, read_results
from tests.published import (
    REAL,
    results_file,
    results_value,
    simulation,
    small_suite,
    upstream_task,
)

TASKS = [upstream_task(number) for number in range(3)]

needs_real = pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not on this machine")


def mapped(results: Results, tasks: list[dict[str, Any]] | None = None) -> Mapping:
    return map_simulations(results, small_suite(TASKS if tasks is None else tasks).tasks)


def told(mapping: Mapping) -> list[tuple[str, str | None]]:
    return [(one.simulation.named, one.task) for one in mapping.all]


@needs_real
def test_the_real_files_wrong_ids_are_found_and_mended() -> None:
    """Its tasks are those of the package; upstream's own form of them is in the file itself."""
    results = read_results(REAL)
    mapping = mapped(results, results.tasks)
    assert not mapping.names_hold
    assert Counter(one.by for one in mapping.all) == {"action ids": 43, "assertion texts": 7}
    assert len({one.task for one in mapping.all}) == 50
    for one in mapping.all:
        for check in one.simulation.judged["action_checks"] or ():
            assert check["action"]["action_id"].rsplit("_", 1)[0] == one.task
    assert told(mapping)[:3] == [("0", "27"), ("1", "35"), ("2", "4")]


@needs_real
def test_the_users_identity_is_never_wrong_on_the_real_file() -> None:
    results = read_results(REAL)
    truth = [one.task for one in mapped(results, results.tasks).all]
    for one in results.simulations[1:]:
        one.raw["reward_info"] = {"reward": one.judged["reward"]}
    blind = mapped(results, results.tasks).all
    found = [(one.task, true) for one, true in zip(blind, truth, strict=True) if one.task]
    assert len(found) > 20
    assert all(task == true for task, true in found)


def test_a_clean_file_is_taken_at_its_word(tmp_path: Path) -> None:
    mapping = mapped(results_file(tmp_path, [simulation(task) for task in TASKS]))
    assert mapping.names_hold
    assert told(mapping) == [("0", "0"), ("1", "1"), ("2", "2")]
    assert mapping.all[0].by == "its name; action ids agree"


def test_what_was_never_judged_goes_by_its_name_in_a_clean_file(tmp_path: Path) -> None:
    early = simulation(TASKS[1], judged=False, reward=0.0, termination_reason="max_steps")
    mapping = mapped(results_file(tmp_path, [simulation(TASKS[0]), early]))
    assert told(mapping) == [("0", "0"), ("1", "1")]


def test_one_contradiction_takes_the_trust_from_every_name(tmp_path: Path) -> None:
    silent = simulation(TASKS[1], judged=False, messages=[])
    mapping = mapped(results_file(tmp_path, [simulation(TASKS[0], named="2"), silent]))
    assert told(mapping) == [("2", "0"), ("1", None)]
    assert mapping.all[1].by == "nothing in it tells its task"


def test_the_user_is_known_where_the_checks_say_nothing(tmp_path: Path) -> None:
    early = simulation(TASKS[1], named="0", judged=False)
    mapping = mapped(results_file(tmp_path, [simulation(TASKS[0], named="2"), early]))
    assert told(mapping) == [("2", "0"), ("0", "1")]
    assert mapping.all[1].by == "the user's identity"


def twins() -> list[dict[str, Any]]:
    """Tasks 1 and 2 have the same customer and the same checks, but for the actions that 0 has."""
    tasks = copy.deepcopy(TASKS)
    for task in tasks[1:]:
        task["evaluation_criteria"] = {"actions": [], "nl_assertions": ["Agent does nothing."]}
    tasks[2]["user_scenario"] = copy.deepcopy(tasks[1]["user_scenario"])
    return tasks


def test_of_two_that_fit_the_one_that_is_left_is_taken(tmp_path: Path) -> None:
    tasks = twins()
    tasks[2]["evaluation_criteria"]["communicate_info"] = ["42"]
    certain = simulation(tasks[2], named="0")
    certain["reward_info"]["communicate_checks"] = [
        {"info": "42", "met": True, "justification": ""}
    ]
    told_both = simulation(tasks[1], named="1")
    results = results_file(tmp_path, [certain, told_both], tasks)
    mapping = mapped(results, tasks)
    assert told(mapping) == [("0", "2"), ("1", "1")]
    assert mapping.all[1].by.endswith("the only such task that is left of its trial")


def test_two_that_fit_are_not_told_apart_by_guessing(tmp_path: Path) -> None:
    tasks = twins()
    both = [simulation(tasks[1], named="1"), simulation(tasks[2], named="2")]
    results = results_file(tmp_path, [simulation(tasks[0], named="2", trial=1), *both], tasks)
    mapping = mapped(results, tasks)
    assert told(mapping) == [("2", "0"), ("1", None), ("2", None)]
    assert mapping.all[1].by == "2 tasks fit it"


def test_two_of_one_trial_cannot_be_of_one_task(tmp_path: Path) -> None:
    same = [simulation(TASKS[0], named="0"), simulation(TASKS[0], named="1")]
    other_trial = simulation(TASKS[0], named="1", trial=1)
    mapping = mapped(results_file(tmp_path, [*same, other_trial]))
    assert [task for _, task in told(mapping)] == [None, None, "0"]
    assert mapping.all[0].by == "2 simulations of trial 0 would be of task 0"


def test_checks_of_no_task_are_said_to_be_so(tmp_path: Path) -> None:
    odd = simulation(upstream_task(7), named="1")
    mapping = mapped(results_file(tmp_path, [odd, simulation(TASKS[0])]))
    assert told(mapping) == [("1", None), ("0", "0")]
    assert mapping.all[0].by == "its action ids are those of no task"


def test_another_edition_of_a_task_is_not_the_suites(tmp_path: Path) -> None:
    edited = copy.deepcopy(TASKS)
    edited[1]["evaluation_criteria"]["reward_basis"] = ["DB", "NL_ASSERTION"]
    edited[2]["id"] = "77"
    told_all = [simulation(task) for task in edited]
    mapping = mapped(results_file(tmp_path, told_all, edited))
    assert (mapping.changed, mapping.foreign) == (("1",), ("77",))
    assert told(mapping) == [("0", "0"), ("1", None), ("77", None)]
    assert "another edition" in mapping.all[1].by
    assert "not in the suite" in mapping.all[2].by


def test_fields_that_upstream_fills_in_make_no_other_edition() -> None:
    full = copy.deepcopy(TASKS[0])
    full["ticket"] = full["initial_state"] = None
    full["evaluation_criteria"] |= {"env_assertions": None, "reward_basis": ["DB", "COMMUNICATE"]}
    full["evaluation_criteria"]["actions"][0] |= {"requestor": "assistant", "compare_args": None}
    assert essence(full) == essence(TASKS[0])
    full["evaluation_criteria"]["communicate_info"] = ["42"]
    assert essence(full) != essence(TASKS[0])


# ---------------------------------------------------------------- what is no results file


SIMULATION = "simulations[0]"


@pytest.mark.parametrize(
    ("at", "value", "key", "says"),
    [
        (["info"], None, "info", "an object"),
        (["simulations"], [], "simulations", "no simulation"),
        (["tasks"], {}, "tasks", "a list"),
        (["info", "agent_info"], 3, "info.agent_info", "an object"),
        (["info", "environment_info"], {}, "info.environment_info.domain_name", "a text"),
        (["simulations", 0, "task_id"], None, f"{SIMULATION}.task_id", "a task's id"),
        (["simulations", 0, "messages"], None, f"{SIMULATION}.messages", "a list"),
        (["simulations", 0], {"task_id": "0", "ticks": [{}]}, f"{SIMULATION}.messages", "spoken"),
        (
            ["simulations", 0, "messages", 1, "role"],
            "bot",
            f"{SIMULATION}.messages[1].role",
            "'bot'",
        ),
        (["simulations", 0, "messages", 2, "tool_calls"], [{}], "tool_calls[0].name", "a text"),
        (["simulations", 0, "messages", 1, "content"], 3, "messages[1].content", "a text or null"),
        (["simulations", 0, "agent_cost"], "much", f"{SIMULATION}.agent_cost", "a number"),
        (["simulations", 0, "reward_info", "reward"], 7, "reward_info.reward", "between 0 and 1"),
        (["simulations", 0, "trial"], -1, f"{SIMULATION}.trial", "from 0"),
    ],
)
def test_what_is_no_results_file_is_refused_with_its_key(
    tmp_path: Path, at: list[Any], value: Any, key: str, says: str
) -> None:
    told: Any = results_value([simulation(TASKS[0])])
    inside = told
    for step in at[:-1]:
        inside = inside[step]
    inside[at[-1]] = value
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(told))
    with pytest.raises(InputError) as caught:
        read_results(path)
    assert str(path) in str(caught.value)
    assert key in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("key", ["info", "simulations"])
def test_what_lacks_a_part_is_no_results_file(tmp_path: Path, key: str) -> None:
    told = results_value([simulation(TASKS[0])])
    del told[key]
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match=f"no τ² results file: it has no `{key}`"):
        read_results(path)


@pytest.mark.parametrize(("text", "says"), [("[", "is not JSON"), ("[]", "no τ² results file")])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_results(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "none.json")


def test_a_file_a_simulation_is_the_same_as_all_in_one(tmp_path: Path) -> None:
    value = results_value([simulation(task) for task in TASKS])
    folder = tmp_path / "run"
    (folder / "simulations").mkdir(parents=True)
    for one in value["simulations"]:
        (folder / "simulations" / f"{one['id']}.json").write_text(json.dumps(one))
    value["simulations"] = []
    (folder / "results.json").write_text(json.dumps(value))
    read = read_results(folder)
    assert [one.named for one in read.simulations] == ["0", "1", "2"]
    before = read.sha256
    (folder / "simulations" / "sim-1-0.json").write_text(
        json.dumps(simulation(TASKS[1], reward=0.0))
    )
    assert read_results(folder).sha256 != before
