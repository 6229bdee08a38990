"""Published results in the warehouse: their own verdicts, all of them, and nothing of a half import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import Config, Maker, ask, run_as

from suites.schema import LoadedSuite
from tasks.imports.mapping import map_simulations
from tasks.imports.results import Results
from tasks.imports.writing import Imported, imported_sweeps, write_import
from tests.published import results_file, simulation, small_suite, upstream_task
from warehouse.load import LoadReport
from warehouse.query import connect
from warehouse.scorecard import render, scorecard_rows

Load = Callable[..., LoadReport]

TASKS = [upstream_task(number) for number in range(3)]


@pytest.fixture
def suite() -> LoadedSuite:
    return small_suite(TASKS)


def publish(maker: Maker, results: Results, suite: LoadedSuite) -> Imported:
    return write_import(results, map_simulations(results, suite.tasks), suite, maker.evidence)


def trials(rewards: list[list[float]]) -> list[dict[str, Any]]:
    """Simulations of the three tasks, a list of rewards a task."""
    return [
        simulation(TASKS[number], trial=trial, reward=reward)
        for number, row in enumerate(rewards)
        for trial, reward in enumerate(row)
    ]


def test_pass_hat_k_is_known_for_every_k_up_to_the_trials(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    rewards = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]
    publish(maker, results_file(tmp_path, trials(rewards)), suite)
    loaded(maker)
    columns = "pass_hat_k, n, coverage, grader, origin"
    found = ask(maker, f"select {columns} from scorecard where category is null")
    # by C(c, k) / C(4, k) for c of 4, 2 and 1
    expected = [(1 + 2 / 4 + 1 / 4) / 3, (1 + 1 / 6 + 0) / 3, 1 / 3, 1 / 3]
    assert found[0][0] == pytest.approx(expected)
    assert found[0][1:] == (12, 1.0, "tau2-published@0123456789ab", "imported")
    with connect(maker.warehouse) as con:
        text = render(scorecard_rows(con), 100)
    assert all(f"pass^{k}" in text for k in (2, 3, 4))
    assert "as they were published" in " ".join(text.split())


def test_a_missing_trial_makes_the_highest_k_unknown_and_not_0(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, trials([[1, 1], [1, 1], [1]])), suite)
    loaded(maker)
    [(hats,)] = ask(maker, "select pass_hat_k from scorecard where category is null")
    assert hats == [1.0, None]


def run_of_ours(maker: Maker, suite: LoadedSuite, solved: tuple[str, ...] = ("0",)) -> None:
    """The null agent on that suite, with the scripted user."""
    run_as(maker, suite, Config(model="null", behaviour="null", user_model="scripted"), solved)


def dirty(unknown: float = 1.0) -> list[dict[str, Any]]:
    """Two simulations under each other's names, and one that nothing tells the task of."""
    return [
        simulation(TASKS[0], named="1"),
        simulation(TASKS[1], named="0", reward=0.0),
        simulation(TASKS[2], named="2", reward=unknown, judged=False, messages=[]),
    ]


def test_what_has_no_task_counts_in_the_published_figure_and_in_no_comparison(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, dirty()), suite)
    loaded(maker)
    rows = ask(maker, "select pass_at_1, n, unmapped from scorecard where category is null")
    assert rows == [(pytest.approx(2 / 3), 3, 1)]
    told = ask(maker, "select task_id, mapped, left_out from published_agreement order by task_id")
    assert told == [
        ("0", True, "not regraded yet"),
        ("1", True, "not regraded yet"),
        ("unmapped-2", False, "its task is not known"),
    ]


def test_regrading_never_replaces_what_was_published(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    made = publish(maker, results_file(tmp_path, dirty()), suite)
    planned = imported_sweeps(maker.evidence)[made.sweep_id]["attempts"]
    for attempt, solved in zip(planned[:2], (True, True), strict=True):
        bundle = maker.evidence.published(attempt["key"])
        assert bundle is not None
        maker.grade(attempt["key"], bundle, solved, "26.3+1", grader="tau2")
    loaded(maker)
    assert ask(maker, "select distinct grader from attempts") == [("tau2-published@0123456789ab",)]
    assert ask(maker, "select pass_at_1 from scorecard where category is null") == [
        (pytest.approx(2 / 3),)
    ]
    told = ask(
        maker,
        "select published_reward, regraded_reward, agree, regraded_by from published_agreement "
        "where mapped order by task_id",
    )
    assert told == [
        (1.0, 1.0, True, "tau2@26.3+1"),
        (0.0, 1.0, False, "tau2@26.3+1"),
    ]


def test_an_import_without_its_manifest_counts_for_nothing(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    results = results_file(tmp_path, dirty())
    made = publish(maker, results, suite)
    (maker.root / "sweeps" / f"{made.sweep_id}.json").unlink()
    loaded(maker)
    assert ask(maker, "select count(*) from attempts") == [(0,)]
    assert ask(maker, "select count(*) from tries") == [(3,)]
    again = publish(maker, results, suite)
    assert (again.new, again.again) == (0, False)
    loaded(maker)
    assert ask(maker, "select count(*) from attempts") == [(3,)]


def test_costs_are_as_reported_and_unknown_where_the_file_says_nothing(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    told = [
        simulation(TASKS[0], agent_cost=0.25, user_cost=0.05),
        simulation(TASKS[1], agent_cost=None, user_cost=None),
    ]
    publish(maker, results_file(tmp_path, told), suite)
    loaded(maker)
    said = "reported_cost, reported_user_cost"
    measured = "cost, agent_cost, user_cost, model_calls, user_model_calls, tool_lists"
    rows = ask(maker, f"select {said}, {measured} from attempts order by task_id")
    nothing = (None,) * 6
    assert rows == [(0.25, 0.05, *nothing), (None, None, *nothing)]
    [(spent,)] = ask(maker, "select cost from scorecard where category is null")
    assert spent is None


def test_conversations_can_be_asked_in_sql(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, [simulation(TASKS[0])]), suite)
    loaded(maker)
    columns = "seq, turn, requestor, role, opening, content"
    rows = ask(maker, f"select {columns} from messages order by seq")
    assert rows == [
        (1, 0, "agent", "assistant", True, "Hi! How can I help you today?"),
        (2, 1, "user", "user", False, "I am user_kim_0000, cancel RES000."),
        (5, 1, "agent", "assistant", False, "That cannot be done."),
        (6, 2, "user", "user", False, "Thanks. ###STOP###"),
    ]
    assert ask(maker, "select turns, termination, tool_calls, tool_errors from attempts") == [
        (2, "user_stop", 1, 1)
    ]


def test_the_benchmarks_floor_stands_beside_what_was_published(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, dirty()), suite)
    run_of_ours(maker, suite)
    loaded(maker)
    rows = ask(maker, "select origin, floor from scorecard where category is null order by origin")
    assert rows == [("imported", pytest.approx(1 / 3)), (None, pytest.approx(1 / 3))]


def test_a_run_of_ours_is_compared_over_the_tasks_that_are_known(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, dirty()), suite)
    run_of_ours(maker, suite, solved=("1",))
    loaded(maker)
    columns = (
        "tasks, published_tasks, unmapped_tasks, pass_at_1, our_pass_at_1, better, worse, same"
    )
    rows = ask(maker, f"select {columns} from published_comparison")
    assert rows == [(2, 3, 1, 0.5, 0.5, 1, 1, 0)]
    assert ask(maker, "select coverage from published_comparison") == [(pytest.approx(2 / 3),)]


def test_two_files_of_one_configuration_are_two_cells(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, trials([[1], [1], [1]])), suite)
    publish(maker, results_file(tmp_path, trials([[0], [0], [0]]), name="other.json"), suite)
    loaded(maker)
    rows = ask(maker, "select pass_at_1 from scorecard where category is null order by 1")
    assert rows == [(0.0,), (1.0,)]


def test_shards_are_not_needed_and_a_rebuild_says_the_same(
    maker: Maker, loaded: Load, tmp_path: Path, suite: LoadedSuite
) -> None:
    publish(maker, results_file(tmp_path, dirty()), suite)
    loaded(maker)
    asked = "select to_json(a) from attempts a order by attempt_key"
    before = ask(maker, asked)
    loaded(maker, rebuild=True)
    assert [json.loads(row[0]) for row in ask(maker, asked)] == [
        json.loads(row[0]) for row in before
    ]
