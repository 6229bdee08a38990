"""Real agentd in its four modes: same work, counted to the token, killed and resumed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from suites.loading import load_harness
from tests.tasks.attempt.conftest import Bench, shared_home, shared_shop, shop
from warehouse.evidence import Bundle

__all__ = ["shared_home", "shared_shop", "shop"]

LEDGERS = ["G01", "G02", "G03"]


@pytest.fixture
def bench(shop: Any) -> Bench:
    return Bench(shop)


def run(bench: Bench, harness: Any, **changes: Any) -> Bundle:
    values = {"suites": ["wide"], "models": ["parts"], "only": "wide-03-1"} | changes
    return bench.run(harness, **values)


def entered(bundle: Bundle) -> dict[str, int]:
    """What was entered last for each ledger."""
    calls = [row for row in bundle.rows("bridge.jsonl") if row["event"] == "call"]
    told = [json.loads(row["arguments"]) for row in calls if row["tool"] == "enter_sum"]
    return {one["ledger"]: one["sum"] for one in told}


def events(bundle: Bundle, name: str, file: str = "stderr") -> list[dict[str, Any]]:
    """agentd's own events of one kind."""
    told = [json.loads(line) for line in bundle.text(file).splitlines() if line.startswith("{")]
    return [one for one in told if one["event"] == name]


@pytest.mark.needs_harness("agentd-once")
@pytest.mark.parametrize("mode", ["once", "workflow", "fanout"])
def test_each_mode_does_the_work_and_reports_what_was_metered(bench: Bench, mode: str) -> None:
    bundle = run(bench, f"agentd-{mode}")
    record = bundle.record
    assert (record["ending"], record["error"]) == ("clean", None), bundle.text("stderr")[-2000:]
    assert sorted(entered(bundle)) == LEDGERS
    assert record["stamp"]["harness_version"].startswith("agentd ")
    assert record["stamp"]["mode"] == mode
    usage = record["host"]["usage"]
    assert record["reported"] == {"input": usage["input"], "output": usage["output"]}
    assert record["host"]["ledger"]["input"] == usage["input"]
    loops = {"once": 1, "workflow": 1, "fanout": 4}[mode]
    assert len([e for e in events(bundle, "turn.done") if "tokens_in" in e]) == loops
    # nothing but the bridge's own two tools is offered
    assert {event["tools"] for event in events(bundle, "turn.start")} <= {0, 2}


@pytest.mark.needs_harness("agentd-durable")
def test_durable_is_killed_and_goes_on_from_its_store(bench: Bench) -> None:
    bundle = run(bench, "agentd-durable")
    record = bundle.record
    assert (record["ending"], record["error"]) == ("clean", None), bundle.text("stderr")[-2000:]
    told = [(one["phase"], one["killed"]) for one in record["launches"]]
    assert told == [(1, True), (2, False)]
    assert sorted(entered(bundle)) == LEDGERS
    # the plan was found, not made again
    plans = [e for e in events(bundle, "turn.start") if e["kind"] == "think"]
    assert len(plans) == 1
    assert len(events(bundle, "restore.done", "phases/002.stderr")) == 1
    whose = Counter(row["requestor"] for row in bundle.rows("bridge.jsonl"))
    assert whose["store"] > 0
    assert record["host"]["tool_calls"] == sum(
        row["event"] == "call" and row["requestor"] == "agent"
        for row in bundle.rows("bridge.jsonl")
    )


@pytest.mark.needs_harness("agentd-once")
def test_its_own_limit_of_steps_is_the_end_of_its_budget(bench: Bench) -> None:
    harness = load_harness("agentd-once").harness
    short = harness.model_copy(update={"name": "agentd-short", "settings": {"steps": 3}})
    record = run(bench, short).record
    assert (record["ending"], record["exit_code"], record["error"]) == ("budget", 7, None)


@pytest.mark.needs_harness("agentd-once")
def test_spent_budget_is_its_end_and_no_failure_of_the_endpoint(bench: Bench) -> None:
    record = run(bench, "agentd-once", limits={"model_calls": 2}).record
    assert (record["ending"], record["error"]) == ("budget", None)


@pytest.mark.needs_harness("agentd-fanout")
def test_task_that_the_model_does_not_take_apart_is_one_part(bench: Bench) -> None:
    """The oracle plans nothing: what it answers to the planner is no plan."""
    bundle = run(bench, "agentd-fanout", models=["oracle"])
    assert (bundle.record["ending"], bundle.record["error"]) == ("clean", None)
    assert sorted(entered(bundle)) == LEDGERS
