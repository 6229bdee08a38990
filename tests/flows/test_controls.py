"""`dyno controls` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import Dyno

pytestmark = pytest.mark.prefect

TASK = {
    "id": "greets",
    "messages": [{"role": "user", "content": "Greet Ada."}],
    "environments": [
        {
            "kind": "functions",
            "tools": [
                {
                    "name": "greet",
                    "description": "Greets.",
                    "input_schema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    },
                }
            ],
            "result": "Done.",
        }
    ],
    "grade": {
        "grader": "checks",
        "spec": {
            "checks": [{"kind": "tool_called", "tool": "greet", "arguments": {"name": "Eve"}}]
        },
    },
    "oracle": {"calls": [{"tool": "greet", "arguments": {"name": "Ada"}}]},
}


def broken_suite(folder: Path, unsolvable: str | None = None) -> str:
    """A suite whose grader asks for something else than its gold."""
    task = TASK | {"oracle": {**TASK["oracle"], "unsolvable": unsolvable}}  # type: ignore[dict-item]
    path = folder / "broken.yaml"
    suite = {"name": "broken", "version": "1", "benchmark": "broken", "tasks": [task]}
    path.write_text(yaml.safe_dump(suite))
    return str(path)


def test_controls_show_oracle_floor_and_vandal_and_are_run_once(dyno: Dyno) -> None:
    output = dyno.run("controls", "hello-tools")
    lines = [line.split()[:4] for line in output.splitlines()]
    assert ["oracle", "4/4", "1.000", "100%"] in lines
    assert ["null", "0/4", "0.000", "100%"] in lines
    assert ["vandal", "0/4", "0.000", "100%"] in lines
    dyno.env["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    again = dyno.run("controls", "hello-tools")
    assert "all 12 attempts are done already; nothing is run" in again
    rows = dyno.sql("select behaviour, solved from controls order by behaviour")
    assert [(row["behaviour"], row["solved"]) for row in rows] == [
        ("null", 0),
        ("oracle", 4),
        ("vandal", 0),
    ]


def test_oracle_that_fails_is_an_exit_code_and_a_reason(dyno: Dyno, tmp_path: Path) -> None:
    output = dyno.run("controls", broken_suite(tmp_path), code=3)
    assert "the oracle fails 1:" in output
    assert "greets: " in output
    assert "Eve" in output, "the grader's own reason"


def test_what_a_suite_declares_unsolvable_is_no_surprise(dyno: Dyno, tmp_path: Path) -> None:
    output = dyno.run("controls", broken_suite(tmp_path, "the grader asks for Eve"))
    assert "the suite says gold does not pass" in output
    assert "greets: the grader asks for Eve" in output


def test_infrastructure_errors_are_apart_and_an_exit_code(dyno: Dyno, tmp_path: Path) -> None:
    harness = {"name": "deaf", "command": ["true"], "speaks": ["shell"], "version": "1"}
    file = tmp_path / "deaf.yaml"
    file.write_text(yaml.safe_dump(harness))
    arguments = ("controls", "hello-tools", "--only", "weather", "--harness", str(file))
    output = dyno.run(*arguments, code=1)
    assert "3 attempt(s) without a result" in output
    assert "bridge_unlisted" in output
    assert "the oracle fails" not in output


def test_json_is_all_of_standard_output(dyno: Dyno) -> None:
    dyno.run("controls", "hello-tools", "--only", "weather")
    process = dyno.start("controls", "hello-tools", "--only", "weather", "--json", stderr=None)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    document = json.loads(output)
    assert document["verdict"] == "ok"
    assert set(document["suites"][0]["controls"]) == {"oracle", "null", "vandal"}
