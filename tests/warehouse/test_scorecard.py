"""The scorecard is the same bytes for the same evidence, and readable where it is printed."""

from __future__ import annotations

import json
from collections.abc import Callable

import duckdb
import pytest
from made import NOISY, NULL, ORACLE, SHELL, Config, Maker, make_suite, run_all

from warehouse.load import LoadReport
from warehouse.query import connect
from warehouse.scorecard import (
    KEY,
    interval,
    money,
    percent,
    rate,
    refused_cells,
    render,
    scorecard_json,
    scorecard_rows,
    seconds,
)

Load = Callable[..., LoadReport]


def printed(maker: Maker, loaded: Load, width: int = 80, sweep_id: str | None = None) -> str:
    """The scorecard as a person sees it."""
    loaded(maker)
    with connect(maker.warehouse, sweep_id=sweep_id) as con:
        return render(scorecard_rows(con), width, False, refused_cells(con))


def test_rows_come_in_the_order_of_their_key(con: duckdb.DuckDBPyConnection) -> None:
    rows = scorecard_rows(con)
    keys = [[(row[name] is not None, row[name] or "") for name in KEY] for row in rows]
    assert keys == sorted(keys)
    assert rows[0]["category"] is None


def test_rows_can_be_of_some_suites_or_of_one_sweep(con: duckdb.DuckDBPyConnection) -> None:
    assert {row["suite"] for row in scorecard_rows(con, ["bfcl-mixed"])} == {"bfcl-mixed"}
    assert scorecard_rows(con, []) == []
    rows = scorecard_rows(con, sweep_id="20260301T000000-cut")
    assert {row["harness"] for row in rows} == {"cut"}
    assert len(scorecard_rows(con)) > len(rows), "the connection is as it was"


def test_json_is_a_document_with_a_versioned_schema(con: duckdb.DuckDBPyConnection) -> None:
    document = json.loads(scorecard_json(con))
    assert document["schema"] == "dyno.scorecard/1"
    assert len(document["rows"]) == len(scorecard_rows(con))
    assert document["refused"][0]["reason"] == "speaks a wire the model does not"
    text = scorecard_json(con).decode()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_json_keeps_null_apart_from_0(con: duckdb.DuckDBPyConnection) -> None:
    rows = json.loads(scorecard_json(con))["rows"]
    null_agent = [row for row in rows if row["model"] == "null"]
    assert {row["pass_at_1"] for row in null_agent} == {0.0}
    assert {row["cost_per_solved"] for row in null_agent} == {None}
    assert {row["mean_cost"] for row in rows if row["harness"] == "own-login"} == {None}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(con: duckdb.DuckDBPyConnection, width: int) -> None:
    text = render(scorecard_rows(con), width, False, refused_cells(con))
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text, "no figure is cut"


def test_every_figure_is_there_at_80_columns(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite()], [ORACLE, NOISY, NULL], repeats=3))
    text = printed(maker, loaded)
    heads = ["pass@1", "[95 %]", "pass^3", "cover", "floor", "$/solved", "err", "time", "-start"]
    [head] = [line for line in text.splitlines() if line.strip().startswith("pass@1 ")]
    assert head.replace("[95 %]", "[95%]").split() == [h.replace(" ", "") for h in heads]
    [line] = [line for line in text.splitlines() if line.startswith("reference oracle")]
    assert line.split()[2:] == [
        "1.000",
        ".51–1.00",
        "1.000",
        "100%",
        "0.000",
        "0.0004",
        "0%",
        "2.5",
        "1.0",
    ]


def test_the_heading_tells_the_versions(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite(version="7")], [NOISY]))
    text = " ".join(printed(maker, loaded).split())
    assert "bfcl-simple-python 7 · 4 tasks · dataset 2026.3.23 · graded by bfcl@2026.3.23+1" in text


def test_what_is_not_measured_is_na_and_never_0(maker: Maker, loaded: Load) -> None:
    unmetered = Config(
        harness="own-login", model="label", behaviour=None, unmetered=True, prices=None
    )
    for one in maker.sweep([make_suite()], [unmetered]):
        maker.attempt(one, True, statuses=())
    text = printed(maker, loaded)
    [line] = [line for line in text.splitlines() if line.startswith("own-login label")]
    assert line.split()[2:] == ["1.000", ".51–1.00", "100%", "n/a", "n/a", "n/a", "2.5", "1.0"]
    assert "the cost of 4 of 4 attempts is not known" in " ".join(text.split())


def test_one_repeat_has_no_pass_hat_k_to_show(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    assert "pass^1" not in printed(maker, loaded)


def test_a_suite_of_one_category_is_one_line_a_configuration(maker: Maker, loaded: Load) -> None:
    suites = [make_suite(), make_suite("bfcl-two", {"multiple": 2, "parallel": 2})]
    run_all(maker, maker.sweep(suites, [NOISY]))
    lines = printed(maker, loaded).splitlines()
    assert not any(line.startswith("  simple_python") for line in lines)
    assert any(line.startswith("  multiple") for line in lines)


def test_what_is_in_no_rate_is_said_in_words(maker: Maker, loaded: Load) -> None:
    refused = Config(harness="other", refused="speaks the messages wire")
    suite = make_suite(categories={"simple_python": 8})
    planned = maker.sweep([suite], [NOISY, refused], limit=6)
    run_all(maker, planned[:2])
    maker.attempt(planned[2], error="host_lost")
    maker.attempt(planned[3], None)
    maker.interrupted(planned[4])
    text = " ".join(printed(maker, loaded).split())
    who = "bfcl-simple-python · reference noisy"
    assert (
        f"{who}: of 6 attempts 1 ended in an infrastructure error, 1 could not be graded, or are not yet,"
        " 1 were stopped or are under way, 1 have not been run; they are in no rate." in text
    )
    assert "bfcl-simple-python 2026.3.23 · 6 of 8 tasks, so no index" in text
    assert "Refused: bfcl-simple-python · other noisy: speaks the messages wire." in text
    assert "33.3%" in text


def test_what_holds_of_several_configurations_is_said_once(maker: Maker, loaded: Load) -> None:
    suite = make_suite()
    maker.sweep([suite], [NOISY, SHELL], name="cut", limit=2)
    maker.sweep([suite], [ORACLE], name="whole")
    text = " ".join(printed(maker, loaded).split())
    assert "2 to 4 of 4 tasks" in text
    names = "reference noisy, shell noisy"
    assert f"· {names}: of 2 attempts 2 have not been run; they are in no rate." in text
    assert f"· {names}: asked 2 of 4 tasks, so it has no index." in text


def test_two_editions_under_one_version_are_told_apart(maker: Maker, loaded: Load) -> None:
    suites = [make_suite(categories={"simple_python": count}) for count in (2, 3)]
    run_all(maker, maker.sweep(suites, [NOISY]))
    text = printed(maker, loaded)
    assert all(f"(edition {suite['digest'][:8]})" in text for suite in suites)


def test_pass_hat_k_is_shown_for_the_highest_k_that_is_known(maker: Maker, loaded: Load) -> None:
    suite = make_suite(categories={"simple_python": 3})
    planned = maker.sweep([suite], [NOISY], repeats=4)
    run_all(maker, [one for one in planned if one.repeat < 3 or one.task["id"].endswith("0")])
    assert "pass^3" in printed(maker, loaded)


def test_nothing_yet_is_said(maker: Maker, loaded: Load) -> None:
    assert printed(maker, loaded).startswith("Nothing to show yet")


def test_colour_only_where_it_is_asked_for(con: duckdb.DuckDBPyConnection) -> None:
    rows = scorecard_rows(con)
    assert "\x1b[" not in render(rows, 80, False)
    assert "\x1b[" in render(rows, 80, True)


def test_a_mode_that_is_not_once_is_named(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite()], [SHELL, Config(harness="shell", mode="workflow")]))
    assert "shell (workflow)" in " ".join(printed(maker, loaded, 120).split())


def test_figures_do_not_claim_more_than_they_say() -> None:
    assert [rate(x) for x in (None, 0.0, 1.0, 0.5, 0.9999, 0.0001)] == [
        "n/a", "0.000", "1.000", "0.500", ">.999", "<.001",
    ]  # fmt: skip
    assert [percent(x) for x in (None, 0.0, 1.0, 0.031, 0.99999, 0.00001)] == [
        "n/a", "0%", "100%", "3.1%", "99.9%", "0.1%",
    ]  # fmt: skip
    assert [money(x) for x in (None, 0, 0.000551, 0.0561, 1.5, 123.456)] == [
        "n/a", "0", "0.00055", "0.056", "1.500", "123.46",
    ]  # fmt: skip
    assert [seconds(x) for x in (None, 2.54, 312.4)] == ["n/a", "2.5", "312"]
    assert interval(None, None) == "n/a"


TALKING = Config(user_model="gpt-user")
IDLE = Config(model="null", behaviour="null", user_model="scripted")


def test_the_floor_of_an_earlier_sweep_stands_beside_a_later_ones_scores(
    maker: Maker, loaded: Load
) -> None:
    suite = make_suite()
    run_all(maker, maker.sweep([suite], [ORACLE, NULL], name="controls"))
    run_all(maker, maker.sweep([suite], [NOISY], name="later"))
    loaded(maker)
    with connect(maker.warehouse, sweep_id="20260301T000000-later") as con:
        rows = scorecard_rows(con)
        document = json.loads(scorecard_json(con))
    assert {row["model"] for row in rows} == {"noisy"}
    assert [row["floor"] for row in rows] == [0.0, 0.0]
    assert [row["floor"] for row in document["rows"]] == [0.0, 0.0]


def test_another_suites_floor_is_none_of_a_score(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite(version="1")], [NULL], name="controls"))
    run_all(maker, maker.sweep([make_suite(version="2")], [NOISY], name="later"))
    loaded(maker)
    with connect(maker.warehouse, sweep_id="20260301T000000-later") as con:
        assert {row["floor"] for row in scorecard_rows(con)} == {None}


def test_a_floor_with_the_scripted_user_is_shown_and_marked(maker: Maker, loaded: Load) -> None:
    suite = make_suite()
    run_all(maker, maker.sweep([suite], [IDLE], name="controls"))
    run_all(maker, maker.sweep([suite], [TALKING], name="later"))
    text = printed(maker, loaded, 100, sweep_id="20260301T000000-later")
    assert "0.000*" in text
    assert "* the floor is with the user 'scripted'" in " ".join(text.split())


def test_a_floor_with_the_same_user_is_preferred_and_not_marked(maker: Maker, loaded: Load) -> None:
    suite = make_suite()
    same = Config(model="null", harness="shell", behaviour="null", user_model="gpt-user")
    for one in maker.sweep([suite], [IDLE, same], name="controls"):
        maker.attempt(one, one.config == same)
    run_all(maker, maker.sweep([suite], [TALKING], name="later"))
    loaded(maker)
    with connect(maker.warehouse, sweep_id="20260301T000000-later") as con:
        rows = scorecard_rows(con)
    assert {(row["floor"], row["floor_user_model"]) for row in rows} == {(1.0, "gpt-user")}
    assert "*" not in render(rows, 100)


def test_a_floor_that_leaves_out_tasks_of_the_score_is_none(maker: Maker, loaded: Load) -> None:
    suite = make_suite(categories={"simple_python": 2, "multiple": 2})
    part = {**suite, "tasks": suite["tasks"][:3]}
    run_all(maker, maker.sweep([suite], [NULL], name="a-floor", limit=3))
    run_all(maker, maker.sweep([suite], [NOISY], name="whole"))
    run_all(maker, maker.sweep([part], [SHELL], name="part"))
    maker.sweep([suite], [ORACLE], name="snapshot")  # the whole suite's tasks again
    loaded(maker)
    with connect(maker.warehouse) as con:
        rows = {(row["harness"], row["model"], row["category"]): row for row in scorecard_rows(con)}
    floors = {key: row["floor"] for key, row in rows.items() if key[1] == "noisy"}
    assert floors == {
        ("reference", "noisy", None): None,
        ("reference", "noisy", "multiple"): None,
        ("reference", "noisy", "simple_python"): 0.0,
        ("shell", "noisy", None): 0.0,
        ("shell", "noisy", "multiple"): 0.0,
        ("shell", "noisy", "simple_python"): 0.0,
    }
