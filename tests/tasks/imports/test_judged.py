"""A published run whose rewards a model has to judge: a judge named later is asked, and paid apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suites.schema import Model
from tasks.convert.fetch import Package
from tasks.grade.judging import own_host
from tasks.grading import grade_cell
from tasks.imports.agreement import agreements
from tasks.imports.mapping import map_simulations
from tasks.imports.writing import write_import
from tasks.judges import name_judge
from tasks.plans import Plan
from tests.published import GREETING, results_file, simulation, small_suite, upstream_task
from warehouse.evidence import Evidence
from warehouse.load import load
from warehouse.query import connect

TALK: list[dict[str, Any]] = [
    {"role": "assistant", "content": GREETING, "tool_calls": None},
    {"role": "user", "content": "I am user_kim_0000, cancel RES000."},
    {"role": "assistant", "content": "That cannot be done."},
    {"role": "user", "content": "Thanks. ###STOP###"},
]


def test_an_import_is_judged_by_who_is_named_later(tau2: Package, tmp_path: Path) -> None:
    tasks = [upstream_task(number, reward_basis=["NL_ASSERTION"]) for number in range(2)]
    suite = small_suite(tasks)
    told = [simulation(task, messages=TALK) for task in tasks]
    results = results_file(tmp_path, told, tasks)
    evidence = Evidence(tmp_path / "evidence")
    made = write_import(results, map_simulations(results, suite.tasks), suite, evidence)
    said = [
        {"expectedOutcome": "x", "reasoning": "It was not done.", "metExpectation": met}
        for met in (True, False)
    ]
    plays = [
        {"when": f"cancels RES00{number}", "steps": [{"text": json.dumps({"results": [one]})}]}
        for number, one in enumerate(said)
    ]
    judge = Model(name="judge", endpoint="scripted:playbook", scripted={"plays": plays})
    plan = Plan.read(evidence, made.sweep_id)
    planned = [attempt["spec_hash"] for attempt in plan.manifest["attempts"]]
    assert name_judge(plan, judge, evidence, instead=False)
    assert not name_judge(Plan.read(evidence, made.sweep_id), judge, evidence, instead=False)
    plan = Plan.read(evidence, made.sweep_id)
    assert [attempt["spec_hash"] for attempt in plan.manifest["attempts"]] == planned
    with own_host() as host:
        counts = grade_cell(plan, 0, evidence, again=True, host=host)
        assert (counts["solved"], counts["failed"], counts["new"]) == (1, 1, 2)
        counts = grade_cell(plan, 0, evidence, again=True, host=host)
        assert (counts["solved"], counts["failed"], counts["new"]) == (1, 1, 0), "asked once"
    [agreement] = agreements(evidence, [made.sweep_id])
    assert agreement.agree.total() == 1
    assert "did not hold: NL_ASSERTION" in agreement.disagree[0]
    load(evidence.root, tmp_path / "shards", tmp_path / "warehouse.duckdb")
    with connect(tmp_path / "warehouse.duckdb") as con:
        rows = con.execute("select agree from published_agreement order by task_id").fetchall()
        shown = con.execute("select distinct outcome, judge_model from attempts").fetchall()
    assert rows == [(True,), (False,)]
    assert shown == [("solved", None)], "the published verdict stands"


def test_without_a_host_what_has_to_be_judged_is_left(tau2: Package, tmp_path: Path) -> None:
    tasks = [upstream_task(0, reward_basis=["NL_ASSERTION"])]
    suite = small_suite(tasks)
    results = results_file(tmp_path, [simulation(tasks[0], messages=TALK)], tasks)
    evidence = Evidence(tmp_path / "evidence")
    made = write_import(results, map_simulations(results, suite.tasks), suite, evidence)
    judge = Model(name="judge", endpoint="https://judge.example/v1")
    name_judge(Plan.read(evidence, made.sweep_id), judge, evidence, instead=True)
    counts = grade_cell(Plan.read(evidence, made.sweep_id), 0, evidence, again=True)
    assert (counts["unjudged"], counts["new"]) == (1, 0)
