from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.attempt.processes import Processes
from tasks.convert.fetch import Package
from tasks.grade.client import Grading
from tasks.grade.judging import judge_line
from tests.tasks.grade.tau2_conversations import greeting, tasks_of

ASSERTION = "The agent is kind."


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    logs = tmp_path / "logs"
    logs.mkdir()
    own = Processes(logs)
    yield own
    own.stop()


def judge_that_says(answer: str) -> dict[str, Any]:
    """A scripted model as the flow hands it to the host."""
    steps = [{"text": answer}]
    return {
        "endpoint": "scripted:playbook",
        "name": "judge",
        "prices": {"input": 1.0, "output": 2.0},
        "scripted": {"behaviour": "playbook", "settings": {"steps": steps}},
    }


def test_a_judge_goes_through_the_gateway_and_is_metered_apart(
    tau2: Package, tau2_home: Path, grading: Grading, processes: Processes, tmp_path: Path
) -> None:
    task = tasks_of(tau2_home, "airline")["0"]
    criteria = {"actions": [], "nl_assertions": [ASSERTION], "reward_basis": ["NL_ASSERTION"]}
    job = (
        greeting("airline")
        .says("user", "Hi.")
        .ends()
        .job({**task, "evaluation_criteria": criteria})
    )
    for number, met in ((1, True), (2, False)):
        judged = {"expectedOutcome": ASSERTION, "reasoning": "Seen.", "metExpectation": met}
        model = judge_that_says(json.dumps({"results": [judged]}))
        with judge_line(processes.host(), model, tmp_path, "key") as (line, summary):
            assert summary == {}
            grade = grading.grade(replace(job, judge=line))
        assert grade["error"] is None
        assert grade["solved"] is met
        assert grade["judge"]["usage"] is not None
        assert summary["model_calls"] == 1
        assert summary["cost"] > 0
        text = (tmp_path / f"judge-{number}" / "model.jsonl").read_text()
        rows = [json.loads(row) for row in text.splitlines()]
        assert [row["event"] for row in rows] == ["request", "response"]
        assert {row["requestor"] for row in rows} == {"judge"}
    after = grading.grade(replace(job, judge=line))
    assert after["error"]["type"] == "judge_failed"  # the line ended with the grade


def test_a_judged_grade_has_longer_than_the_others(
    tau2: Package, tau2_home: Path, processes: Processes, tmp_path: Path
) -> None:
    task = tasks_of(tau2_home, "airline")["0"]
    criteria = {"actions": [], "nl_assertions": [ASSERTION], "reward_basis": ["NL_ASSERTION"]}
    rows = greeting("airline").says("user", "Hi.").ends()
    job = rows.job({**task, "evaluation_criteria": criteria})
    judged = {"expectedOutcome": ASSERTION, "reasoning": "Seen.", "metExpectation": True}
    model = judge_that_says(json.dumps({"results": [judged]}))
    with Grading(seconds=0.001) as hasty:
        with judge_line(processes.host(), model, tmp_path, "key") as (line, _):
            assert hasty.grade(replace(job, judge=line))["solved"] is True
        assert hasty.grade(rows.job(task))["error"]["type"] == "grader_died"


def test_where_nothing_was_asked_nothing_is_kept(processes: Processes, tmp_path: Path) -> None:
    with judge_line(processes.host(), judge_that_says("?"), tmp_path, "key") as (_, summary):
        assert (tmp_path / "judge-1").is_dir()
    assert (summary["model_calls"], summary["record"]) == (0, None)
    assert not (tmp_path / "judge-1").exists()
