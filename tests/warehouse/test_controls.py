"""What controls say of a suite: who fails where, who keeps what, and what has no result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from made import NULL, ORACLE, Config, Maker, Planned, ask, make_suite

from warehouse.controls import controls_document, controls_json, render_controls
from warehouse.load import LoadReport
from warehouse.query import connect

Load = Callable[..., LoadReport]
VANDAL = Config(model="vandal", behaviour="vandal")
SWEEP = "20260301T000000-controls"


def controlled(
    maker: Maker, loaded: Load, happen: Callable[[Planned, str, str], Any], **changes: Any
) -> dict[str, Any]:
    """The document of controls over one suite; `happen` says what becomes of model and task."""
    suite = make_suite()
    suite["tasks"][3]["oracle"] = {"unsolvable": "gold names a city that is not there"}
    for one in maker.sweep([suite], [ORACLE, NULL, VANDAL], name="controls"):
        happen(one, one.config.model, one.task["id"].rpartition("_")[2])
    loaded(maker)
    with connect(maker.warehouse) as con:
        return controls_document(con, SWEEP)


def as_it_should_be(maker: Maker) -> Callable[[Planned, str, str], Any]:
    return lambda one, model, number: maker.attempt(one, model == "oracle" and number != "3")


def test_what_the_suite_declares_is_told_and_forgiven(maker: Maker, loaded: Load) -> None:
    document = controlled(maker, loaded, as_it_should_be(maker))
    assert document["verdict"] == "ok"
    (suite,) = document["suites"]
    assert suite["controls"]["oracle"]["solved"] == 3
    assert suite["controls"]["oracle"]["tasks"] == 4
    (fail,) = suite["oracle_fails"]
    assert fail["task_id"] == "simple_python_3"
    assert fail["unsolvable"] == "gold names a city that is not there"
    assert "gold names a city that is not there" in " ".join(render_controls(document).split())


def test_an_oracle_that_fails_elsewhere_is_told_with_the_graders_reason(
    maker: Maker, loaded: Load
) -> None:
    document = controlled(maker, loaded, lambda one, model, n: maker.attempt(one, n == "0"))
    assert document["verdict"] == "oracle_fails"
    text = " ".join(render_controls(document).split())
    assert "the oracle fails 2:" in text
    assert (
        "simple_python_1: simple_function_checker:wrong_count: Wrong number of functions." in text
    )
    assert "the null agent passes 1, on doing nothing: simple_python_0" in text
    assert "the vandal keeps 1; the forbidden act cost nothing here: simple_python_0" in text


def test_what_has_no_result_is_apart_and_is_not_the_oracles_failure(
    maker: Maker, loaded: Load
) -> None:
    def happen(one: Planned, model: str, number: str) -> None:
        if model == "oracle" and number == "0":
            maker.attempt(one, error="host_lost")
        elif model == "null" and number == "1":
            maker.attempt(one, None)
        else:
            as_it_should_be(maker)(one, model, number)

    document = controlled(maker, loaded, happen)
    assert document["verdict"] == "errors"
    (suite,) = document["suites"]
    assert [fail["task_id"] for fail in suite["oracle_fails"]] == ["simple_python_3"]
    told = {(e["behaviour"], e["task_id"], e["outcome"]) for e in suite["errors"]}
    assert told == {
        ("oracle", "simple_python_0", "infra_error"),
        ("null", "simple_python_1", "grader_error"),
    }
    assert suite["controls"]["oracle"]["coverage"] == 0.75
    assert "oracle simple_python_0: infra_error: host_lost" in render_controls(document)


def test_controls_are_a_view_like_any_other(maker: Maker, loaded: Load) -> None:
    controlled(maker, loaded, as_it_should_be(maker))
    columns = "behaviour, tasks, solved, rate, coverage, unsolvable"
    assert ask(maker, f"select {columns} from controls order by behaviour desc") == [
        ("vandal", 4, 0, 0.0, 1.0, 1),
        ("oracle", 4, 3, 0.75, 1.0, 1),
        ("null", 4, 0, 0.0, 1.0, 1),
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(maker: Maker, loaded: Load, width: int) -> None:
    document = controlled(
        maker, loaded, lambda one, model, n: maker.attempt(one, model != "oracle")
    )
    text = render_controls(document, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b[" not in text
    assert "\x1b[" in render_controls(document, width, True)


def test_json_is_a_document_with_a_versioned_schema(maker: Maker, loaded: Load) -> None:
    document = controlled(maker, loaded, as_it_should_be(maker))
    assert json.loads(controls_json(document)) == document
    assert document["schema"] == "dyno.controls/1"
