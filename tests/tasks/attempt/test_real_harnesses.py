"""The CLIs that people use, run for real: what they call tools, what they report, what they leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.attempt.job import Workshop
from tasks.checking import Check, Report
from tasks.checking_lines import offered_tools
from tasks.grading import grade_cell
from tests.conftest import INSTALLED
from tests.tasks.attempt.conftest import Bench

SEEN_AS = {
    "claude-code": "mcp__functions__get_weather",
    "codex": "mcp__functions.get_weather",
    "opencode": "functions_get_weather",
    "qwen-code": "mcp__functions__get_weather",
}
"""What each tells its model the tool is called; the bridge's own name is `get_weather`."""

EXPECTED = {"opencode": ["respects a deadline"]}
"""Lines that are not well: OpenCode does not end on SIGTERM while a model call is open."""

each = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs_harness(name)) for name in SEEN_AS]
)


@pytest.fixture
def installed(shop: Workshop, shared_home: Path) -> Iterator[None]:
    """What `make harnesses` installed is found from the DYNO_HOME of these tests too."""
    link = shared_home / "harnesses"
    if not INSTALLED.is_dir() or link.exists():
        yield
        return
    link.symlink_to(INSTALLED)
    yield
    link.unlink()


@each
@pytest.mark.usefixtures("installed")
def test_its_check_finds_it_well(name: str, tmp_path: Path) -> None:
    with Check(tmp_path) as checking:
        *lines, report = checking.harness(name)
    assert isinstance(report, Report)
    assert len(lines) == 17
    wrong = [line.name for line in report.lines if line.state not in ("ok", "none")]
    assert wrong == EXPECTED.get(name, []), report.lines


@each
@pytest.mark.usefixtures("installed")
def test_grades_and_tokens_depend_on_none_of_its_names(bench: Bench, name: str) -> None:
    plan = bench.plan(name, models=["oracle", "vandal"])
    assert bench.run_all(plan, threads=2) == ["clean", "clean"]
    solved = [grade_cell(plan, cell.cell, bench.evidence)["solved"] for cell in plan.cells]
    assert solved == [1, 0]
    for key in plan.by_key:
        bundle = bench.evidence.published(key)
        assert bundle is not None
        calls = {row["tool"] for row in bundle.rows("bridge.jsonl") if row["event"] == "call"}
        assert "get_weather" in calls
        assert calls <= {"get_weather", "order_taxi"}
        first = next(row for row in bundle.rows("model.jsonl") if row["event"] == "request")
        assert SEEN_AS[name] in offered_tools(json.loads(first["body"]))
        metered, reported = bundle.record["host"]["usage"], bundle.record["reported"]
        assert {kind: metered[kind] for kind in reported} == reported
        assert bundle.text("answer") == "It is 12 degrees Celsius in Oslo."
