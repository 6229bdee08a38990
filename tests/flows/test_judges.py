"""Tasks that a model has to judge, as a person runs them: a sweep, its scorecard, another judge later."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.convert.tau2 import fetch_tau2
from tests.flows.conftest import Dyno

ASSERTION = "The agent confirmed the task was created successfully"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """τ²-bench as it is unpacked; from DYNO_TEST_CACHE where that is kept."""
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("tau2-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        return fetch_tau2().folder


@pytest.fixture
def judged(dyno: Dyno, package: Path) -> Dyno:
    """A DYNO_HOME with a suite of two mock tasks, of which a model has to judge one."""
    dyno.run("convert", "tau2", "mock", "--source", str(package))
    made, mine = dyno.home / "suites" / "tau2-mock", dyno.home / "suites" / "judged"
    mine.mkdir()
    header = yaml.safe_load((made / "suite.yaml").read_text()) | {"name": "judged"}
    (mine / "suite.yaml").write_text(yaml.safe_dump(header, allow_unicode=True))
    tasks = [json.loads(line) for line in (made / "tasks.jsonl").read_text().splitlines()]
    chosen = [task for task in tasks if task["id"] in ("create_task_1", "update_task_1")]
    criteria = chosen[0]["grade"]["spec"]["task"]["evaluation_criteria"]
    assert criteria["nl_assertions"] == [ASSERTION]
    criteria["reward_basis"] = ["DB", "NL_ASSERTION"]
    (mine / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in chosen))
    return dyno


def judge(dyno: Dyno, name: str, met: bool, **changes: Any) -> str:
    """The file of a scripted judge that always says the same."""
    said = {"expectedOutcome": ASSERTION, "reasoning": f"{name} saw it.", "metExpectation": met}
    model = {
        "name": name,
        "endpoint": "scripted:playbook",
        "prices": {"date": "2026-11-01", "input": 1.0, "output": 2.0},
        "scripted": {"steps": [{"text": json.dumps({"results": [said]})}]},
    } | changes
    path = dyno.home / f"{name}.yaml"
    path.write_text(yaml.safe_dump(model))
    return str(path)


def sweep(dyno: Dyno, *more: str, code: int = 0, **changes: Any) -> str:
    """Run gold through the suite; the sweep's file. Exit code 1: something could not be graded."""
    values = {"suites": ["judged"], "harnesses": ["reference"], "only": None, "user": "scripted"}
    file = str(dyno.sweep_file("true", repeats=1, **(values | changes)))
    output = dyno.run("sweep", file, *more, code=code)
    assert ("could not be graded; they are in no rate" in output) is (code == 1)
    return file


def outcomes(dyno: Dyno) -> dict[str, str]:
    return {
        row["task_id"]: row["error_class"] or row["outcome"]
        for row in dyno.sql("select task_id, outcome, error_class from attempts")
    }


def solved(dyno: Dyno, sweep_id: str) -> int:
    """How many attempts a sweep's scorecard counts as solved."""
    rows = json.loads(dyno.run("scorecard", sweep_id, "--json", "-"))["rows"]
    return next(int(row["solved"]) for row in rows if row["category"] is None)


COSTS = """
    select judge_model, judge_calls, judge_cost > 0 as paid, spend > cost as more,
           abs(agent_cost + user_cost + judge_cost - cost) < 1e-9 as sums
    from attempts where task_id = 'create_task_1'
"""


def test_a_sweep_is_judged_by_its_judge_and_regraded_by_another(judged: Dyno) -> None:
    kind, strict = judge(judged, "kind", True), judge(judged, "strict", False)
    file = sweep(judged, "--judge", kind)
    assert outcomes(judged) == {"create_task_1": "solved", "update_task_1": "solved"}
    asked = {"judge_calls": 1, "paid": True, "sums": True}
    assert judged.sql(COSTS) == [asked | {"judge_model": "kind", "more": False}]
    assert judged.sql("select count(*) as n from model_calls where requestor = 'judge'") == [
        {"n": 1}
    ]
    judged.run("sweep", file, "--judge", kind)  # nothing is left to do, and nobody is asked again
    assert "4 solved in 2 sweep(s)" in judged.run("regrade")
    assert judged.sql("select max(judge) as n from model_calls") == [{"n": 1}]

    older, newer = (
        row["sweep_id"] for row in judged.sql("select sweep_id from sweeps order by started_at")
    )
    assert "1 solved, 1 failed in 1 sweep(s)" in judged.run("regrade", older, "--judge", strict)
    assert {s: solved(judged, s) for s in (older, newer)} == {older: 1, newer: 2}
    assert "0 new grades" in judged.run(
        "regrade", newer, "--judge", strict
    )  # it has judged already
    assert solved(judged, newer) == 1
    assert outcomes(judged) == {"create_task_1": "failed", "update_task_1": "solved"}
    assert judged.sql(COSTS) == [asked | {"judge_model": "strict", "more": True}]
    found = judged.sql("select finding from findings where task_id = 'create_task_1'")
    assert "strict saw it." in " ".join(row["finding"] for row in found)
    assert judged.sql("select count(*) as n from load_problems") == [{"n": 0}]
    judged.run("load", "--rebuild")
    assert judged.sql(COSTS) == [asked | {"judge_model": "strict", "more": True}]


def test_without_a_judge_it_is_no_failure_and_a_regrade_can_name_one(judged: Dyno) -> None:
    sweep(judged, code=1)
    assert "1 grader_error" in judged.run("regrade", code=1)
    assert outcomes(judged) == {"create_task_1": "judge_missing", "update_task_1": "solved"}
    [row] = judged.sql("select error_message as said from attempts where error_class is not null")
    assert "task create_task_1" in row["said"]
    assert "dyno regrade --judge MODEL" in row["said"]
    unpriced = judge(judged, "unpriced", True, prices=None)
    assert "2 solved" in judged.run("regrade", "--judge", unpriced)
    assert outcomes(judged) == {"create_task_1": "solved", "update_task_1": "solved"}
    [row] = judged.sql("select judge_cost, cost, spend from attempts where judge_calls > 0")
    assert row == {"judge_cost": None, "cost": None, "spend": None}


def test_a_judge_without_its_key_is_refused_before_anything_is_written(judged: Dyno) -> None:
    sweep(judged, code=1)
    real = judge(
        judged,
        "real",
        True,
        endpoint="https://judge.example/v1",
        api_key_env="NO_SUCH_KEY_HERE",
        scripted={},
    )
    before = sorted(path.name for path in judged.home.rglob("*.json"))
    assert "NO_SUCH_KEY_HERE" in judged.run("regrade", "--judge", real, code=2)
    assert sorted(path.name for path in judged.home.rglob("*.json")) == before
    assert outcomes(judged)["create_task_1"] == "judge_missing"


def test_a_judge_that_says_nothing_passes_nothing(judged: Dyno) -> None:
    silent = judge(judged, "silent", True, scripted={"steps": [{"status": 400, "body": "{}"}]})
    sweep(judged, "--judge", silent, code=1)
    assert outcomes(judged) == {"create_task_1": "judge_failed", "update_task_1": "solved"}
    [grade] = [
        path
        for path in judged.home.rglob("grades/tau2@*.json")
        if json.loads(path.read_text()).get("judge")
    ]
    record = json.loads(grade.read_text())["judge"]
    assert (record["record"], record["model_calls"]) == ("judge-1", 1)
    assert (grade.parent.parent / "judge-1" / "model.jsonl").is_file()
