"""`dyno import` as a person runs it, with a suite that is there already: no network, no Prefect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.loading_suites import save_suite
from tests.flows.conftest import Dyno
from tests.published import results_value, simulation, small_suite, upstream_task

TASKS = [upstream_task(number) for number in range(3)]


@pytest.fixture
def airline(offline_dyno: Dyno) -> Dyno:
    """A DYNO_HOME with a small suite of airline."""
    suite = small_suite(TASKS)
    save_suite(offline_dyno.home / "suites" / suite.suite.name, suite.suite, suite.tasks)
    return offline_dyno


def published(folder: Path, simulations: list[dict[str, Any]], **info: Any) -> str:
    value = results_value(simulations)
    value["info"] |= info
    path = folder / "theirs.json"
    path.write_text(json.dumps(value))
    return str(path)


def dirty() -> list[dict[str, Any]]:
    return [
        simulation(TASKS[0], named="1"),
        simulation(TASKS[1], named="0", reward=0.0),
        simulation(TASKS[2], judged=False, messages=[]),
    ]


def test_wrong_names_are_told_and_what_is_unknown_is_listed(airline: Dyno, tmp_path: Path) -> None:
    output = airline.run("import", "tau2", published(tmp_path, dirty()))
    assert "task ids are not to be trusted: 2 simulations are of another task" in output
    lines = [line.split() for line in output.splitlines()]
    assert ["0", "1", "0*", "action", "ids"] in lines
    assert "mapped 2 of 3: 2 by action ids" in output
    assert "simulation 2 (named 2): nothing in it tells its task" in output
    card = " ".join(airline.run("scorecard").split())
    assert "graded by tau2-published@0123456789ab" in card
    assert "0.667" in card
    assert "the task of 1 is not known; they count here, and are in no comparison" in card
    again = airline.run("import", "tau2", published(tmp_path, dirty()))
    assert "imported before" in again
    assert "nothing is new" in again


def test_show_tells_the_conversation(airline: Dyno, tmp_path: Path) -> None:
    airline.run("import", "tau2", published(tmp_path, dirty()), "--name", "theirs")
    shown = airline.run("show", "0")
    assert "theirs 0123456789ab (published) · agent-model ⇄ user-model" in shown
    assert "imported: simulation 0 of theirs.json, which names task 1" in shown
    assert "its task is known by action ids" in shown
    words = ["Hi! How can I help you today?", "cancel RES000", "call cancel_reservation",
             "Error: no such reservation", "That cannot be done.", "the conversation is over: user_stop",
             "solved, by tau2-published"]  # fmt: skip
    places = [shown.index(word, shown.index("what happened")) for word in words]
    assert places == sorted(places)
    unknown = airline.run("show", "unmapped-2")
    assert "its task is not known: nothing in it tells its task" in unknown


def test_another_dataset_is_said_to_be_one(airline: Dyno, tmp_path: Path) -> None:
    value = results_value([simulation(task) for task in TASKS])
    value["tasks"][1]["evaluation_criteria"]["reward_basis"] = ["DB", "NL_ASSERTION"]
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(value))
    output = airline.run("import", "tau2", str(path))
    assert (
        "1 differ (1), 0 are not in it; it was made with another version of the dataset" in output
    )
    assert "mapped 2 of 3" in output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("no json", "is not JSON"),
        ("{}", "it has no `info`"),
        (json.dumps({"info": {}}), "info.environment_info"),
    ],
)
def test_what_is_no_results_file_is_one_clear_error(
    airline: Dyno, tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    output = airline.run("import", "tau2", str(path), code=2)
    assert says in output
    assert str(path) in output
    assert "Traceback" not in output
    assert not (airline.home / "evidence").exists()


def test_unknown_formats_and_domains_are_refused(airline: Dyno, tmp_path: Path) -> None:
    assert "known: tau2" in airline.run("import", "swe", "x.json", code=2)
    moon = published(tmp_path, dirty(), environment_info={"domain_name": "moonbase"})
    output = airline.run("import", "tau2", moon, code=2)
    assert "'moonbase'" in output
    assert "airline" in output


def test_an_import_is_nothing_to_resume(airline: Dyno, tmp_path: Path) -> None:
    airline.run("import", "tau2", published(tmp_path, dirty()))
    assert "no sweep has been run yet" in airline.run("resume", code=2)
