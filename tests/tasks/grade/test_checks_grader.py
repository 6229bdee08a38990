from __future__ import annotations

from typing import Any

import pytest

from suites.errors import InputError
from tasks.grade import checks
from tasks.grade.calls import rows_of
from tasks.grade.jobs import Check, Job, Verdict
from tasks.grade.recorded import Recorded

CALLS = [("weather", {"city": "Oslo", "days": 1}), ("weather", {"city": "Rome"})]


def verdict(
    *specs: dict[str, Any], stdout: str = "It is 12 degrees.\nBye", calls: Any = CALLS
) -> Verdict:
    job = Job(
        id="a", grader="checks", spec={"checks": list(specs)}, tools={"weather": "get.weather"}
    )
    checks.validate_spec(job.spec)
    return checks.grade(job, Recorded(bridge=rows_of(calls), stdout=lambda: stdout))


def one(spec: dict[str, Any], **recorded: Any) -> Check:
    return verdict(spec, **recorded).checks[0]


@pytest.mark.parametrize(
    ("spec", "passed"),
    [
        ({"kind": "stdout_contains", "text": "12 degrees"}, True),
        ({"kind": "stdout_contains", "text": "BYE"}, False),
        ({"kind": "stdout_contains", "text": "BYE", "ignore_case": True}, True),
        ({"kind": "stdout_matches", "pattern": r"\d+ degrees"}, True),
        ({"kind": "stdout_matches", "pattern": "^Bye$"}, True),
        ({"kind": "stdout_matches", "pattern": "^degrees"}, False),
        ({"kind": "tool_called", "tool": "weather"}, True),
        ({"kind": "tool_called", "tool": "get.weather"}, True),
        ({"kind": "tool_called", "tool": "weather", "arguments": {"city": "Oslo"}}, True),
        ({"kind": "tool_called", "tool": "weather", "arguments": {"days": 1.0}}, True),
        ({"kind": "tool_called", "tool": "weather", "arguments": {"days": True}}, False),
        ({"kind": "tool_called", "tool": "weather", "arguments": {"city": "Bonn"}}, False),
        ({"kind": "tool_called", "tool": "weather", "at_least": 3}, False),
        ({"kind": "tool_never_called", "tool": "taxi"}, True),
        ({"kind": "tool_never_called", "tool": "weather"}, False),
        ({"kind": "tool_never_called", "tool": "weather", "arguments": {"city": "Bonn"}}, True),
        ({"kind": "tool_calls_at_most", "at_most": 2}, True),
        ({"kind": "tool_calls_at_most", "at_most": 1}, False),
        ({"kind": "tool_calls_at_most", "at_most": 0, "tool": "taxi"}, True),
    ],
)
def test_each_kind_looks_at_its_fact(spec: dict[str, Any], passed: bool) -> None:
    assert one(spec).passed is passed


def test_a_finding_says_what_was_there_instead() -> None:
    missing = one({"kind": "tool_called", "tool": "weather", "arguments": {"city": "Bonn"}})
    assert '"Rome"' in missing.finding
    assert missing.error_type == "checks:tool_called"
    silent = one({"kind": "stdout_contains", "text": "13"})
    assert "Bye" in silent.finding
    why = one({"kind": "tool_never_called", "tool": "weather", "description": "it costs money"})
    assert why.finding.startswith("it costs money: ")


def test_refused_calls_do_not_count_but_are_told() -> None:
    rows = rows_of([("weather", {})])
    rows[1]["status"] = "refused"
    spec = {"checks": [{"kind": "tool_called", "tool": "weather"}]}
    found = checks.grade(Job(id="a", grader="checks", spec=spec), Recorded(bridge=rows))
    assert found.solved is False
    assert "[refused]" in found.checks[0].finding


def test_the_score_is_the_weighted_share_and_solved_means_all() -> None:
    right = {"kind": "tool_called", "tool": "weather"}
    wrong = {"kind": "tool_never_called", "tool": "weather", "weight": 3}
    found = verdict(right, wrong)
    assert (found.solved, found.score) == (False, 0.25)
    assert verdict(right).solved is True


@pytest.mark.parametrize(
    ("spec", "where", "words"),
    [
        ({}, "checks", "is missing"),
        ({"checks": []}, "checks", "at least 1"),
        ({"checks": [{"kind": "tool_caled", "tool": "x"}]}, "checks[0]", "not a known kind"),
        ({"checks": [{"kind": "tool_called"}]}, "checks[0].tool", "is missing"),
        (
            {"checks": [{"kind": "tool_called", "tool": "x", "args": {}}]},
            "checks[0].args",
            "not a key",
        ),
        (
            {"checks": [{"kind": "stdout_matches", "pattern": "("}]},
            "checks[0].pattern",
            "not a regular",
        ),
        (
            {"checks": [{"kind": "tool_calls_at_most", "at_most": -1}]},
            "checks[0].at_most",
            "found -1",
        ),
        (
            {"checks": [{"kind": "tool_called", "tool": "x", "weight": 0}]},
            "checks[0].weight",
            "found 0",
        ),
        (
            {"checks": [{"kind": "tool_called", "tool": "wether"}]},
            "checks[0].tool",
            "no tool 'wether'",
        ),
    ],
)
def test_a_check_that_cannot_be_made_is_refused_at_its_key(
    spec: dict[str, Any], where: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        checks.validate_spec(spec, {"weather": "weather", "x": "x"})
    assert caught.value.where == where
    assert words in caught.value.what


def entered(*entries: tuple[str, int]) -> list[tuple[str, dict[str, Any]]]:
    """Calls that write an entry each."""
    return [("enter", {"ledger": ledger, "sum": total}) for ledger, total in entries]


@pytest.mark.parametrize(
    ("entries", "passed", "finding"),
    [
        ([("A", 1), ("B", 2)], True, "2 of 2 entries are right"),
        ([("B", 2), ("A", 7), ("A", 1)], True, "2 of 2"),  # the last value counts
        ([("A", 1), ("B", 2), ("A", 7)], False, "wrong: A is 7, not 1"),
        ([("A", 1)], False, "missing: B"),
        ([("A", 1), ("B", 2), ("C", 3)], False, "not asked for: C"),
        ([], False, "missing: A, B"),
    ],
)
def test_final_state_is_what_the_calls_came_to(
    entries: list[tuple[str, int]], passed: bool, finding: str
) -> None:
    spec = {"kind": "final_state", "tool": "enter", "key": "ledger", "value": "sum"}
    check = one(spec | {"equals": {"A": 1, "B": 2}}, calls=entered(*entries))
    assert check.passed is passed
    assert finding in check.finding


def test_a_call_that_failed_wrote_nothing() -> None:
    spec = {"kind": "final_state", "tool": "enter", "key": "ledger", "value": "sum"}
    rows = rows_of(entered(("A", 1), ("A", 9)))
    rows[-1]["status"] = "tool_error"
    job = Job(id="a", grader="checks", spec={"checks": [spec | {"equals": {"A": 1}}]}, tools={})
    assert checks.grade(job, Recorded(bridge=rows, stdout=lambda: "")).solved
