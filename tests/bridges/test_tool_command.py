from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_parts import ANYTHING, WEATHER, Opened, RunningHost

from suites.home import PROJECT

COMMAND = PROJECT / "bridges" / "commands" / "tool"


def tool(
    servers: Opened | list[Any] | str | None, *given: str | bytes, stdin: bytes = b""
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, in an environment as bare as a harness's."""
    env = {"LANG": "C"}
    if servers is not None:
        listed = servers.answer["servers"] if isinstance(servers, Opened) else servers
        env["DYNO_SERVERS"] = listed if isinstance(listed, str) else json.dumps(listed)
    command = [sys.executable, "-I", "-S", str(COMMAND), *given]
    ran = subprocess.run(command, env=env, input=stdin, capture_output=True, timeout=60)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.fixture
def two(host: RunningHost) -> Opened:
    """An attempt with two servers that share one name."""
    shared = {"name": "find", "description": "Finds.", "input_schema": ANYTHING}
    return host.open(
        environments=[
            {
                "name": "shop",
                "kind": "functions",
                "tools": [shared, {"name": "buy", "input_schema": ANYTHING}],
                "result": "from the shop",
            },
            {"name": "map", "kind": "functions", "tools": [shared], "result": "from the map"},
        ]
    )


def test_it_is_a_command_without_saying_python(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    folder = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"PATH": folder, "DYNO_SERVERS": json.dumps(opened.answer["servers"])}
    ran = subprocess.run(
        [COMMAND, "weather_get", '{"city": "x"}'], env=env, capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, b"sunny\n")


def test_the_list_tells_all_that_a_call_needs(host: RunningHost) -> None:
    code, out, _ = tool(host.open(WEATHER), "--list")
    assert code == 0
    name, description, schema = out.splitlines()
    assert (name, description.strip()) == ("weather_get", "The weather somewhere.")
    assert json.loads(schema) == WEATHER["input_schema"]


def test_one_schema_and_the_tools_of_a_chat_request(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    code, out, _ = tool(opened, "--schema", "weather_get")
    assert (code, json.loads(out)) == (0, WEATHER["input_schema"])
    code, out, _ = tool(opened, "--chat-tools")
    assert (code, json.loads(out)) == (
        0,
        [
            {
                "type": "function",
                "function": {
                    "name": "weather_get",
                    "description": "The weather somewhere.",
                    "parameters": WEATHER["input_schema"],
                },
            }
        ],
    )
    code, _, told = tool(opened, "--schema", "nope")
    assert (code, told) == (2, "tool: there is no tool nope; the tools here: weather_get\n")


@pytest.mark.parametrize(
    "arguments",
    ['{"city":"é \\u00e9","days":1.0}', '{ "city":"a","city":"b" }', '{"city":"x\\"$HOME`"}'],
)
def test_a_call_is_recorded_as_it_was_typed(host: RunningHost, arguments: str) -> None:
    opened = host.open(WEATHER)
    assert tool(opened, "weather_get", arguments.encode()) == (0, "sunny\n", "")
    assert tool(opened, "weather_get", "-", stdin=arguments.encode()) == (0, "sunny\n", "")
    assert [row["arguments"] for row in opened.rows("call")] == [arguments] * 2


def test_a_tool_error_is_printed_and_told_by_the_exit_code(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    code, out, told = tool(opened, "weather_get", '{"city": 5}')
    assert (code, told) == (1, "")
    assert "arguments.city: 5 is not of type 'string'" in out
    assert tool(opened, "weather_get", "[1]")[0] == 1
    code, out, _ = tool(opened, "wéather", "{}")
    assert (code, out) == (1, "There is no tool 'wéather'. The tools here: weather_get.\n")
    statuses = [row["status"] for row in opened.rows("result")]
    assert statuses == ["refused", "refused", "unknown_tool"]


def test_a_result_is_printed_as_it_is(host: RunningHost) -> None:
    text = "é\n" * 50_000
    opened = host.open({"name": "long", "input_schema": ANYTHING, "result": text})
    assert tool(opened, "long", "{}") == (0, text, "")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "nothing was given"),
        (("--nope",), "not understood: --nope"),
        (("weather_get",), "the arguments are missing"),
        (("weather_get", "{city: 1}"), "the arguments are not JSON"),
        (("weather_get", '{"city": NaN}'), "NaN is not JSON"),
        (("weather_get", '{"a":1}},"x":{"b":2}'), "the arguments are not JSON"),
        (("weather_get", "{}", "more"), "not understood"),
        (("weather_get", b'{"city": "\xff"}'), "not UTF-8"),
    ],
)
def test_wrong_usage_is_one_line_and_reaches_no_bridge(
    host: RunningHost, given: tuple[str | bytes, ...], told: str
) -> None:
    opened = host.open(WEATHER)
    code, out, error = tool(opened, *given)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert told in error
    assert not opened.rows()


def test_where_no_attempt_runs_it_says_so(host: RunningHost) -> None:
    assert tool(None, "--list")[0] == 2
    assert "DYNO_SERVERS is not set" in tool(None, "--list")[2]
    assert tool("[{}]", "--list")[0] == 2
    assert tool([], "find", "{}") == (2, "", "tool: there are no tools in this attempt\n")
    opened = host.open(WEATHER)
    opened.close()
    code, _, told = tool(opened, "weather_get", "{}")
    assert (code, told.count("\n")) == (3, 1)
    assert "404" in told
    gone = [{"name": "x", "url": "http://127.0.0.1:1/t/x/mcp"}]
    assert tool(gone, "weather_get", "{}")[0] == 3


def test_help_says_how(host: RunningHost) -> None:
    code, out, _ = tool(None, "--help")
    assert code == 0
    assert "tool NAME JSON" in out


def test_tools_of_the_same_name_are_told_apart_by_their_server(two: Opened) -> None:
    code, out, _ = tool(two, "--list")
    assert [line for line in out.splitlines() if line[0] != " "] == ["shop.find", "buy", "map.find"]
    names = [item["function"]["name"] for item in json.loads(tool(two, "--chat-tools")[1])]
    assert names == ["shop__find", "buy", "map__find"]
    assert tool(two, "shop.find", "{}") == (0, "from the shop\n", "")
    assert tool(two, "map__find", "{}") == (0, "from the map\n", "")
    assert tool(two, "buy", "{}") == (0, "from the shop\n", "")
    code, _, told = tool(two, "find", "{}")
    assert (code, "shop.find or map.find" in told) == (2, True)
    assert tool(two, "--schema", "map.find")[0] == 0
    assert tool(two, "nope", "{}")[0] == 1
    rows = two.rows("call")
    assert [(row["server"], row["tool"]) for row in rows] == [
        ("shop", "find"),
        ("map", "find"),
        ("shop", "buy"),
        ("shop", "nope"),
    ]
