from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from host_parts import ANYTHING, WEATHER, RunningHost, coded

from bridges.arguments import read, sent_by_hand, shape_problem

CODE = """
import sys

def add(a, b):
    return a + b

def echo(**arguments):
    return arguments

async def later():
    return "later"

def nothing():
    return None

def surrogate():
    return "\\ud800 é"

def fails():
    raise ValueError("no such city: é")

def ends():
    sys.exit(3)

def thing():
    return object()

def prints():
    print("noise")
    return "quiet"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(CODE)
    return tmp_path


# ---------------------------------------------------------------- results


def test_an_accepted_call_returns_the_fixed_text_and_nothing_else(host: RunningHost) -> None:
    own = {"name": "own", "input_schema": ANYTHING, "result": "mine: é"}
    opened = host.open(WEATHER, own, result="the suite's")
    client = opened.client()
    answer = client.call("weather_get", '{"city": "Paris"}')
    assert (answer["text"], answer["isError"]) == ("the suite's", False)
    assert "structuredContent" not in answer
    assert client.call("own")["text"] == "mine: é"
    assert [row["status"] for row in opened.rows("result")] == ["ok", "ok"]


def test_code_answers_with_text_or_json_and_its_exceptions_are_tool_errors(
    host: RunningHost, root: Path
) -> None:
    names = ("add", "echo", "later", "nothing", "surrogate", "prints")
    bad = ("fails", "ends", "thing", "missing")
    opened = host.open(*coded(*names, *bad), root=root)
    client = opened.client()
    assert client.call("add", '{"a": 1, "b": 2.5}')["text"] == "3.5"
    assert json.loads(client.call("echo", '{"city": "é", "n": [1]}')["text"]) == {
        "city": "é",
        "n": [1],
    }
    texts = [client.call(name)["text"] for name in names[2:]]
    assert texts == ["later", "null", "\\ud800 é", "quiet"]
    errors = [client.call(name) for name in bad]
    assert all(error["isError"] for error in errors)
    told = [error["text"] for error in errors]
    assert told[0] == "ValueError: no such city: é"
    assert told[1] == "SystemExit: 3"
    assert "not JSON serializable" in told[2]
    assert told[3] == "LookupError: code.py has no function 'missing'"
    statuses = [row["status"] for row in opened.rows("result")]
    assert statuses == ["ok"] * 6 + ["tool_error"] * 4
    assert opened.close()["tool_errors"] == 4


def test_a_suite_is_not_written_to(host: RunningHost, root: Path) -> None:
    opened = host.open(*coded("add"), root=root)
    opened.client().call("add", '{"a": 1, "b": 2}')
    assert [path.name for path in root.iterdir()] == ["code.py"]
    opened.close()


def test_a_file_that_is_not_there_is_a_tool_error_that_names_it(
    host: RunningHost, tmp_path: Path
) -> None:
    answer = host.open(*coded("add", file="gone.py"), root=tmp_path).client().call("add")
    assert answer["isError"]
    assert "'gone.py'" in answer["text"]


def test_a_long_result_is_cut_in_the_middle_and_says_by_how_much(host: RunningHost) -> None:
    text = "A" * 300_000 + "é" * 300_000 + "Z"
    opened = host.open({"name": "long", "input_schema": ANYTHING, "result": text})
    answer = opened.client().call("long")
    (row,) = opened.rows("result")
    assert row["text"] == answer["text"]
    assert answer["text"].startswith("AAA")
    assert answer["text"].endswith("éZ")
    assert f"[… {row['cut']} bytes left out …]" in answer["text"]
    kept = answer["text"].replace(f"\n[… {row['cut']} bytes left out …]\n", "")
    assert len(kept.encode()) + row["cut"] == len(text.encode())
    assert len(kept.encode()) <= 262_144


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "arguments",
    [
        '{"city":"Paris","days":1.0}',
        '{"city":"Paris","days":1}',
        '{ "city" : "Paris" ,\n\t"days" : 1e0 }',
        '{"city":"first","city":"second"}',
        '{"city":"\\u00e9é\\ud800"}',
        '{"city":"}{][\\"\\\\"}',
        '{"city":"x","days":123456789012345678901234567890}',
    ],
)
def test_the_record_holds_the_arguments_as_they_were_written(
    host: RunningHost, arguments: str
) -> None:
    opened = host.open(WEATHER)
    assert not opened.client().call("weather_get", arguments)["isError"]
    (row,) = opened.rows("call")
    assert row["arguments"] == arguments
    assert (row["server"], row["tool"], row["native"]) == (
        "functions",
        "weather_get",
        "weather.get",
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{}", "arguments: 'city' is a required property"),
        ('{"city": 5}', "arguments.city: 5 is not of type 'string'"),
        ('{"city": "x", "unit": "K"}', "arguments.unit: 'K' is not one of ['C', 'F']"),
        ('{"city": "x", "day": 1}', "'day' was unexpected"),
        ('{"city": "x", "days": 1.5}', "arguments.days: 1.5 is not of type 'integer'"),
        ("[1]", "an object is needed, not an array"),
        ('"city"', "an object is needed, not a string"),
        ("7", "an object is needed, not a number"),
        ('{"city": NaN}', "NaN is not a JSON value"),
        ('{"city": "x", "days": ' + "9" * 5000 + "}", "too many digits"),
        ('{"city": ' + "[" * 50_000 + "]" * 50_000 + "}", "nested too deeply"),
    ],
)
def test_arguments_that_do_not_fit_come_back_as_a_tool_error_and_are_journaled(
    host: RunningHost, arguments: str, told: str
) -> None:
    opened = host.open(WEATHER)
    answer = opened.client().call("weather_get", arguments)
    assert answer["isError"]
    assert told in answer["text"]
    assert answer["text"].startswith("The arguments do not fit the schema of weather_get:")
    (call,), (result,) = opened.rows("call"), opened.rows("result")
    assert call["arguments"] == arguments
    assert (result["call"], result["status"], result["is_error"]) == (call["seq"], "refused", True)
    assert result["text"] == answer["text"]
    summary = opened.close()
    assert (summary["tool_calls"], summary["tool_errors"]) == (1, 1)


def test_absent_and_null_arguments_are_none(host: RunningHost) -> None:
    opened = host.open({"name": "now", "input_schema": ANYTHING})
    client = opened.client()
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now"}}'
    assert client.send(body)[0] == 200
    assert not client.call("now", "null")["isError"]
    assert [row["arguments"] for row in opened.rows("call")] == [None, "null"]


def test_a_tool_that_is_not_there_is_a_tool_error_that_names_those_that_are(
    host: RunningHost,
) -> None:
    opened = host.open(WEATHER)
    answer = opened.client().call("weather", '{"city": 1}')
    assert answer["isError"]
    assert answer["text"] == "There is no tool 'weather'. The tools here: weather_get."
    (call,), (result,) = opened.rows("call"), opened.rows("result")
    assert (call["tool"], call["native"], call["arguments"]) == ("weather", None, '{"city": 1}')
    assert result["status"] == "unknown_tool"


def test_a_tool_answers_to_its_native_name_too(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    client = opened.client()
    assert client.call("weather.get", '{"city": "Paris"}')["text"] == "sunny"
    assert [tool["name"] for tool in client.tools()] == ["weather_get"]
    (call,) = opened.rows("call")
    assert (call["tool"], call["native"]) == ("weather.get", "weather.get")


def test_the_schema_is_listed_as_the_task_has_it(host: RunningHost) -> None:
    schema = {
        "type": "object",
        "properties": {
            "z": {"$ref": "#/$defs/deep"},
            "a": {"anyOf": [{"type": "string", "x-mine": 1}, {"type": "null"}]},
        },
        "required": ["z"],
        "additionalProperties": False,
        "$defs": {"deep": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
    }
    opened = host.open({"name": "deep", "description": "d", "input_schema": schema})
    (tool,) = opened.client().tools()
    assert tool == {"name": "deep", "description": "d", "inputSchema": schema}
    legacy = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    _, answer = opened.client().send(legacy, {"mcp-protocol-version": "2025-06-18"})
    assert json.loads(answer)["result"]["tools"][0]["inputSchema"] == schema
    listed = opened.rows("list")
    assert [row["protocol"] for row in listed] == ["2026-07-28", "2025-06-18"]
    assert listed[0]["tools"] == ["deep"]


def test_a_name_that_no_utf8_can_hold_is_told_readably(host: RunningHost) -> None:
    inner = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"map": inner}}
    opened = host.open({"name": "map", "input_schema": schema})
    answer = opened.client().call("map", '{"map": {"\\ud800": 5}}')
    assert "arguments.map.\\ud800: 5 is not of type 'string'" in answer["text"]
    assert opened.rows("result")[0]["text"] == answer["text"]


# ---------------------------------------------------------------- checking that takes long


def test_a_reference_is_followed_and_its_misfit_named(host: RunningHost) -> None:
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}},
            }
        },
    }
    client = host.open({"name": "plant", "input_schema": schema}).client()
    assert client.call("plant", '{"tree": {"left": {"left": {"n": 1}}}}')["text"] == "sunny"
    answer = client.call("plant", '{"tree": {"left": {"left": {"n": "x"}}}}')
    assert "arguments.tree.left.left.n: 'x' is not of type 'integer'" in answer["text"]


def test_a_parameter_called_pattern_is_no_pattern(host: RunningHost) -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}}}
    before = host.stats()["workers"]
    opened = host.open({"name": "grep", "input_schema": schema})
    assert opened.client().call("grep", '{"pattern": "(a+)+$"}')["text"] == "sunny"
    assert host.stats()["workers"] == before


def test_arguments_that_could_stall_a_checker_stall_only_their_own_attempt(
    host: RunningHost,
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^(a+)+$"},
            "many": {"type": "array", "items": {"type": "integer"}},
        },
    }
    hostile = host.open({"name": "trap", "input_schema": schema}, tool_seconds=3)
    began = time.monotonic()
    answer = hostile.client().call("trap", json.dumps({"name": "a" * 60 + "!"}))
    assert answer["isError"]
    assert "could not be checked within 3 seconds" in answer["text"]
    assert time.monotonic() - began < 30
    (row,) = hostile.rows("result")
    assert row["status"] == "refused"
    many = json.dumps({"many": [1] * 50_000 + ["x"]})
    assert "arguments.many[50000]" in hostile.client().call("trap", many)["text"]
    assert hostile.client().call("trap", '{"name": "aaa"}')["text"] == "sunny"


@pytest.mark.parametrize("text", ['{"a": 1.0}', "null", "[]", ' {"a": 1, "a": 2} ', "12"])
def test_arguments_by_hand_are_judged_as_those_of_a_request(text: str) -> None:
    body = f'{{"method":"tools/call","params":{{"arguments":{text}}}}}'
    by_request, by_hand = read(body.encode()), sent_by_hand(text)
    assert by_hand.value == by_request.value
    assert by_hand.arguments == text
    assert shape_problem(by_hand) == shape_problem(by_request)


@pytest.mark.parametrize("text", ["", "{", '{}},"method":"x","params":{', '{"a": 1} more', "nan"])
def test_arguments_by_hand_that_are_no_json_are_kept_and_told(text: str) -> None:
    sent = sent_by_hand(text)
    assert sent.arguments == text
    assert "they are not JSON" in str(shape_problem(sent))
