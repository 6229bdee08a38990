"""The harnesses that come with dyno: what they do with a model, with bridges, and when one fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness_parts import ADD, Ran, RunningHost, Stage, Warm, playbook, scripted

GOLD = [{"tool": "add", "arguments": {"a": n, "b": 2}} for n in (1, 5)]
CALL = {"calls": [{"tool": "add", "arguments": {"a": 1, "b": 2}}]}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    running = RunningHost(tmp_path_factory.mktemp("host"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    parent = Warm()
    yield parent
    parent.stop()


Play = Callable[..., tuple[Stage, Ran]]


@pytest.fixture
def play(host: RunningHost, warm: Warm) -> Play:
    """Run the reference harness, warm, with a model."""

    def run(model: dict[str, Any], replaced: dict[str, str] | None = None, **open: Any) -> Any:
        stage = Stage(host, "reference", model, **open)
        return stage, stage.run_warm(warm, **(replaced or {}))

    return run


def tool_messages(stage: Stage) -> list[str]:
    """What the model was told of its calls, from its last request."""
    messages = json.loads(stage.model_rows("request")[-1]["body"])["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_the_loop_calls_in_order_tells_the_results_and_prints_the_answer(play: Play) -> None:
    stage, ran = play(scripted("oracle", GOLD))
    assert (ran.code, ran.stdout, ran.stderr) == (0, "Three.\n", "")
    arguments = [json.loads(row["arguments"]) for row in stage.opened.rows("call")]
    assert arguments == [call["arguments"] for call in GOLD]
    assert tool_messages(stage) == ["3", "3"]
    summary = stage.close()
    assert (summary["listed"], summary["tool_calls"], summary["model_calls"]) == (True, 2, 2)
    assert len(stage.opened.rows("list")) == 1, "tools are listed once"
    assert summary["cost"] > 0


def test_it_runs_cold_as_it_runs_warm(host: RunningHost) -> None:
    stage = Stage(host, "reference", scripted("oracle", GOLD))
    ran = stage.run()
    assert (ran.code, ran.stdout, ran.stderr) == (0, "Three.\n", "")
    assert stage.close()["tool_calls"] == 2


def test_an_attempt_without_tools_is_a_plain_question(play: Play) -> None:
    stage, ran = play(scripted("oracle"), tools=[])
    assert (ran.code, ran.stdout) == (0, "Three.\n")
    assert "tools" not in json.loads(stage.model_rows("request")[0]["body"])


def test_arguments_that_are_not_json_are_told_to_the_model(play: Play) -> None:
    broken = [{"tool": "add", "arguments": text} for text in ('{"a": 1', "[1]", "")]
    stage, ran = play(playbook({"calls": broken}, {"text": "Sorry."}))
    assert (ran.code, ran.stdout) == (0, "Sorry.\n")
    said = tool_messages(stage)
    assert "not valid JSON" in said[0]
    assert "must be a JSON object" in said[1]
    assert "required" in said[2], "nothing at all is an empty object, for the bridge to judge"
    assert stage.close()["tool_errors"] == 1


def test_a_tool_that_does_not_exist_is_the_bridges_to_refuse(play: Play) -> None:
    stage, ran = play(playbook({"calls": [{"tool": "nope", "arguments": {}}]}, {"text": "Sorry."}))
    assert ran.code == 0
    assert [row["status"] for row in stage.opened.rows("result")] == ["unknown_tool"]
    assert "nope" in tool_messages(stage)[0]


def test_two_servers_with_a_tool_of_the_same_name_are_told_apart(play: Play) -> None:
    def server(name: str, result: str) -> dict[str, Any]:
        return {"name": name, "kind": "functions", "tools": [ADD | {"result": result}]}

    calls = [{"tool": name, "arguments": {"a": 1, "b": 2}} for name in ("add", "two__add")]
    stage, ran = play(
        playbook({"calls": calls}, {"text": "Both."}),
        environments=[server("one", "of one"), server("two", "of two")],
    )
    assert (ran.code, tool_messages(stage)) == (0, ["of one", "of two"])


def test_it_stops_at_its_step_limit(play: Play) -> None:
    stage, ran = play(playbook(CALL, loop=True), {"steps": "3"})
    assert (ran.code, ran.stdout) == (7, "")
    assert stage.close()["model_calls"] == 3


def test_it_stops_when_its_budget_is_spent(play: Play) -> None:
    stage, ran = play(playbook(CALL, loop=True), model_calls=2)
    assert ran.code == 5
    assert stage.close()["budget"] == "model_calls"


def test_it_survives_an_endpoint_that_fails_now_and_then(play: Play) -> None:
    faults = [{"status": 429, "headers": {"retry-after-ms": "20"}}, {"status": 500}]
    stage, ran = play(playbook({"faults": faults, "text": "Made it."}))
    assert (ran.code, ran.stdout) == (0, "Made it.\n")
    assert stage.close()["upstream_error"] is None


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"status": 500}, 4),
        ({"status": 400}, 3),
        ({"body": ""}, 4),
        ({"body": "<html>", "headers": {"content-type": "text/html"}}, 4),
        ({"body": {"error": {"message": "inside a 200"}}}, 4),
        ({"text": "cut", "cut_stream_after": 0}, 4),
    ],
    ids=["500", "400", "empty", "html", "error in 200", "cut"],
)
def test_an_endpoint_that_does_not_answer_has_its_exit_code(
    play: Play, step: dict[str, Any], code: int
) -> None:
    stage, ran = play(playbook(step, loop=True))
    assert (ran.code, ran.stdout) == (code, "")
    assert "Traceback" not in ran.stderr
    assert (stage.close()["upstream_error"] is not None) == (code == 4)


def test_a_model_out_of_reach_has_its_exit_code(play: Play) -> None:
    _, ran = play(scripted("oracle", GOLD), {"model_url": "http://127.0.0.1:9/v1"})
    assert ran.code == 4
    assert "Traceback" not in ran.stderr


def test_a_bridge_out_of_reach_has_its_exit_code(
    play: Play, host: RunningHost, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    for url in ("http://127.0.0.1:9/mcp", f"http://127.0.0.1:{host.port}/t/none/functions/mcp"):
        config.write_text(json.dumps({"mcpServers": {"x": {"type": "http", "url": url}}}))
        stage, ran = play(scripted("oracle", GOLD), {"mcp_config": str(config)})
        assert ran.code == 6
        assert "out of reach" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert stage.close()["listed"] is False


def test_the_shell_script_makes_the_calls_of_one_response(host: RunningHost) -> None:
    stage = Stage(host, "shell-script", scripted("oracle", GOLD))
    ran = stage.run()
    assert (ran.code, ran.stdout) == (0, "3\n3\n")
    arguments = [json.loads(row["arguments"]) for row in stage.opened.rows("call")]
    assert arguments == [call["arguments"] for call in GOLD]
    summary = stage.close()
    assert (summary["listed"], summary["model_calls"]) == (True, 1)


def test_the_shell_script_carries_arguments_whole(host: RunningHost) -> None:
    odd = '{"a": "it\'s \\"$HOME\\" `x` \\\\ \\n é\u2028",\n "b":  [1,  "  two  "]}'
    step = {"calls": [{"tool": "add", "arguments": odd}]}
    stage = Stage(host, "shell-script", playbook(step))
    assert stage.run().code == 0
    (row,) = stage.opened.rows("call")
    assert row["arguments"] == odd.replace("\n", " ")
    assert stage.close()["tool_errors"] == 1, "the bridge refused them, and the script went on"


def test_the_shell_script_says_why_it_stopped(host: RunningHost) -> None:
    stage = Stage(host, "shell-script", playbook({"status": 500}, loop=True))
    ran = stage.run()
    assert (ran.code, len(stage.model_rows("request"))) == (4, 3)
    assert "status 500" in ran.stderr
    stage = Stage(host, "shell-script", scripted("oracle", GOLD))
    stage.close()
    assert stage.run().code == 6
