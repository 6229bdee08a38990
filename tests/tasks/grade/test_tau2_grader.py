from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridges.texts import fit
from suites.errors import InputError
from tasks.convert.fetch import Package
from tasks.convert.tau2_asking import Upstream
from tasks.grade import tau2 as grader
from tasks.grade.client import Grading
from tasks.grade.jobs import Job
from tests.tasks.grade.tau2_conversations import (
    Rows,
    failed,
    gold_of,
    greeting,
    published,
    rows_of,
    task_id_of,
    tasks_of,
)

BASIS = ["DB", "COMMUNICATE"]


@pytest.fixture(autouse=True)
def _package(tau2: Package) -> None:
    """Every test here judges with the real package."""


@pytest.fixture
def airline(tau2_home: Path) -> dict[str, dict[str, Any]]:
    return tasks_of(tau2_home, "airline")


def of_published(number: int, tasks: dict[str, dict[str, Any]]) -> Job:
    simulation = published()[number]
    return rows_of(simulation).job(tasks[task_id_of(simulation) or ""])


def with_basis(task: dict[str, Any], *basis: str, **criteria: Any) -> dict[str, Any]:
    changed = {**task["evaluation_criteria"], "reward_basis": list(basis), **criteria}
    return {**task, "evaluation_criteria": changed}


# ---------------------------------------------------------------- real conversations


def test_every_published_reward_of_known_task_is_reproduced(
    airline: dict[str, Any], grading: Grading
) -> None:
    known = [s for s in published() if task_id_of(s) is not None]
    assert len(known) == 43
    jobs = [rows_of(s).job(airline[task_id_of(s) or ""]) for s in known]
    for simulation, grade in zip(known, grading.grade_bundles(jobs), strict=True):
        assert grade["error"] is None
        judged = simulation["reward_info"]
        assert grade["score"] == judged["reward"]
        assert grade["solved"] is (judged["reward"] == 1.0)
        found = {check["name"]: check["passed"] for check in grade["checks"]}
        assert found["DB"] is judged["db_check"]["db_match"]
        actions = [passed for name, passed in found.items() if name.startswith("ACTION")]
        assert actions == [check["action_match"] for check in judged["action_checks"]]


def test_attempts_leave_nothing_to_those_after_them(
    airline: dict[str, Any], grading: Grading
) -> None:
    jobs = [rows_of(s).job(airline[task_id_of(s) or ""]) for s in published() if task_id_of(s)]
    broken = of_published(0, airline)
    assert broken.rows is not None
    broken.rows["bridge"][-1]["text"] = "something else"
    forth = list(grading.grade_bundles(jobs))
    assert grading.grade(broken)["error"]["type"] == "replay_mismatch"
    back = list(grading.grade_bundles(jobs[::-1]))[::-1]
    for grade in (*forth, *back):
        grade.pop("graded_at")
    assert forth == back


@pytest.mark.parametrize("domain", ["airline", "telecom", "mock"])
def test_gold_passes_and_so_do_the_calls_of_the_user(
    tau2: Package, tau2_home: Path, grading: Grading, domain: str
) -> None:
    tasks = list(tasks_of(tau2_home, domain).values())
    places = range(len(tasks)) if len(tasks) < 200 else range(0, len(tasks), 60)
    upstream = Upstream(tau2.folder)
    try:
        runs = upstream.run(domain, [(place, 0) for place in places])
    finally:
        upstream.close()
    jobs, by_users = [], 0
    for place, run in zip(places, runs, strict=True):
        task = tasks[place]
        rows = greeting(domain).says("user", "Please.")
        for call in run["gold"]:
            status = "tool_error" if call["error"] else "ok"
            rows.calls(call["tool"], call["arguments"], call["text"], call["requestor"], status)
            by_users += call["requestor"] == "user"
        facts = (task["evaluation_criteria"] or {}).get("communicate_info") or []
        rows.says("assistant", "; ".join(facts) or "Done.").says("user", "###STOP###")
        jobs.append(rows.ends().job(task))
    grades = list(grading.grade_bundles(jobs))
    unsolved = [job.id for job, grade in zip(jobs, grades, strict=True) if not grade["solved"]]
    assert unsolved == (["update_task_with_history_and_env_assertions"] if domain == "mock" else [])
    assert (by_users > 0) is (domain == "telecom")


def test_doing_nothing_passes_19_of_airlines_tasks(
    airline: dict[str, Any], grading: Grading
) -> None:
    """Twenty have no gold write; one of these (3) wants a number said."""
    rows = greeting("airline").says("user", "Hello.").says("user", "###STOP###").ends()
    grades = list(grading.grade_bundles(rows.job(task) for task in airline.values()))
    assert len(grades) == 50
    assert sum(grade["solved"] for grade in grades) == 19


# ---------------------------------------------------------------- findings


def test_a_world_that_ended_otherwise_is_told_record_by_record(
    airline: dict[str, Any], grading: Grading
) -> None:
    number = next(n for n, s in enumerate(published()) if task_id_of(s) == "12")
    found = failed(grading.grade(of_published(number, airline)))
    assert "cabin is" in found["DB"] or "gold has" in found["DB"]
    assert found["DB"].startswith("The world ended otherwise than gold: ")


def test_parts_outside_of_the_basis_are_told_and_do_not_count(
    airline: dict[str, Any], grading: Grading
) -> None:
    task = next(t for t in airline.values() if gold_of(t) and t["id"] == "7")
    rows = greeting("airline").says("user", "Hello.").ends()
    alone = grading.grade(rows.job(with_basis(task, "COMMUNICATE", communicate_info=[])))
    every = grading.grade(rows.job(with_basis(task, "DB", "ACTION")))
    assert (alone["solved"], every["solved"]) == (True, False)
    assert failed(alone) == {}
    first = next(iter(gold_of(task)))
    assert f"The agent was to call {first['name']}(" in failed(alone, headline=False)["ACTION 1"]
    assert "was never called" in failed(every)["ACTION 1"]


def test_what_must_be_said_is_a_check_each(airline: dict[str, Any], grading: Grading) -> None:
    task = with_basis(airline["0"], "COMMUNICATE", communicate_info=["1628", "blue"])
    rows = greeting("airline").says("user", "?").says("assistant", "It is 1,628.").ends()
    grade = grading.grade(rows.job(task))
    assert grade["score"] == 0.0
    assert failed(grade) == {"COMMUNICATE 2": "The agent never said 'blue'."}


def test_assertions_about_the_users_world_are_checks(tau2_home: Path, grading: Grading) -> None:
    task = next(
        task
        for task in tasks_of(tau2_home, "telecom").values()
        if (task["evaluation_criteria"] or {}).get("env_assertions")
    )
    grade = grading.grade(greeting("telecom").says("user", "Help!").ends().job(task))
    assert grade["score"] == 0.0
    assert failed(grade)["ENV_ASSERTION 1"].startswith("It does not hold that assert_")


def test_an_assertion_about_what_was_never_made_does_not_hold(
    tau2_home: Path, grading: Grading
) -> None:
    """Upstream raises; an attempt that did nothing must not leave the denominator for that."""
    task = tasks_of(tau2_home, "mock")["create_task_1_with_env_assertions"]
    idle = greeting("mock").says("user", "Hello.").says("user", "###STOP###").ends()
    grade = grading.grade(idle.job(task))
    assert (grade["solved"], grade["score"]) == (False, 0.0)
    assert "Task task_2 not found" in failed(grade)["ENV_ASSERTION"]
    elsewhere = grading.grade(idle.job(with_basis(task, "DB")))
    assert elsewhere["error"]["type"] == "grader_raised"


# ---------------------------------------------------------------- endings


@pytest.mark.parametrize("reason", ["max_steps", "too_many_errors", "agent_error", "timeout"])
def test_a_conversation_that_did_not_end_by_a_stop_scores_0(
    airline: dict[str, Any], grading: Grading, reason: str
) -> None:
    easy = airline["0"]
    stopped = greeting("airline").says("user", "Hello.").ends("agent_stop")
    assert grading.grade(stopped.job(easy))["solved"] is True
    rows = greeting("airline").says("user", "Hello.").ends(reason, detail="that was that")
    grade = grading.grade(rows.job(easy))
    assert grade["score"] == 0.0
    finding = failed(grade)["termination"]
    assert f"by {reason} (that was that), not by a stop" in finding
    assert ("has no name for it" in finding) is (reason == "timeout")


def test_an_attempt_that_died_before_the_conversation_ended_scores_0(
    airline: dict[str, Any], grading: Grading
) -> None:
    rows = greeting("airline").says("user", "Hello.")
    grade = grading.grade(rows.job(airline["0"], ending="crashed"))
    assert grade["score"] == 0.0
    assert "with the harness, by crashed" in failed(grade)["termination"]
    hole = grading.grade(rows.job(airline["0"]))
    assert hole["error"]["type"] == "evidence_hole"


def test_what_comes_after_the_end_is_no_part_of_it(
    airline: dict[str, Any], grading: Grading
) -> None:
    rows = greeting("airline").says("user", "Hello.").ends()
    arguments = {"reservation_id": "4WQ150"}
    rows.calls("cancel_reservation", arguments, "never happened").says("assistant", "Ha!")
    assert grading.grade(rows.job(airline["0"]))["solved"] is True


# ---------------------------------------------------------------- evidence that cannot be right


def spoilt(airline: dict[str, Any], change: str) -> Job:
    job = copy.deepcopy(of_published(0, airline))
    assert job.rows is not None
    bridge = job.rows["bridge"]
    calls = [row for row in bridge if row["event"] == "call"]
    results = {row["call"]: row for row in bridge if row["event"] == "result"}
    if change == "another text":
        results[calls[0]["seq"]]["text"] = '{"user_id": "somebody"}'
    elif change == "reordered":
        writes = [c for c in calls if results[c["seq"]]["status"] == "ok"]
        first, last = results[writes[0]["seq"]], results[writes[-1]["seq"]]
        first["text"], last["text"] = last["text"], first["text"]
    elif change == "other arguments":
        calls[0]["arguments"] = '{"user_id": "nobody"}'
    elif change == "no result":
        bridge.remove(results[calls[-1]["seq"]])
    return job


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("another text", "replay_mismatch"),
        ("reordered", "replay_mismatch"),
        ("other arguments", "replay_mismatch"),
        ("no result", "evidence_hole"),
    ],
)
def test_evidence_that_cannot_be_right_is_no_failure_of_the_agents(
    airline: dict[str, Any], grading: Grading, change: str, kind: str
) -> None:
    grade = grading.grade(spoilt(airline, change))
    assert (grade["solved"], grade["score"]) == (None, None)
    assert grade["error"]["type"] == kind


def test_calls_that_the_world_never_carried_out_are_left_out(
    airline: dict[str, Any], grading: Grading
) -> None:
    rows = greeting("airline").says("user", "Hello.")
    for status in ("timeout", "crashed", "refused", "cancelled"):
        arguments = {"reservation_id": "4WQ150"}
        rows.calls("cancel_reservation", arguments, "The tool …", status=status, cut=1)
    rows.calls("get_user_details", ["no object"], "refused", status="tool_error")
    rows.calls("respond_to_user", {"message": "hi"}, "hello")
    rows.bridge[-2]["server"] = "user"
    assert grading.grade(rows.says("user", "###STOP###").ends().job(airline["0"]))["solved"] is True


def test_unknown_tools_and_wrong_arguments_replay_to_upstreams_errors(
    airline: dict[str, Any], grading: Grading
) -> None:
    rows = greeting("airline").says("user", "Hello.")
    rows.calls("made_up", {"a": 1}, "Error: Tool 'made_up' not found.", status="tool_error")
    rows.bridge[0]["native"] = None
    grade = grading.grade(rows.ends().job(airline["0"]))
    assert grade["error"] is None
    assert grade["solved"] is True


@pytest.mark.parametrize(
    ("user", "depth"),
    [("\ud800", 0), ("x" * 900_000, 0), ("x", 700)],
    ids=["a lone surrogate", "a result that is cut", "deep"],
)
def test_no_argument_of_the_agents_leaves_it_ungraded(
    airline: dict[str, Any], grading: Grading, user: str, depth: int
) -> None:
    value: Any = user
    for _ in range(depth):
        value = [value]
    rows = greeting("airline").says("user", "Hello.")
    said = "unhashable type: 'list'" if depth else f"User {user} not found"
    text, cut = fit(f"Error: {said}")
    rows.calls("get_user_details", {"user_id": value}, text, status="tool_error", cut=cut)
    grade = grading.grade(rows.ends().job(airline["0"]))
    assert grade["error"] is None
    assert grade["solved"] is True


def test_calls_that_took_long_may_take_long_to_replay(airline: dict[str, Any]) -> None:
    rows = greeting("airline").says("user", "Hello.")
    slow = {"expression": "1/99**9**7"}  # some ten seconds
    rows.calls("calculate", slow, "0.0", ms=30_000.0).calls("calculate", slow, "0.0", ms=30_000.0)
    with Grading(seconds=8) as impatient:
        grade = impatient.grade(rows.ends().job(airline["0"]))
        assert grade["error"] is None
        assert grade["solved"] is True
        for row in rows.bridge:
            row.pop("ms", None)
        grade = impatient.grade(rows.job(airline["0"]))
        assert grade["error"]["message"] == "the grader took longer than 8 s"


def test_a_history_stands_for_the_opening_and_its_calls_are_replayed(
    tau2_home: Path, grading: Grading
) -> None:
    tasks = tasks_of(tau2_home, "mock")
    task = next(t for t in tasks.values() if (t.get("initial_state") or {}).get("message_history"))
    rows = Rows("mock")
    for message in task["initial_state"]["message_history"]:
        if message.get("content") and message["role"] != "tool":
            rows.says(message["role"], message["content"], opening=True)
    grade = grading.grade(rows.says("assistant", "Bye.").ends().job(task))
    assert grade["error"] is None
    history = copy.deepcopy(task)
    told = [m for m in history["initial_state"]["message_history"] if m["role"] == "tool"]
    if told:
        told[0]["content"] = "otherwise"
        assert grading.grade(rows.job(history))["error"]["type"] == "replay_mismatch"


# ---------------------------------------------------------------- judges and packages


def test_a_reward_that_needs_a_judge_is_not_given_without_one(
    airline: dict[str, Any], grading: Grading
) -> None:
    task = with_basis(airline["0"], "DB", "NL_ASSERTION", nl_assertions=["The agent is kind."])
    rows = greeting("airline").says("user", "Hello.").ends()
    grade = grading.grade(rows.job(task))
    assert (grade["solved"], grade["score"]) == (None, None)
    assert grade["error"]["type"] == "judge_missing"
    assert "task 0 " in grade["error"]["message"]
    assert "`judge: MODEL`" in grade["error"]["message"]


def test_a_package_that_is_not_there_is_a_grader_error_that_says_what_to_do(
    airline: dict[str, Any], grading: Grading
) -> None:
    job = replace(greeting("airline").ends().job(airline["0"]), dataset="2031.1")
    grade = grading.grade(job)
    assert grade["error"]["type"] == "grader_missing"
    assert "dyno convert tau2" in grade["error"]["message"]


def test_a_domain_that_this_version_lacks_is_named(
    airline: dict[str, Any], grading: Grading
) -> None:
    job = Rows("banking_knowledge").ends().job(airline["0"])
    assert "banking_knowledge" in grading.grade(job)["error"]["message"]


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"task": {"id": "1"}}, "domain"),
        ({"domain": "airline"}, "task"),
        ({"domain": "airline", "task": {}}, "task.id"),
        ({"domain": "airline", "task": {"id": "1"}, "more": 1}, "more"),
        (
            {"domain": "a", "task": {"id": "1", "evaluation_criteria": {"reward_basis": ["LUCK"]}}},
            "task.evaluation_criteria.reward_basis",
        ),
        (
            {"domain": "a", "task": {"id": "1", "evaluation_criteria": {"actions": {}}}},
            "task.evaluation_criteria.actions",
        ),
    ],
)
def test_a_spec_it_cannot_judge_by_is_refused_at_its_key(spec: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        grader.validate_spec(json.loads(json.dumps(spec)))
    assert caught.value.where == where
