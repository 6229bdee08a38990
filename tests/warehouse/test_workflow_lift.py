"""The view workflow_lift: what a mode brings and costs beside `once`, and what it does not claim."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import pytest
from made import Config, Maker, ask, make_suite

ONCE = Config(harness="agentd-once", harness_version="9")
FANOUT = Config(harness="agentd-fanout", harness_version="9", mode="fanout", call_cost=0.0003)

LIFT = (
    "select difficulty, tasks, delta, better, worse, delta_cost, dollars_per_extra_solve, p_value, verdict"
    " from workflow_lift where mode = 'fanout'"
)


@pytest.fixture
def lift(maker: Maker, loaded: Any) -> Callable[..., dict[str | None, dict[str, Any]]]:
    """Let two modes happen with these verdicts, by bucket: `{bucket: (once, fanout)}`; the rows by bucket."""

    def run(
        verdicts: dict[str, tuple[str, str]], mode: Config = FANOUT, **attempts: Any
    ) -> dict[str | None, dict[str, Any]]:
        suite = make_suite(
            "wide", {bucket: len(both[0]) for bucket, both in verdicts.items()}, difficulties=True
        )
        for one in maker.sweep([suite], [ONCE, mode]):
            bucket, _, number = one.task["id"].rpartition("_")
            told = verdicts[bucket][one.config is mode][int(number)]
            maker.attempt(one, told == "+", **attempts)
        loaded(maker)
        names = [
            "difficulty",
            "tasks",
            "delta",
            "better",
            "worse",
            "delta_cost",
            "dollars",
            "p",
            "verdict",
        ]
        return {row[0]: dict(zip(names, row, strict=True)) for row in ask(maker, LIFT)}

    return run


def test_gain_has_its_price_and_no_gain_is_told_as_cost(lift: Any) -> None:
    rows = lift({"many": ("-" * 6, "+" * 6), "one": ("+" * 6, "+" * 6)})
    assert set(rows) == {"many", "one", None}
    many, one, whole = rows["many"], rows["one"], rows[None]
    assert (many["delta"], many["better"], many["verdict"]) == (1.0, 6, "gain")
    assert many["delta_cost"] == pytest.approx(0.0002)
    assert many["dollars"] == pytest.approx(0.0002)
    assert (one["delta"], one["dollars"], one["verdict"]) == (0.0, None, "cost without gain")
    assert (whole["delta"], whole["verdict"]) == (0.5, "gain")
    assert whole["dollars"] == pytest.approx(0.0004)


@pytest.mark.parametrize(
    ("once", "fanout", "verdict"),
    [
        ("------", "+++++-", "cost without gain"),  # five of five: p = 0.0625
        ("------", "++++++", "gain"),
        ("++++++", "------", "loss"),
        ("-----", "+++++", "too few tasks"),
        ("-+-+-+-+", "+-+-+-+-", "cost without gain"),
    ],
)
def test_verdict_is_a_sign_test_over_tasks(lift: Any, once: str, fanout: str, verdict: str) -> None:
    row = lift({"b": (once, fanout)})["b"]
    assert row["verdict"] == verdict
    n, k = row["better"] + row["worse"], min(row["better"], row["worse"])
    exact = min(1.0, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n)
    assert row["p"] == pytest.approx(exact)


def test_same_cost_is_a_tie_and_less_is_a_saving(lift: Any) -> None:
    dear = Config(harness="agentd-fanout", harness_version="9", mode="fanout", call_cost=0.0001)
    assert lift({"b": ("+" * 6, "+" * 6)}, dear)["b"]["verdict"] == "saving"


def test_equal_in_all_is_tied(lift: Any) -> None:
    same = Config(harness="agentd-flow", harness_version="9", mode="fanout")
    assert lift({"b": ("+-+-+-", "+-+-+-")}, same)["b"]["verdict"] == "tied within noise"


def test_unmeasured_cost_is_no_cost(lift: Any) -> None:
    row = lift({"b": ("-" * 6, "+" * 6)}, measured=False)["b"]
    assert (row["verdict"], row["delta_cost"], row["dollars"]) == ("gain", None, None)


@pytest.mark.parametrize(
    "other",
    [
        Config(harness="agentd-fanout", harness_version="10", mode="fanout"),
        Config(harness="codex-fanout", harness_version="9", mode="fanout"),
    ],
)
def test_another_harness_or_version_is_no_mode_of_it(lift: Any, other: Config) -> None:
    assert lift({"b": ("-" * 6, "+" * 6)}, other) == {}
