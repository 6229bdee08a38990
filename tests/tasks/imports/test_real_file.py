"""The real published run, end to end but for Prefect: imported, loaded, graded again, compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suites.home import dyno_home
from suites.schema import LoadedSuite
from tasks.convert.fetch import Package
from tasks.convert.tau2 import Conversion
from tasks.grading import grade_cell
from tasks.imports.agreement import agreements
from tasks.imports.mapping import map_simulations
from tasks.imports.results import read_results
from tasks.imports.writing import write_import
from tasks.plans import Plan
from tests.published import REAL
from warehouse.evidence import Evidence
from warehouse.load import load
from warehouse.query import connect

pytestmark = pytest.mark.skipif(not REAL.exists(), reason=f"{REAL} is not on this machine")


@pytest.fixture
def airline(tau2: Package) -> LoadedSuite:
    """The suite of airline, from the package."""
    with Conversion(tau2) as conversion:
        made = conversion.convert("airline")
    from suites.loading_suites import suite_digest

    digest = suite_digest(made.suite, made.tasks)
    return LoadedSuite(suite=made.suite, tasks=tuple(made.tasks), digest=digest, path="converted")


def test_the_published_figure_stands_and_every_verdict_is_reproduced(
    airline: LoadedSuite, tmp_path: Path
) -> None:
    """0.56 over all 50; of the tasks known by action ids 43 of 43 agree, and 7 of 7 of the others."""
    results = read_results(REAL)
    mapping = map_simulations(results, airline.tasks)
    evidence = Evidence(tmp_path / "evidence")
    made = write_import(results, mapping, airline, evidence)
    counts = grade_cell(Plan.read(evidence, made.sweep_id), 0, evidence, again=True)
    assert counts["grader_error"] == 0
    [agreement] = agreements(evidence, [made.sweep_id])
    assert agreement.disagree == ()
    assert agreement.unknown == ()
    assert agreement.agree == {"action ids": 43, "assertion texts": 7}
    warehouse = tmp_path / "warehouse.duckdb"
    load(evidence.root, tmp_path / "shards", warehouse)
    with connect(warehouse) as con:
        card = con.execute(
            "select pass_at_1, n, tasks, coverage, grader, unmapped from scorecard where category is null"
        ).fetchall()
        same = con.execute(
            "select agree, count(*) from published_agreement group by all"
        ).fetchall()
    assert card == [(pytest.approx(0.56), 50, 50, 1.0, f"tau2-published@{results.commit}", 0)]
    assert same == [(True, 50)]


def test_what_is_made_unknown_still_counts_and_is_not_graded(
    airline: LoadedSuite, tmp_path: Path
) -> None:
    value = json.loads(REAL.read_bytes())
    # Said by nobody, checked by nothing: of which task this was cannot be told.
    value["simulations"][23]["reward_info"]["nl_assertions"] = None
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps(value))
    results = read_results(path)
    mapping = map_simulations(results, airline.tasks)
    assert [one.simulation.number for one in mapping.all if one.task is None] == [23]
    evidence = Evidence(tmp_path / "evidence")
    made = write_import(results, mapping, airline, evidence)
    counts = grade_cell(Plan.read(evidence, made.sweep_id), 0, evidence, again=True)
    assert (counts["no_task"], counts["new"]) == (1, 49)
    [agreement] = agreements(evidence, [made.sweep_id])
    assert (agreement.agree.total(), agreement.unmapped) == (49, 1)
    warehouse = tmp_path / "warehouse.duckdb"
    load(evidence.root, tmp_path / "shards", warehouse)
    with connect(warehouse) as con:
        card = con.execute(
            "select pass_at_1, n, tasks, unmapped from scorecard where category is null"
        ).fetchall()
    assert card == [(pytest.approx(0.56), 50, 50, 1)]


def test_the_package_lies_where_the_grader_looks(tau2: Package) -> None:
    assert tau2.folder.is_relative_to(dyno_home())
