from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from suites.errors import InputError
from tasks.convert.bfcl import Converted
from tasks.convert.bfcl_oracles import oracle_job
from tasks.grade import bfcl
from tasks.grade.calls import rows_of
from tasks.grade.client import Grading
from tasks.grade.jobs import Job

DOCUMENT = {
    "name": "math.area",
    "description": "",
    "parameters": {
        "type": "dict",
        "properties": {"base": {"type": "integer"}, "unit": {"type": "string"}},
        "required": ["base"],
    },
}


def job(category: str = "simple_python", **rows: Any) -> Job:
    """A task of one function whose gold is `math.area(base=10)`, graded over these rows."""
    gold = [] if "relevance" in category else [{"math.area": {"base": [10], "unit": ["cm", ""]}}]
    return Job(
        id="task",
        grader="bfcl",
        spec={
            "category": category,
            "language": "python",
            "functions": [DOCUMENT],
            "possible_answer": gold,
        },
        tools={"math_area": "math.area"},
        dataset="2026.3.23",
        rows={"bridge": [], "model": [], **rows},
    )


def row(
    seq: int, arguments: str, status: str = "ok", tool: str = "math_area"
) -> list[dict[str, Any]]:
    return [
        {"seq": seq, "event": "call", "tool": tool, "native": None, "arguments": arguments},
        {"seq": seq + 1, "event": "result", "call": seq, "status": status},
    ]


def checks(grade: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert grade["error"] is None, grade
    return {check["name"]: check for check in grade["checks"]}


@pytest.fixture(autouse=True)
def _package(bfcl: object) -> None:
    """Every test here judges with the real package."""


def test_a_right_call_is_solved_by_its_wire_name(grading: Grading) -> None:
    grade = grading.grade(job(bridge=row(1, '{"base": 10, "unit": "CM"}')))
    assert (grade["solved"], grade["score"]) == (True, 1.0)
    assert grade["grader"] == "bfcl"
    assert grade["grader_version"] == "2026.3.23+1"
    assert checks(grade)["attempt"]["headline"]


def test_a_wrong_call_carries_upstreams_class_of_error_and_words(grading: Grading) -> None:
    grade = grading.grade(job(bridge=row(1, '{"base": 11}')))
    check = checks(grade)["attempt"]
    assert grade["solved"] is False
    assert check["error_type"] == "value_error:others"
    assert check["finding"] == "Invalid value for parameter 'base': 11. Expected one of [10]."


def test_a_refused_call_counts_in_the_strict_scope_only(grading: Grading) -> None:
    bridge = [*row(1, '{"base": "ten"}', "refused"), *row(3, '{"base": 10}')]
    grade = grading.grade(job(bridge=bridge))
    found = checks(grade)
    assert grade["solved"] is True
    assert found["attempt"]["passed"] is True
    assert found["attempt_strict"]["passed"] is False
    assert found["attempt_strict"]["error_type"] == "simple_function_checker:wrong_count"
    assert found["first_response"]["passed"] is None
    assert "no model call" in found["first_response"]["finding"]


def test_the_first_response_is_judged_like_the_leaderboard_does(grading: Grading) -> None:
    bridge = [*row(3, '{"base": "ten"}', "refused"), *row(7, '{"base": 10}')]
    model = [
        {"seq": 1, "event": "request"},
        {"seq": 2, "event": "response", "call": 1},
        {"seq": 5, "event": "request"},
        {"seq": 6, "event": "response", "call": 5},
    ]
    found = checks(grading.grade(job(bridge=bridge, model=model)))
    assert found["attempt"]["passed"] is True
    assert found["first_response"]["passed"] is False
    assert found["first_response"]["error_type"] == "type_error:simple"


@pytest.mark.parametrize(
    ("arguments", "error_type"),
    [
        ('{"base": 10', "ast_decoder:decoder_failed"),
        ("[10]", "ast_decoder:decoder_wrong_output_format"),
        ("null", "ast_decoder:decoder_wrong_output_format"),
    ],
)
def test_arguments_that_are_no_object_are_a_decoding_failure_of_upstreams(
    grading: Grading, arguments: str, error_type: str
) -> None:
    found = checks(grading.grade(job(bridge=row(1, arguments, "refused"))))
    assert found["attempt_strict"]["error_type"] == error_type
    assert found["attempt"]["error_type"] == "simple_function_checker:wrong_count"  # no call at all


def test_an_unknown_tool_is_a_call_in_the_strict_scope(grading: Grading) -> None:
    grade = grading.grade(job("irrelevance", bridge=row(1, "{}", "unknown_tool", "made_up")))
    found = checks(grade)
    assert grade["solved"] is True
    assert found["attempt_strict"]["error_type"] == "irrelevance_error:decoder_success"


def test_irrelevance_passes_without_a_call_and_relevance_with_one(grading: Grading) -> None:
    bridge = row(1, '{"base": 99}')
    assert grading.grade(job("irrelevance"))["solved"] is True
    assert grading.grade(job("live_irrelevance", bridge=bridge))["solved"] is False
    assert grading.grade(job("live_relevance", bridge=bridge))["solved"] is True
    failed = grading.grade(job("live_relevance"))
    assert checks(failed)["attempt"]["error_type"] == "relevance_error:decoder_failed"


def test_numbers_are_read_as_upstream_reads_them(grading: Grading) -> None:
    assert grading.grade(job(bridge=row(1, '{"base": 11, "base": 10}')))["solved"] is True
    assert grading.grade(job(bridge=row(1, '{"base": NaN}')))["solved"] is False
    assert (
        grading.grade(job(bridge=row(1, '{"base": 10.0}')))["solved"] is False
    )  # a float is no integer


def test_parallel_calls_may_come_in_any_order_and_a_miss_names_each_candidate(
    converted: dict[str, Converted], grading: Grading
) -> None:
    task = converted["parallel"].tasks[0]
    assert task.oracle is not None
    calls = task.oracle.calls
    assert len(calls) == 2
    assert grading.grade(oracle_job(task, calls[::-1], "2026.3.23"))["solved"] is True
    grade = grading.grade(oracle_job(task, [calls[0], calls[0]], "2026.3.23"))
    check = checks(grade)["attempt"]
    assert check["error_type"] == "parallel_function_checker_no_order:cannot_find_match"
    assert "Could not find a matching function" in check["finding"]
    assert "(value_error:" in check["finding"]


def test_arguments_that_upstreams_checker_chokes_on_are_wrong_and_named(grading: Grading) -> None:
    document = {
        "name": "f",
        "description": "",
        "parameters": {
            "type": "dict",
            "properties": {"rows": {"type": "array", "items": {"type": "dict"}}},
            "required": [],
        },
    }
    odd = replace(
        job(),
        spec={
            "category": "simple_python",
            "language": "python",
            "functions": [document],
            "possible_answer": [{"f": {"rows": [[{"a": [1]}], ""]}}],
        },
        rows={"bridge": rows_of([("f", {"rows": ["not a dictionary"]})]), "model": []},
    )
    grade = grading.grade(odd)
    assert grade["solved"] is False
    assert checks(grade)["attempt"]["error_type"] == "dyno:checker_raised"
    assert "AttributeError" in checks(grade)["attempt"]["finding"]


def test_text_that_no_utf8_holds_stays_readable(grading: Grading) -> None:
    grade = grading.grade(job(bridge=row(1, '{"base": 10, "unit": "\\ud800"}')))
    assert grade["solved"] is False
    json.dumps(grade, ensure_ascii=False).encode()  # as the evidence writes it


def test_a_package_that_is_not_there_is_a_grader_error_that_says_what_to_do(
    grading: Grading,
) -> None:
    grade = grading.grade(replace(job(), dataset="2031.1.1"))
    assert (grade["solved"], grade["score"]) == (None, None)
    assert grade["error"]["type"] == "grader_missing"
    assert "dyno convert bfcl" in grade["error"]["message"]


def test_the_same_job_gives_the_same_grade(grading: Grading) -> None:
    asked = job(bridge=row(1, '{"base": 11}'))
    grades = [grading.grade(asked) for _ in range(2)]
    for grade in grades:
        grade.pop("graded_at")
    assert grades[0] == grades[1]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"language": "cobol"}, "language"),
        ({"functions": "none"}, "functions"),
        ({"possible_answer": []}, "possible_answer"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_spec_it_cannot_judge_by_is_refused_at_its_key(
    change: dict[str, Any], where: str
) -> None:
    with pytest.raises(InputError) as caught:
        bfcl.validate_spec({**job().spec, **change})
    assert caught.value.where == where
