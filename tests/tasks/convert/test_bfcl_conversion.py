from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from suites.errors import InputError
from suites.loading_suites import load_suite
from suites.schema import OracleCall, Task, Tool
from tasks.convert.bfcl import (
    Converted,
    choose_categories,
    convert_bfcl,
    convert_category,
    describe_benchmark,
)
from tasks.convert.bfcl_gold import accepted_values
from tasks.convert.bfcl_oracles import oracle_job
from tasks.convert.fetch import Package, fetch
from tasks.grade.client import Grading
from tasks.grade.graders import validate_grade

UNSOLVABLE = {
    "simple_java_36": "value_error:list/tuple",
    "simple_java_64": "value_error:dict_value",
    "simple_java_65": "value_error:list/tuple",
    "live_simple_106-63-0": "type_error:simple",
    "live_simple_112-68-0": "type_error:simple",
    "live_multiple_862-181-3": "simple_function_checker:unexpected_param",
    "live_multiple_964-207-0": "simple_function_checker:missing_required",
}
"""Where gold itself fails upstream's checker, with upstream's class of error."""


def tasks_of(converted: dict[str, Converted]) -> Iterator[Task]:
    for category in converted.values():
        yield from category.tasks


def tools_of(task: Task) -> dict[str, Tool]:
    """The task's tools by native name."""
    return {tool.native_name or tool.name: tool for e in task.environments for tool in e.tools}


def upstream_entries(bfcl: Package) -> Iterator[tuple[str, dict[str, Any]]]:
    for category in describe_benchmark().categories:
        path = bfcl.folder / "bfcl_eval" / "data" / f"BFCL_v4_{category}.json"
        for line in path.read_text("utf-8").splitlines():
            yield category, json.loads(line)


def test_every_entry_becomes_a_task(converted: dict[str, Converted], bfcl: Package) -> None:
    stated = describe_benchmark().categories
    assert {name: len(c.tasks) for name, c in converted.items()} == {
        name: category.entries for name, category in stated.items()
    }
    assert sum(category.entries for category in stated.values()) == 3641
    assert not any(category.omitted for category in converted.values())
    upstream = [(category, entry["id"]) for category, entry in upstream_entries(bfcl)]
    assert [(task.category, task.id) for task in tasks_of(converted)] == upstream


def test_messages_keep_their_roles_and_texts(
    converted: dict[str, Converted], bfcl: Package
) -> None:
    upstream = {entry["id"]: entry["question"][0] for _, entry in upstream_entries(bfcl)}
    for task in tasks_of(converted):
        assert [message.model_dump() for message in task.messages] == upstream[task.id]
    roles = {message.role for task in tasks_of(converted) for message in task.messages}
    assert roles == {"system", "user", "assistant"}


def test_four_tasks_have_no_tool_and_are_tasks_still(converted: dict[str, Converted]) -> None:
    without = [task.id for task in tasks_of(converted) if not tools_of(task)]
    assert without == [f"live_irrelevance_{n}-9-{n - 120}" for n in range(120, 124)]


def test_every_schema_is_valid_json_schema_of_an_object(converted: dict[str, Converted]) -> None:
    schemas = {
        json.dumps(tool.input_schema): tool.input_schema
        for task in tasks_of(converted)
        for tool in tools_of(task).values()
    }
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert set(schema.get("required", [])) <= set(schema["properties"])
    dialect = re.compile(r'"type": "(dict|float|tuple|any|String|HashMap|ArrayList|Boolean)"')
    assert not [text for text in schemas if dialect.search(text.split('"description"')[0])]


def test_names_are_legal_on_every_wire_and_lead_back_to_upstreams(
    converted: dict[str, Converted], bfcl: Package
) -> None:
    upstream = {
        entry["id"]: [f["name"] for f in entry["function"]] for _, entry in upstream_entries(bfcl)
    }
    for task in tasks_of(converted):
        tools = [tool for environment in task.environments for tool in environment.tools]
        assert all(re.fullmatch(r"[A-Za-z0-9_]{1,64}", tool.name) for tool in tools)
        assert len({tool.name for tool in tools}) == len(tools)
        assert [tool.native_name or tool.name for tool in tools] == upstream[task.id]


def test_java_and_javascript_parameters_are_all_source_text(
    converted: dict[str, Converted],
) -> None:
    for category in ("simple_java", "simple_javascript"):
        for task in converted[category].tasks:
            for tool in tools_of(task).values():
                for part in tool.input_schema["properties"].values():
                    assert part["type"] == "string"
                    assert "source text of a" in part["description"]


def test_a_bridge_refuses_no_value_that_upstream_names_as_acceptable(
    converted: dict[str, Converted],
) -> None:
    for task in tasks_of(converted):
        if task.grade.spec["language"] != "python":
            continue
        for call in task.grade.spec["possible_answer"]:
            ((name, options),) = call.items()
            properties = tools_of(task)[name].input_schema["properties"]
            for parameter in options.keys() & properties.keys():
                validator = Draft202012Validator(properties[parameter])
                for value in accepted_values(options[parameter]):
                    assert validator.is_valid(value), (task.id, parameter, value)


def test_a_bridge_refuses_nothing_that_upstream_passes(
    converted: dict[str, Converted], grading: Grading
) -> None:
    """Gold written otherwise (case, spaces, numbers as text, other options): what passes must fit."""
    dice = random.Random(1)
    tried: list[tuple[Task, list[OracleCall]]] = []
    for task in tasks_of(converted):
        assert task.oracle is not None
        wire = {tool.name: name for name, tool in tools_of(task).items()}
        options: dict[str, dict[str, Any]] = {}
        for gold in task.grade.spec["possible_answer"]:
            for name, acceptable in gold.items():
                options.setdefault(name, {}).update(acceptable)
        calls = []
        for call in task.oracle.calls:
            given = dict(call.arguments)
            for name, acceptable in options.get(wire[call.tool], {}).items():
                others = list(accepted_values(acceptable))
                if others and task.grade.spec["language"] == "python" and dice.random() < 0.3:
                    given[name] = dice.choice(others)
                if name in given and dice.random() < 0.3:
                    given[name] = otherwise(given[name], dice)
            calls.append(OracleCall(tool=call.tool, arguments=given))
        tried.append((task, calls))
    jobs = (oracle_job(task, calls, "2026.3.23") for task, calls in tried)
    passed = 0
    for (task, calls), grade in zip(tried, grading.grade_bundles(jobs), strict=True):
        assert grade["error"] is None
        if grade["solved"]:
            passed += 1
            tools = {tool.name: tool for tool in tools_of(task).values()}
            for call in calls:
                Draft202012Validator(tools[call.tool].input_schema).validate(call.arguments)
    assert passed > 2000


def otherwise(value: Any, dice: random.Random) -> Any:
    """The value written in another way, right or wrong."""
    if isinstance(value, bool):
        return dice.choice([int(value), str(value)])
    if isinstance(value, int):
        return dice.choice([float(value), str(value), bool(value)])
    if isinstance(value, float):
        return dice.choice([int(value), str(value)])
    if isinstance(value, str):
        return dice.choice([value.upper(), f"{value} ", value.replace(" ", ""), ""])
    if isinstance(value, list):
        return [otherwise(item, dice) for item in value]
    if isinstance(value, dict):
        return {key: otherwise(item, dice) for key, item in value.items() if dice.random() < 0.9}
    return value


def test_few_schemas_had_to_be_opened_for_gold(converted: dict[str, Converted]) -> None:
    opened = [name for c in converted.values() for names in c.opened.values() for name in names]
    assert len(opened) == 35


def test_gold_fits_the_schemas_it_is_sent_to(converted: dict[str, Converted]) -> None:
    for task in tasks_of(converted):
        assert task.oracle is not None
        tools = {tool.name: tool for tool in tools_of(task).values()}
        vandal = [task.oracle.vandal] if task.oracle.vandal else []
        for call in [*task.oracle.calls, *vandal]:
            fits = Draft202012Validator(tools[call.tool].input_schema).is_valid(call.arguments)
            assert fits or task.id == "live_multiple_964-207-0", (task.id, call)


def test_every_oracle_passes_but_where_gold_itself_fails_upstream(
    converted: dict[str, Converted], grading: Grading
) -> None:
    tasks = list(tasks_of(converted))
    jobs = [oracle_job(t, t.oracle.calls, "2026.3.23") for t in tasks if t.oracle]
    failed = {
        task.id: grade["checks"][0]["error_type"]
        for task, grade in zip(tasks, grading.grade_bundles(jobs), strict=True)
        if grade["solved"] is not True
    }
    assert failed == UNSOLVABLE
    stated = {
        task.id: task.oracle.unsolvable for task in tasks if task.oracle and task.oracle.unsolvable
    }
    assert {key: reason.split(": ")[0] for key, reason in stated.items()} == UNSOLVABLE


def test_doing_nothing_passes_irrelevance_and_nothing_else(
    converted: dict[str, Converted], grading: Grading
) -> None:
    tasks = list(tasks_of(converted))
    jobs = [oracle_job(task, (), "2026.3.23") for task in tasks]
    for task, grade in zip(tasks, grading.grade_bundles(jobs), strict=True):
        assert grade["solved"] is ("irrelevance" in task.category), task.id


def test_one_more_call_costs_every_task_that_it_can_cost(
    converted: dict[str, Converted], grading: Grading
) -> None:
    spoilt = [task for task in tasks_of(converted) if task.oracle and task.oracle.vandal]
    jobs = [
        oracle_job(t, (*t.oracle.calls, t.oracle.vandal), "2026.3.23")
        for t in spoilt
        if t.oracle and t.oracle.vandal
    ]
    assert not [
        task.id
        for task, g in zip(spoilt, grading.grade_bundles(jobs), strict=True)
        if g["solved"] is not False
    ]
    spared = {task.category for task in tasks_of(converted)} - {task.category for task in spoilt}
    assert spared == {"live_relevance"}  # any call passes there
    assert sum(len(c.tasks) for c in converted.values()) - len(spoilt) == 16 + 4  # no tool, no call


def test_converting_twice_gives_the_same_bytes(converted: dict[str, Converted]) -> None:
    first = {name: read(converted[name].folder) for name in ("simple_java", "live_irrelevance")}
    inode = converted["simple_java"].folder.stat().st_ino
    said: list[str] = []
    again = convert_bfcl(categories=first, say=said.append)
    assert {done.category: read(done.folder) for done in again} == first
    assert converted["simple_java"].folder.stat().st_ino != inode  # written, not skipped
    assert "gold fails upstream's own checker in simple_java_36" in said[0]
    assert set(first["simple_java"]) == {"suite.yaml", "tasks.jsonl", "omitted.jsonl", "digest"}


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_suites_load_and_carry_their_stamp(converted: dict[str, Converted], bfcl: Package) -> None:
    for category in converted.values():
        loaded = load_suite(category.suite.name, validate_grade)
        assert loaded.tasks == category.tasks
        assert loaded.suite == category.suite
    suite = converted["simple_python"].suite
    assert suite.name == "bfcl-simple-python"
    assert suite.version == "2026.3.23-1"
    assert suite.dataset.model_dump() == {
        "source": "bfcl-eval",
        "version": "2026.3.23",
        "sha256": describe_benchmark().sha256,
        "date": "2026-03-23",
        "licence": "Apache-2.0",
    }


def test_a_folder_gives_suites_of_another_version_graded_by_its_own_checker(
    bfcl: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grading: Grading
) -> None:
    source = tmp_path / "checkout"
    shutil.copytree(
        bfcl.folder / "bfcl_eval", source / "berkeley-function-call-leaderboard" / "bfcl_eval"
    )
    checker = next(source.rglob("ast_checker.py"))
    checker.write_text(
        checker.read_text().replace("Wrong number of functions.", "Count them again.")
    )
    monkeypatch.setenv("DYNO_HOME", str(tmp_path / "home"))

    upstream = describe_benchmark()
    package = fetch(upstream.package, upstream.version, upstream.sha256, source)
    done = convert_category(package, "simple_javascript", grading)
    assert done.suite.version.startswith("2026.3.23+source.")
    assert done.suite.dataset.date is None
    assert not done.unsolvable
    grade = grading.grade(oracle_job(done.tasks[0], (), package.version))
    assert grade["checks"][0]["finding"] == "Count them again."
    assert grade["grader_version"] == f"{package.version}+1"


def test_an_entry_that_cannot_be_a_task_is_listed_with_its_reason(
    bfcl: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grading: Grading
) -> None:
    source = tmp_path / "bfcl_eval"
    shutil.copytree(bfcl.folder / "bfcl_eval", source)
    path = source / "data" / "BFCL_v4_irrelevance.json"
    lines = path.read_text("utf-8").splitlines()
    odd = json.loads(lines[0])
    odd["question"].append([{"role": "user", "content": "And now?"}])
    path.write_text("\n".join([json.dumps(odd), *lines[1:3]]), "utf-8")
    monkeypatch.setenv("DYNO_HOME", str(tmp_path / "home"))
    (done,) = convert_bfcl(source, ["irrelevance"])
    assert len(done.tasks) == 2
    omitted = [
        json.loads(line) for line in (done.folder / "omitted.jsonl").read_text().splitlines()
    ]
    assert omitted == list(done.omitted)
    assert omitted[0]["id"] == "irrelevance_0"
    assert "2 turns" in omitted[0]["reason"]


def test_a_category_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    assert choose_categories(["bfcl-simple-java", "simple_java"]) == ["simple_java"]
    with pytest.raises(InputError, match="simple_jva") as caught:
        choose_categories(["simple_jva"])
    assert caught.value.mend == "did you mean `simple_java`?"
