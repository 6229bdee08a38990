"""Every view does what its words say: the tests beside it hold, and its figures are right where known."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from math import comb
from typing import Any

import duckdb
import pytest
from made import NOISY, NULL, ORACLE, SHELL, Config, Maker, ask, make_suite, run_all

from warehouse import describe
from warehouse.describe import View, read_views

VIEWS = {view.name: view for view in read_views()}


def stated(kind: str) -> list[Any]:
    """(view, what to test) for every test of that kind."""
    found = []
    for view in VIEWS.values():
        told = view.tests.get(kind, [])
        items = [told] if kind == "unique" and told else list(told)
        found += [pytest.param(view, item, id=f"{view.name}-{str(item)[:50]}") for item in items]
    return found


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_every_column_is_described_in_its_order(con: duckdb.DuckDBPyConnection, view: View) -> None:
    columns = [row[0] for row in con.execute(f"describe {view.name}").fetchall()]
    assert columns == list(view.columns)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_the_words_travel_with_the_file(con: duckdb.DuckDBPyConnection, view: View) -> None:
    told = con.execute(
        "select column_name, comment from duckdb_columns() where table_name = ?", [view.name]
    ).fetchall()
    assert dict(told) == view.columns


@pytest.mark.parametrize(("view", "columns"), stated("unique"))
def test_one_row_a_key(read: duckdb.DuckDBPyConnection, view: View, columns: list[str]) -> None:
    key = ", ".join(columns)
    sql = f"select {key}, count(*) from {view.name} group by {key} having count(*) > 1"
    assert read.execute(sql).fetchall() == []


@pytest.mark.parametrize(("view", "column"), stated("not_null"))
def test_never_null(read: duckdb.DuckDBPyConnection, view: View, column: str) -> None:
    assert read.execute(f"from {view.name} where {column} is null").fetchall() == []


@pytest.mark.parametrize(("view", "column"), stated("rates"))
def test_rates_are_between_0_and_1(
    read: duckdb.DuckDBPyConnection, view: View, column: str
) -> None:
    assert read.execute(f"from {view.name} where {column} not between 0 and 1").fetchall() == []


@pytest.mark.parametrize(("view", "words"), stated("identities"))
def test_identities_hold(read: duckdb.DuckDBPyConnection, view: View, words: str) -> None:
    condition = view.tests["identities"][words].strip()
    if not condition.startswith("select "):
        condition = f"select * from {view.name} where not coalesce(({condition}), true)"
    assert read.execute(condition).fetchall() == [], words


@pytest.mark.parametrize("name", sorted(set(VIEWS) - {"floors"}))
def test_no_view_is_empty(read: duckdb.DuckDBPyConnection, name: str) -> None:
    assert read.execute(f"from {name} limit 1").fetchone() is not None


def test_the_page_of_views_is_up_to_date() -> None:
    assert describe.PAGE.read_text() == describe.page(), "run `python -m warehouse.describe`"


def test_every_table_column_is_described(con: duckdb.DuckDBPyConnection) -> None:
    told = {
        name: [column for column, _, _ in columns] for name, _, columns in describe.read_tables()
    }
    tables = con.execute("select table_name from duckdb_tables() where not internal").fetchall()
    there = {
        name: [row[0] for row in con.execute(f"describe {name}").fetchall()] for (name,) in tables
    }
    assert told == there


# ---------------------------------------------------------------- outcomes


def test_what_became_of_an_attempt_decides_its_outcome(maker: Maker, loaded: Any) -> None:
    cases: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "solved": (lambda p: maker.attempt(p, True), ("solved", None, None)),
        "failed": (lambda p: maker.attempt(p, False), ("failed", None, None)),
        "unjudged": (lambda p: maker.attempt(p, None), ("grader_error", "grader", "evidence_hole")),
        "ungraded": (
            lambda p: maker.attempt(p, True, graded=False),
            ("grader_error", "grader", "ungraded"),
        ),
        "broken": (
            lambda p: maker.attempt(p, error="host_lost"),
            ("infra_error", "infra", "host_lost"),
        ),
        "stopped": (
            lambda p: maker.attempt(p, error="cancelled"),
            ("cancelled", "infra", "cancelled"),
        ),
        "killed": (lambda p: maker.interrupted(p), ("cancelled", "infra", "interrupted")),
        "sealed": (
            lambda p: maker.attempt(p, True, published=False),
            ("cancelled", None, "unpublished"),
        ),
        "untouched": (lambda p: None, (None, None, None)),
        "retried": (
            lambda p: [maker.attempt(p, error="host_lost"), maker.attempt(p, True)],
            ("solved", None, None),
        ),
        "disturbed": (
            lambda p: [maker.attempt(p, False), maker.interrupted(p)],
            ("failed", None, None),
        ),
    }
    for one in maker.sweep([make_suite(categories=dict.fromkeys(cases, 1))], [NOISY]):
        cases[one.task["category"]][0](one)
    loaded(maker)
    found = ask(maker, "select category, outcome, blame, error_class from attempts")
    assert {name: tuple(rest) for name, *rest in found} == {n: e for n, (_, e) in cases.items()}


def test_a_published_bundle_that_cannot_be_read_is_a_grader_error(
    maker: Maker, loaded: Any
) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, True)
    (bundle.folder / "bridge.jsonl").write_text("edited\n")
    loaded(maker)
    found = ask(maker, "select outcome, error_class from attempts")
    assert found == [("grader_error", "corrupt_bundle")]


def test_attempts_of_refused_cells_are_skipped(maker: Maker, loaded: Any) -> None:
    """Planning lists none; a manifest that does is believed."""
    import json

    maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    [path] = (maker.root / "sweeps").iterdir()
    manifest = json.loads(path.read_text())
    manifest["cells"][0]["refused"] = "no wire"
    maker.write_manifest(manifest)
    loaded(maker)
    assert ask(maker, "select outcome from attempts") == [("skipped",)]


def test_the_highest_version_of_a_grader_decides(maker: Maker, loaded: Any) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, False, graders=("2026.3.9+1",))
    maker.grade(planned.key, bundle, True, "2026.3.23+1", graded_at="2020-01-01T00:00:00Z")
    loaded(maker)
    assert ask(maker, "select outcome, grader from attempts") == [("solved", "bfcl@2026.3.23+1")]
    assert ask(maker, "select count(*) from grades") == [(2,)]


def test_a_grader_that_could_not_be_asked_takes_no_verdict_back(maker: Maker, loaded: Any) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, True)
    maker.grade(planned.key, bundle, None, graded_at="2099-01-01T00:00:00Z")
    loaded(maker)
    assert ask(maker, "select outcome from attempts") == [("solved",)]
    assert ask(maker, "select count(*) from grades") == [(2,)]


def test_a_grade_of_another_bundle_does_not_count(maker: Maker, loaded: Any) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    lost = maker.attempt(planned, error="host_lost")
    maker.attempt(planned, False)
    maker.grade(planned.key, lost, True, "2027.1.1+1")
    loaded(maker)
    assert ask(maker, "select outcome from attempts") == [("failed",)]


def test_a_grade_counts_only_for_the_spec_that_was_planned(maker: Maker, loaded: Any) -> None:
    import json

    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    maker.attempt(planned, True)
    [path] = (maker.root / "sweeps").iterdir()
    manifest = json.loads(path.read_text())
    manifest["attempts"][0]["spec_hash"] = "ff" * 32
    maker.write_manifest(manifest)
    loaded(maker)
    assert ask(maker, "select outcome, error_class from attempts") == [("grader_error", "ungraded")]


def test_attempts_outlive_the_manifest_of_their_sweep(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite()], [NOISY])
    run_all(maker, planned)
    loaded(maker)
    before = ask(maker, "select attempt_key, cell_id, outcome, cost from attempts order by 1")
    [path] = (maker.root / "sweeps").iterdir()
    path.write_text("{")
    report = loaded(maker, rebuild=True)
    assert [name for name, _ in report.problems] == [f"sweeps/{path.name}"]
    assert (
        ask(maker, "select attempt_key, cell_id, outcome, cost from attempts order by 1") == before
    )


# ---------------------------------------------------------------- rates


def test_an_attempt_in_several_sweeps_counts_once(maker: Maker, loaded: Any) -> None:
    suite = make_suite()
    run_all(maker, maker.sweep([suite], [NOISY], name="one", repeats=2))
    planned = maker.sweep([suite], [NOISY], name="two", repeats=3)
    run_all(maker, [one for one in planned if one.repeat == 2])
    loaded(maker)
    assert ask(maker, "select planned, n from scorecard where category is null") == [(12, 12)]
    assert ask(maker, "select distinct len(sweep_ids) from attempts order by 1") == [(1,), (2,)]


def test_a_connection_narrowed_to_a_sweep_sees_only_its_plan(everything: Maker) -> None:
    from warehouse.query import connect

    with connect(everything.warehouse, sweep_id="20260301T000000-cut") as con:
        assert con.sql("select distinct harness from scorecard").fetchall() == [("cut",)]
        assert con.sql("select count(*) from attempts").fetchall() == [(5,)]


def test_pass_hat_k_is_the_mean_of_the_unbiased_estimate(con: duckdb.DuckDBPyConnection) -> None:
    tasks = con.sql("select cell_id, grader, n, c from task_results").fetchall()
    for cell, grader, hats in con.sql(
        "select cell_id, grader, pass_hat_k from scorecard where category is null"
    ).fetchall():
        own = [(n, c) for cell_id, its, n, c in tasks if (cell_id, its) == (cell, grader)]
        for k, hat in enumerate(hats or [], 1):
            if min(n for n, _ in own) < k:
                assert hat is None
            else:
                assert hat == pytest.approx(sum(comb(c, k) / comb(n, k) for n, c in own) / len(own))


def test_the_interval_is_wilsons_over_clusters(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 40})], [NOISY])
    for number, one in enumerate(planned):
        maker.attempt(one, number < 30)
    loaded(maker)
    p, low, high = ask(
        maker,
        "select pass_at_1, pass_at_1_low, pass_at_1_high from scorecard where category is null",
    )[0]
    n, z = 39, 1.959963984540054  # one repeat: 40 clusters are worth n - 1 draws
    centre = (p + z * z / 2 / n) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert (p, low, high) == (0.75, pytest.approx(centre - half), pytest.approx(centre + half))


def test_a_single_task_has_no_interval(maker: Maker, loaded: Any) -> None:
    run_all(maker, maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY], repeats=4))
    loaded(maker)
    assert ask(maker, "select distinct pass_at_1_low, pass_at_1_high from scorecard") == [
        (None, None)
    ]


def test_two_graders_are_never_in_one_row(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    for number, one in enumerate(planned):
        maker.attempt(one, True, graders=("2026.3.23+1", "2027.1.1+1")[: 1 + number % 2])
    loaded(maker)
    assert ask(
        maker,
        "select grader, n, graded_otherwise, coverage from scorecard where category is null order by 1",
    ) == [("bfcl@2026.3.23+1", 2, 2, 0.5), ("bfcl@2027.1.1+1", 2, 2, 0.5)]


def test_two_editions_of_a_suite_under_one_version_are_never_in_one_row(
    maker: Maker, loaded: Any
) -> None:
    for count in (2, 3):
        suite = make_suite(categories={"simple_python": count})
        run_all(maker, maker.sweep([suite], [NOISY], name=f"n{count}", seed=count))
    loaded(maker)
    assert ask(maker, "select n from scorecard where category is null order by 1") == [(2,), (3,)]


def test_the_floor_is_what_the_null_agent_scores_on_that_suite(maker: Maker, loaded: Any) -> None:
    suite = make_suite(categories={"irrelevance": 1, "multiple": 3})
    for one in maker.sweep([suite], [NOISY, NULL]):
        maker.attempt(one, one.config is NOISY or one.task["category"] == "irrelevance")
    loaded(maker)
    rows = ask(maker, "select category, floor from scorecard where model = 'noisy' order by 1")
    assert rows == [("irrelevance", 1.0), ("multiple", 0.0), (None, 0.25)]


def test_coverage_shows_both_rates(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    for one in planned[:2]:
        maker.attempt(one, True)
    maker.attempt(planned[2], error="host_lost")
    loaded(maker)
    assert ask(
        maker,
        "select planned, n, not_run, infra_errors, pass_at_1, pass_at_1_errors_as_failures"
        " from coverage where category is null",
    ) == [(4, 2, 1, 1, 1.0, pytest.approx(2 / 3))]


# ---------------------------------------------------------------- costs


def test_failures_are_paid_for(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    for number, one in enumerate(planned):
        maker.attempt(one, number == 0)
    loaded(maker)
    cost = ask(maker, "select cost, cost_of_failures, cost_per_solved from cost_per_solved limit 1")
    assert cost == [(pytest.approx(0.0016), pytest.approx(0.0012), pytest.approx(0.0016))]


def test_one_unmeasured_call_makes_the_cost_unknown_and_says_how_much_is_known(
    maker: Maker, loaded: Any
) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    for number, one in enumerate(planned):
        maker.attempt(one, True, measured=number > 0)
    loaded(maker)
    assert ask(
        maker,
        "select cost, cost_per_solved, mean_cost, spend, output, cost_coverage from scorecard limit 1",
    ) == [(None, None, None, None, None, 0.75)]


def test_spend_holds_tries_that_count_for_nothing(maker: Maker, loaded: Any) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    maker.interrupted(planned)
    maker.attempt(planned, error="host_lost")
    maker.attempt(planned, True)
    loaded(maker)
    assert ask(maker, "select tries, cost, spend from attempts") == [
        (3, pytest.approx(0.0004), pytest.approx(0.0012))
    ]


def test_a_harness_with_its_own_login_costs_null_not_0(con: duckdb.DuckDBPyConnection) -> None:
    rows = con.sql(
        "select n > 0, cost, mean_cost, output, cost_coverage from scorecard where harness = 'own-login'"
    ).fetchall()
    assert set(rows) == {(True, None, None, None, 0.0)}


# ---------------------------------------------------------------- indexes and parts


def test_the_index_weighs_categories_as_the_suite_says(maker: Maker, loaded: Any) -> None:
    suite = make_suite(
        "mixed", {"multiple": 2, "parallel": 2}, weights={"multiple": 3, "parallel": 1}
    )
    for one in maker.sweep([suite], [NOISY]):
        maker.attempt(one, one.task["category"] == "multiple")
    loaded(maker)
    assert ask(maker, "select category_index, coverage from category_index") == [(0.75, 1.0)]


def test_a_set_that_was_cut_has_no_index(con: duckdb.DuckDBPyConnection) -> None:
    assert con.sql("from category_index where harness = 'cut'").fetchall() == []
    assert con.sql(
        "select distinct whole from scorecard where harness = 'cut' and category is null"
    ).fetchall() == [(False,)]


def test_bfcl_parts_are_weighed_as_the_leaderboard_does(maker: Maker, loaded: Any) -> None:
    """Sizes and rates chosen so that every wrong way of averaging gives another figure."""
    solved = {
        "simple_python": (10, 9), "simple_java": (4, 1), "simple_javascript": (2, 1), "multiple": (5, 4),
        "parallel": (4, 2), "parallel_multiple": (3, 1), "irrelevance": (4, 3), "live_simple": (6, 5),
        "live_multiple": (9, 3), "live_parallel": (2, 1), "live_parallel_multiple": (1, 1),
        "live_irrelevance": (8, 2),
    }  # fmt: skip
    suites = [
        make_suite(f"bfcl-{name.replace('_', '-')}", {name: n}) for name, (n, _) in solved.items()
    ]
    for one in maker.sweep(suites, [NOISY]):
        category, _, number = one.task["id"].rpartition("_")
        maker.attempt(one, int(number) < solved[category][1])
    loaded(maker)
    found = dict(ask(maker, "select part, score from bfcl_parts"))
    simple = (9 / 10 + 1 / 4 + 1 / 2) / 3
    assert found == {
        "non_live": pytest.approx((simple + 4 / 5 + 2 / 4 + 1 / 3) / 4),
        "live": pytest.approx((5 + 3 + 1 + 1) / 18),
        "irrelevance": pytest.approx((3 / 4 + 2 / 8) / 2),
        "multi_turn": None,
        "agentic": None,
        "overall": None,
    }
    weights = dict(ask(maker, "select part, weight from bfcl_parts"))
    assert weights == {
        "non_live": 10, "live": 10, "irrelevance": 10, "multi_turn": 30, "agentic": 40, "overall": 100,
    }  # fmt: skip


def test_bfcl_overall_is_there_when_every_part_is(maker: Maker, loaded: Any) -> None:
    import re

    sql = VIEWS["bfcl_parts"].sql
    categories = re.findall(r"\('(\w+)', '\w+', '\w+', (?:true|false)\)", sql)
    run_all(maker, maker.sweep([make_suite("bfcl-all", dict.fromkeys(categories, 1))], [ORACLE]))
    loaded(maker)
    assert ask(maker, "select score, missing from bfcl_parts where part = 'overall'") == [(1.0, [])]


def test_bfcl_scopes_are_three_rates_of_the_same_attempts(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    for number, one in enumerate(planned):
        scopes = {
            "attempt_strict": number < 2,
            "first_response": number < 1 if number < 3 else None,
        }
        maker.attempt(one, number < 3, scopes=scopes)
    loaded(maker)
    assert ask(
        maker,
        "select attempt, attempt_strict, first_response, first_response_n from bfcl_scopes limit 1",
    ) == [(0.75, 0.5, pytest.approx(1 / 3), 3)]


def test_a_harness_is_compared_with_the_reference_task_by_task(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY, SHELL])
    verdicts = {"reference": (1, 1, 0, 0), "shell": (1, 0, 1, 1)}
    for one in planned:
        maker.attempt(one, bool(verdicts[one.config.harness][int(one.task["id"][-1])]))
    loaded(maker)
    assert ask(
        maker,
        "select harness, tasks, difference, better, worse, same from harness_vs_reference"
        " where category is null",
    ) == [("shell", 4, 0.25, 2, 1, 1)]


def test_what_a_harness_reports_is_set_beside_the_meter(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 3})], [NOISY])
    maker.attempt(planned[0], True, reported={"input": 200, "output": 100, "cost": 0.0004})
    maker.attempt(planned[1], True, reported={"input": 200, "output": 90, "note": "free words"})
    maker.attempt(planned[2], True, reported={"unknown": 1})
    loaded(maker)
    rows = ask(maker, "select output_difference, agrees from meter_reconciliation order by agrees")
    assert rows == [(-10.0, False), (0.0, True)]


def test_a_scripted_models_ledger_is_set_beside_the_meter(maker: Maker, loaded: Any) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 4})], [NOISY])
    metered = {"input": 200, "cache_read": 0, "cache_write": 0, "output": 100, "reasoning": 0}
    counted = {"requests": 3, **metered}
    maker.attempt(planned[0], True, ledger=counted)
    maker.attempt(planned[1], True, ledger={**counted, "cache_read": 1})
    maker.attempt(planned[2], True, ledger=counted, measured=False)
    maker.attempt(planned[3], True)
    loaded(maker)
    rows = ask(
        maker,
        "select model_calls, ledger_requests, agrees from ledger_reconciliation order by agrees",
    )
    assert rows == [(2, 3, False), (2, 3, True), (2, 3, None)]


def test_tool_calls_are_told_apart_by_what_the_bridge_made_of_them(
    maker: Maker, loaded: Any
) -> None:
    statuses = (
        "ok",
        "refused",
        "unknown_tool",
        "tool_error",
        "timeout",
        "crashed",
        "cancelled",
        "unfinished",
    )
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    maker.attempt(planned, True, statuses=statuses)
    loaded(maker)
    assert ask(
        maker, "select calls, ok, errors, unanswered, tool_error_rate from tool_error_rate limit 1"
    ) == [(8, 1, 5, 2, 0.625)]


def test_different_configurations_stay_apart(maker: Maker, loaded: Any) -> None:
    """Every part of a configuration's name makes a row of its own."""
    configs = [
        Config(harness=h, model=m, harness_version=v, mode=mode)
        for h, m, v, mode in product(("a", "b"), ("x", "y"), ("1", "2"), ("once", "workflow"))
    ]
    run_all(maker, maker.sweep([make_suite(categories={"simple_python": 1})], configs))
    loaded(maker)
    assert ask(maker, "select count(*) from scorecard where category is null") == [(16,)]
