"""A user that is a model costs money, and the plan says so before it is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import planned
from suites.errors import InputError
from suites.schema import Harness, Model, Sweep
from tasks.planning import make_plan
from tasks.plans import Plan
from tests.tasks.talking import write_suite

PRICES = {"date": "2026-11-01", "input": 10.0, "output": 20.0}


def plan(folder: Path, user: str | Model) -> Plan:
    return make_plan(
        Sweep(
            name="test",
            suites=(write_suite(folder),),
            harnesses=(Harness(name="h", command=("true",), version="1"),),
            models=("oracle",),
            user=user,
        )
    )


def person(**changes: object) -> Model:
    return Model.model_validate({"name": "person", "endpoint": "https://x.example/v1"} | changes)


def test_a_scripted_agent_with_a_real_user_is_confirmed_first(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--yes"):
        planned.confirm(plan(tmp_path, person(prices=PRICES)), yes=False)
    planned.confirm(plan(tmp_path, "scripted"), yes=False)


def test_the_estimate_holds_the_users_part(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted = planned.count(plan(tmp_path, "scripted"))[0].cost
    estimate = {"input": 100_000.0, "output": 1_000.0}
    priced = planned.count(plan(tmp_path, person(prices=PRICES, estimate=estimate)))[0].cost
    assert scripted is not None
    assert priced == pytest.approx(scripted + 1.0 + 0.02)
    planned.print_plan(plan(tmp_path, person()))
    said = capsys.readouterr().out
    assert "Simulated users are played by: person." in said
    assert "an unknown sum for person" in said.replace("\n", " ")


def test_the_models_that_are_called_are_the_agents_and_the_users(
    home: Path, tmp_path: Path
) -> None:
    for user, names in (("scripted", ["oracle"]), (person(), ["oracle", "person"])):
        cell = plan(tmp_path, user).cells[0]
        assert [model.name for model in planned.called(cell)] == names
