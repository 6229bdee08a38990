"""An import leaves evidence in the form that a live attempt leaves, once, and all of it or nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suites.home import PROJECT
from suites.loading_suites import save_suite
from tasks.imports.agreement import agreements
from tasks.imports.mapping import map_simulations
from tasks.imports.results import Results, read_results
from tasks.imports.writing import Imported, imported_sweeps, write_import
from tasks.plans import Plan
from tests.published import GREETING, REAL, results_file, simulation, small_suite, upstream_task
from warehouse.evidence import Bundle, Evidence

TASKS = [upstream_task(number) for number in range(3)]
SUITE = small_suite(TASKS)


def publish(evidence: Evidence, results: Results, **options: Any) -> Imported:
    return write_import(results, map_simulations(results, SUITE.tasks), SUITE, evidence, **options)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "evidence")


def every(evidence: Evidence) -> list[str]:
    return list(evidence.keys())


def only(evidence: Evidence) -> Bundle:
    [key] = evidence.keys()
    bundle = evidence.published(key)
    assert bundle is not None
    return bundle


def one_of(
    evidence: Evidence, tmp_path: Path, messages: list[dict[str, Any]], **fields: Any
) -> Bundle:
    told = simulation(TASKS[0], messages=messages, **fields)
    publish(evidence, results_file(tmp_path, [told]))
    return only(evidence)


def call(number: int, requestor: str = "assistant", **arguments: Any) -> dict[str, Any]:
    return {
        "id": f"c{number}",
        "name": f"tool_{number}",
        "arguments": arguments,
        "requestor": requestor,
    }


def answer(
    number: int, content: str, requestor: str = "assistant", **fields: Any
) -> dict[str, Any]:
    return {
        "role": "tool",
        "id": f"c{number}",
        "content": content,
        "requestor": requestor,
        **fields,
    }


def in_order(bundle: Bundle) -> list[tuple[Any, ...]]:
    rows = [*bundle.rows("bridge.jsonl"), *bundle.rows("conversation.jsonl")]
    found = []
    for row in sorted(rows, key=lambda row: row["seq"]):
        what = {
            "message": row.get("content"),
            "call": row.get("tool"),
            "result": row.get("text"),
            "end": row.get("reason"),
        }[row["event"]]
        found.append((row["seq"], row["event"], row["requestor"], what))
    return found


def test_several_calls_of_one_message_stay_in_their_order_with_their_results(
    evidence: Evidence, tmp_path: Path
) -> None:
    bundle = one_of(
        evidence,
        tmp_path,
        [
            {"role": "assistant", "content": GREETING},
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": "I look.", "tool_calls": [call(1), call(2)]},
            answer(2, "two"),
            answer(1, "one"),
            {"role": "user", "content": None, "tool_calls": [call(3, "user")]},
            answer(3, "three", "user"),
            {"role": "user", "content": "Done. ###STOP###"},
        ],
    )
    assert in_order(bundle) == [
        (1, "message", "agent", GREETING),
        (2, "message", "user", "Go on."),
        (3, "message", "agent", "I look."),
        (4, "call", "agent", "tool_1"),
        (5, "result", "agent", "one"),
        (6, "call", "agent", "tool_2"),
        (7, "result", "agent", "two"),
        (8, "call", "user", "tool_3"),
        (9, "result", "user", "three"),
        (10, "message", "user", "Done. ###STOP###"),
        (11, "end", "agent", "user_stop"),
    ]
    conversation = bundle.record["host"]["conversation"]
    assert (conversation["turns"], conversation["steps"], conversation["errors"]) == (2, 9, 0)
    assert bundle.record["host"]["tool_calls"] == 2
    ids = [row["id"] for row in bundle.rows("bridge.jsonl") if row["event"] == "call"]
    assert ids == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"error": True}, "tool_error"),
        ({"error": False}, "ok"),
        ({}, "tool_error"),  # a file that leaves `error` out: by upstream's own words
    ],
)
def test_a_failed_call_is_an_error_of_the_tool(
    evidence: Evidence, tmp_path: Path, fields: dict[str, Any], status: str
) -> None:
    told = [
        {"role": "assistant", "content": None, "tool_calls": [call(1)]},
        answer(1, "Error: no such user", **fields),
    ]
    bundle = one_of(evidence, tmp_path, told)
    results = [row for row in bundle.rows("bridge.jsonl") if row["event"] == "result"]
    assert [row["status"] for row in results] == [status]


def test_bundles_of_tool_messages_are_unpacked(evidence: Evidence, tmp_path: Path) -> None:
    told = [
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
        {"role": "tool", "tool_messages": [answer(1, "one"), answer(2, "two")]},
    ]
    bundle = one_of(evidence, tmp_path, told)
    assert [what for *_, what in in_order(bundle)][:4] == ["tool_1", "one", "tool_2", "two"]


@pytest.mark.parametrize(
    ("reason", "ending", "blame"),
    [
        ("user_stop", "clean", None),
        ("agent_stop", "clean", None),
        ("max_steps", "budget", None),
        ("too_many_errors", "budget", None),
        ("timeout", "timeout", "infra"),
        ("agent_error", "crashed", "agent"),
        ("user_error", "crashed", "user"),
        ("something_new", "crashed", None),
    ],
)
def test_every_reason_is_an_ending(
    evidence: Evidence, tmp_path: Path, reason: str, ending: str, blame: str | None
) -> None:
    bundle = one_of(evidence, tmp_path, [], termination_reason=reason)
    record = bundle.record
    assert (record["ending"], record["blame"]) == (ending, blame)
    assert record["host"]["conversation"]["ended"] == reason


def test_what_came_to_no_result_is_no_failure(evidence: Evidence, tmp_path: Path) -> None:
    bundle = one_of(evidence, tmp_path, [], termination_reason="infrastructure_error", reward=0.0)
    [grade] = evidence.grades(bundle.key)
    assert (grade["solved"], grade["score"]) == (None, None)
    assert grade["error"]["type"] == "not_evaluable"


def test_the_published_grade_keeps_the_components(evidence: Evidence, tmp_path: Path) -> None:
    publish(evidence, results_file(tmp_path, [simulation(TASKS[0], reward=0.0)]))
    [grade] = evidence.grades(only(evidence).key)
    assert (grade["grader"], grade["grader_version"]) == ("tau2-published", "0123456789ab")
    assert (grade["solved"], grade["score"]) == (False, 0.0)
    headline = {c["name"]: c["passed"] for c in grade["checks"] if c["headline"]}
    assert headline == {"DB": False, "COMMUNICATE": True}
    assert {c["name"] for c in grade["checks"]} >= {"action 0_0", "assertion 0"}


def test_the_simulation_is_kept_as_it_was(evidence: Evidence, tmp_path: Path) -> None:
    told = simulation(TASKS[0], trial=0)
    publish(evidence, results_file(tmp_path, [told]))
    kept = only(evidence).folder / "final" / "simulation.json"
    assert json.loads(kept.read_bytes()) == told


def test_half_a_surrogate_pair_is_kept_as_visible_text(evidence: Evidence, tmp_path: Path) -> None:
    bundle = one_of(evidence, tmp_path, [{"role": "user", "content": "bad \ud800 text"}])
    assert [row["content"] for row in bundle.rows("conversation.jsonl")[:1]] == ["bad \\ud800 text"]


def test_importing_again_makes_nothing_new(evidence: Evidence, tmp_path: Path) -> None:
    results = results_file(tmp_path, [simulation(task) for task in TASKS])
    first = publish(evidence, results)
    before = {path: path.read_bytes() for path in evidence.root.rglob("*") if path.is_file()}
    again = publish(evidence, results)
    assert (again.sweep_id, again.new, again.again) == (first.sweep_id, 0, True)
    assert {p: p.read_bytes() for p in evidence.root.rglob("*") if p.is_file()} == before


def test_another_file_or_name_is_another_import(evidence: Evidence, tmp_path: Path) -> None:
    told = [simulation(task) for task in TASKS]
    publish(evidence, results_file(tmp_path, told))
    other = results_file(tmp_path, [*told[:2], simulation(TASKS[2], reward=0.0)], name="b.json")
    assert publish(evidence, other).new == 3
    assert publish(evidence, other, name="theirs").new == 3
    assert len(imported_sweeps(evidence)) == 3


def test_the_plan_can_be_read_back(evidence: Evidence, tmp_path: Path) -> None:
    told = [
        simulation(TASKS[0], named="1"),
        simulation(TASKS[1], named="0", trial=1),
        simulation(TASKS[2], judged=False, messages=[]),
    ]
    made = publish(evidence, results_file(tmp_path, told))
    plan = Plan.read(evidence, made.sweep_id)
    assert plan.sweep.repeats == 2
    assert [plan.has_task(one) for one in plan.of_cell(0)] == [True, True, False]
    assert [(one["task_id"], one["repeat"]) for one in plan.of_cell(0)] == [
        ("0", 0),
        ("1", 1),
        ("unmapped-2", 0),
    ]


KILLED = """
import sys
from pathlib import Path
from tests.published import small_suite, upstream_task
from tasks.imports.mapping import map_simulations
from tasks.imports.results import read_results
from tasks.imports.writing import write_import
from warehouse.evidence import Evidence

suite = small_suite([upstream_task(number) for number in range(3)])
results = read_results(Path(sys.argv[1]))
write_import(results, map_simulations(results, suite.tasks), suite, Evidence(Path(sys.argv[2])))
"""


def test_a_killed_import_leaves_no_sweep_and_the_next_goes_on(
    evidence: Evidence, tmp_path: Path
) -> None:
    told = [simulation(TASKS[number % 3], trial=number // 3) for number in range(900)]
    results = results_file(tmp_path, told)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(results.path), str(evidence.root)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    until = time.monotonic() + 60
    while not (evidence.root / "attempts").is_dir() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sum(evidence.is_done(key) for key in every(evidence))
    assert done < 900
    assert imported_sweeps(evidence) == {}
    made = publish(evidence, results)
    assert made.new == 900 - done
    assert all(evidence.is_done(key) for key in every(evidence))
    assert not list(evidence.root.rglob(".import-*"))
    assert all(len(evidence.tries(key)) == 1 for key in every(evidence))


def test_agreement_names_who_disagrees_and_who_could_not_be_compared(
    evidence: Evidence, tmp_path: Path
) -> None:
    told = [
        simulation(TASKS[0], named="1"),
        simulation(TASKS[1], named="0", reward=0.0),
        simulation(TASKS[2], trial=1, named="0"),
        simulation(TASKS[2], judged=False, messages=[]),
    ]
    made = publish(evidence, results_file(tmp_path, told))
    planned = imported_sweeps(evidence)[made.sweep_id]["attempts"]
    for attempt, score in ((planned[0], 1.0), (planned[1], 1.0)):
        bundle = evidence.published(attempt["key"])
        assert bundle is not None
        grade = {
            "grader": "tau2",
            "grader_version": "26.3+1",
            "spec_hash": "ab" * 32,
            "bundle_hash": bundle.hash,
            "graded_at": "2026-12-01T00:00:00+00:00",
            "solved": score == 1,
            "score": score,
            "error": None,
            "checks": [],
        }
        evidence.write_grade(attempt["key"], grade)
    [found] = agreements(evidence, [made.sweep_id])
    first, *rest = found.lines()
    assert first == (
        "published.json: 1 of 2 mapped agree with the published reward; 1 left out: no task; "
        "1 could not be compared"
    )
    assert "task 1" in rest[0]
    assert "published 0, regraded 1" in rest[0]
    assert "not regraded" in rest[1]
    assert agreements(evidence, []) == []


@pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not on this machine")
def test_the_real_file_in_four_trials(tmp_path: Path, evidence: Evidence) -> None:
    """Four trials made of the real one: every attempt has its own repeat of its own task."""
    value = json.loads(REAL.read_bytes())
    real = value["simulations"]
    value["simulations"] = [{**one, "trial": trial} for trial in range(4) for one in real]
    path = tmp_path / "four.json"
    path.write_text(json.dumps(value))
    results = read_results(path)
    suite = small_suite(results.tasks)
    made = write_import(results, map_simulations(results, suite.tasks), suite, evidence)
    planned = imported_sweeps(evidence)[made.sweep_id]["attempts"]
    assert len({(one["task_id"], one["repeat"]) for one in planned}) == 200
    assert {one["repeat"] for one in planned} == {0, 1, 2, 3}


def test_a_suite_of_the_tests_is_one_that_can_be_saved(tmp_path: Path) -> None:
    assert save_suite(tmp_path / "suite", SUITE.suite, SUITE.tasks) == SUITE.digest
