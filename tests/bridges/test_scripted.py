"""Scripted models: what they say is known beforehand, and they say it like the real thing."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from statistics import mean
from typing import Any

import openai
import pytest
from gateway_parts import Line, Mounted, model, mounted, post, start, until

from bridges.channel import RemoteError
from bridges.scripted_behaviours import (
    Asked,
    Script,
    altered,
    fault,
    next_step,
    offered,
    planned_calls,
    plausible,
)

ADD = {
    "name": "math_add",
    "native_name": "math.add",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "unit": {"type": "string", "enum": ["m", "km"]}},
        "required": ["a", "unit"],
    },
}
GOLD = [
    {"tool": "math_add", "arguments": {"a": 1, "unit": "m"}},
    {"tool": "math_add", "arguments": {"a": 2, "unit": "é"}},
]
MESSAGES: list[Any] = [
    {"role": "user", "content": "Add."},
    {"role": "assistant", "content": "What?"},
    {"role": "user", "content": "The numbers."},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with mounted(tmp_path_factory.mktemp("scripted")) as running:
        yield running


def scripted(
    behaviour: str, gold: list[dict[str, Any]] = GOLD, seed: int = 1, **settings: Any
) -> dict[str, Any]:
    """A scripted model as the flow hands it to the host."""
    script = {
        "behaviour": behaviour,
        "settings": settings,
        "seed": seed,
        "oracle": {"calls": gold, "vandal": None, "answer": "Added."},
        "tools": [ADD],
    }
    return model(f"scripted:{behaviour}", scripted=script)


def ask(line: Line, messages: list[Any], **fields: Any) -> dict[str, Any]:
    """The message of a response in one piece."""
    tools = [{"type": "function", "function": {"name": "math_add", "parameters": {}}}]
    status, data = post(line, {"model": "m", "messages": messages, "tools": tools, **fields})
    assert status == 200, data
    return json.loads(data)["choices"][0]["message"]


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    calls = message.get("tool_calls") or []
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


def with_results(messages: list[Any], message: dict[str, Any]) -> list[Any]:
    """The conversation after a harness carried out what the message asks for."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
        for call in message.get("tool_calls") or []
    ]
    return [*messages, message, *results]


# ---------------------------------------------------------------- behaviours


def test_the_oracle_makes_all_gold_calls_at_once_and_then_answers(gateway: Mounted) -> None:
    line = gateway.open(scripted("oracle"))
    first = ask(line, MESSAGES)
    assert calls_of(first) == [(c["tool"], c["arguments"]) for c in GOLD]
    assert ask(line, MESSAGES) == first, "a repeated request gets the same answer"
    last = ask(line, with_results(MESSAGES, first))
    assert (last["content"], calls_of(last)) == ("Added.", [])


def test_the_oracle_answers_at_once_where_no_call_is_right(gateway: Mounted) -> None:
    assert ask(gateway.open(scripted("oracle", gold=[])), MESSAGES)["content"] == "Added."


def test_calls_come_one_at_a_time_where_parallel_ones_are_not_allowed(gateway: Mounted) -> None:
    line = gateway.open(scripted("oracle"))
    messages, made = MESSAGES, []
    while calls := calls_of(message := ask(line, messages, parallel_tool_calls=False)):
        made.append(calls)
        messages = with_results(messages, message)
    assert made == [[(c["tool"], c["arguments"])] for c in GOLD]


def test_null_refuses_without_a_call(gateway: Mounted) -> None:
    message = ask(gateway.open(scripted("null")), MESSAGES)
    assert (message["content"], calls_of(message)) == ("I cannot help with that.", [])


def test_the_vandal_does_the_right_work_and_one_call_too_many(gateway: Mounted) -> None:
    right = [(c["tool"], c["arguments"]) for c in GOLD]
    assert calls_of(ask(gateway.open(scripted("vandal")), MESSAGES)) == [*right, right[-1]]
    own = scripted("vandal")
    own["scripted"]["oracle"]["vandal"] = {"tool": "math_add", "arguments": {"a": 9, "unit": "km"}}
    assert calls_of(ask(gateway.open(own), MESSAGES))[-1] == ("math_add", {"a": 9, "unit": "km"})
    idle = calls_of(ask(gateway.open(scripted("vandal", gold=[])), MESSAGES))
    assert idle == [("math_add", {"a": 1, "unit": "m"})], (
        "where no call is right, any call is wrong"
    )


def script(behaviour: str, seed: int, **more: Any) -> Script:
    oracle = {"calls": GOLD, "answer": "Added."}
    given = {"behaviour": behaviour, "seed": seed, "oracle": oracle, "tools": [ADD], **more}
    return Script.of(given)


def test_noisy_errs_at_its_rate_and_the_same_way_each_time() -> None:
    def right(seed: int) -> bool:
        return planned_calls(script("noisy", seed)) == GOLD

    solved = [right(seed) for seed in range(3000)]
    assert solved == [right(seed) for seed in range(3000)]
    assert 0.66 < mean(solved) < 0.74, "pass@1"
    triples = [all(solved[at : at + 3]) for at in range(0, 3000, 3)]
    assert 0.28 < mean(triples) < 0.41, "pass^3 lies well below"


def test_noisy_errs_in_every_way() -> None:
    lengths = Counter(len(planned_calls(script("noisy", seed))) for seed in range(300))
    assert set(lengths) == {1, 2, 3}, "left out, kept or changed, added"
    assert lengths[2] > sum(planned_calls(script("noisy", s)) == GOLD for s in range(300))


def test_noisys_faults_are_rare_and_differ_between_tries_and_requests() -> None:
    def faults(seed: int, number: int) -> list[int]:
        steps = (fault(script("noisy", seed, **{"try": number}), n) for n in range(1, 6))
        return [step.status if step else 200 for step in steps]

    drawn = [status for seed in range(2000) for status in faults(seed, 1)]
    counted = Counter(drawn)
    assert 0.02 < counted[429] / len(drawn) < 0.04
    assert 0.012 < counted[500] / len(drawn) < 0.028
    assert faults(7, 1) == faults(7, 1)
    assert any(faults(seed, 1) != faults(seed, 2) for seed in range(100))
    assert fault(script("oracle", 1), 1) is None


def test_noisys_endpoint_fails_like_a_providers(gateway: Mounted) -> None:
    line = gateway.open(scripted("noisy", rate_500=1.0, rate_429=0.0))
    status, data = post(line, {"messages": MESSAGES})
    assert (status, json.loads(data)["error"]["type"]) == (500, "server_error")
    assert line.close()["upstream_error"]["class"] == "upstream_error"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["math_add", "x_math_add"], "math_add"),
        (["mcp__functions__math_add", "mcp__functions__my_add"], "mcp__functions__math_add"),
        (["bridge_math_add"], "bridge_math_add"),
        (["premath_add", "a.math_add"], "a.math_add"),
        (["bash"], "math_add"),
        ([], "math_add"),
    ],
)
def test_tools_are_called_by_the_name_the_harness_gave_them(names: list[str], found: str) -> None:
    assert offered("math_add", names) == found


def test_a_made_up_value_fits_its_schema() -> None:
    import jsonschema

    schema = {
        "type": "object",
        "properties": {
            "s": {"type": "string", "minLength": 3},
            "n": {"type": ["number", "null"], "minimum": 5},
            "l": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
            "e": {"enum": ["b", "a"]},
            "o": {"anyOf": [{"type": "object", "required": ["k"]}, {"type": "string"}]},
            "optional": {"type": "string"},
        },
        "required": ["s", "n", "l", "e", "o"],
    }
    value = plausible(schema)
    jsonschema.validate(value, schema)
    assert "optional" not in value


@pytest.mark.parametrize("value", [True, 3, 2.5, "x", "", ["a"], [], {"k": {"l": 1}}, {}, None])
def test_an_altered_value_is_another_one(value: Any) -> None:
    assert altered(value, script("noisy", 1).random("test")) != value


def test_a_script_with_a_mistake_is_refused_in_words(gateway: Mounted) -> None:
    for wrong, said in [
        (scripted("noisy", eror_rate=0.5), "no setting 'eror_rate'"),
        (scripted("orcale"), "no scripted model 'orcale'"),
        (scripted("playbook"), "steps"),
        (scripted("playbook", steps=[{"cals": []}]), "steps[0]: unknown key 'cals'"),
        (scripted("playbook", playbook="/no/such/file.yaml"), "/no/such/file.yaml: cannot be read"),
    ]:
        with pytest.raises(RemoteError) as refused:
            gateway.open(wrong)
        assert said in str(refused.value)


# ---------------------------------------------------------------- playbooks


def test_a_playbook_is_followed_step_by_step(gateway: Mounted, tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text(
        "steps:\n"
        "- calls: [{tool: math_add, arguments: {a: 1}}, {tool: math_add, arguments: '{broken'}]\n"
        "- text: Wait.\n"
        "- text: Ready.\n"
        "plays:\n"
        "- {when: Berlin, steps: [{text: Berlin it is.}]}\n"
    )
    line = gateway.open(scripted("playbook", playbook=str(book)))
    first = ask(line, MESSAGES)
    arguments = [call["function"]["arguments"] for call in first["tool_calls"]]
    assert arguments == ['{"a": 1}', "{broken"]
    messages = with_results(MESSAGES, first)
    said = []
    for _ in range(3):
        message = ask(line, messages)
        said.append(message["content"])
        messages = [*messages, message]
    assert said == ["Wait.", "Ready.", "Done."]
    berlin = gateway.open(scripted("playbook", playbook=str(book)))
    assert ask(berlin, [{"role": "user", "content": "To Berlin!"}])["content"] == "Berlin it is."


def test_a_playbook_stages_faults_and_repeats_its_last_step(gateway: Mounted) -> None:
    steps = [{"faults": [{"status": 500}, {"status": 503}], "text": "Again."}]
    line = gateway.open(scripted("playbook", steps=steps, loop=True))
    statuses = [post(line, {"messages": MESSAGES})[0] for _ in range(4)]
    assert statuses == [500, 503, 200, 200]
    later = [*MESSAGES, *[{"role": "assistant", "content": "Again."}] * 5]
    assert ask(line, later)["content"] == "Again."


def test_a_playbook_sends_what_no_model_should(gateway: Mounted) -> None:
    html = {"status": 200, "body": "<html>", "headers": {"content-type": "text/html"}}
    line = gateway.open(scripted("playbook", steps=[html]))
    assert post(line, {"messages": MESSAGES}) == (200, b"<html>")
    line = gateway.open(scripted("playbook", steps=[{"text": "long" * 99, "cut_stream_after": 3}]))
    with pytest.raises(HTTPException):
        post(line, {"messages": MESSAGES, "stream": True})
    row = until(lambda: line.rows("response"))[0]
    assert (row["complete"], row["usage"]) == (False, None)


def test_a_playbook_can_hang_and_its_attempt_still_closes(
    gateway: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.gateway.CLOSE", 0.2)
    line = gateway.open(scripted("playbook", steps=[{"hang": True}]))
    connection = start(line, {"messages": MESSAGES})
    until(lambda: line.rows("request"))
    summary = line.close()
    assert summary["cost"] is None, "a call under way is not free"
    connection.close()


# ---------------------------------------------------------------- the wire


def test_usage_is_a_quarter_of_the_characters_rounded_up(gateway: Mounted) -> None:
    line = gateway.open(scripted("oracle"))
    tools = [{"type": "function", "function": {"name": "math_add", "parameters": {"é": 1}}}]
    post(line, {"messages": MESSAGES, "tools": tools, "temperature": 1})
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    sent = len(json.dumps(MESSAGES, **compact)) + len(json.dumps(tools, **compact))
    said = sum(len("math_add") + len(json.dumps(c["arguments"])) for c in GOLD)
    usage = line.rows("response")[0]["usage"]
    assert (usage["input"], usage["output"]) == (math.ceil(sent / 4), math.ceil(said / 4))


def test_a_stream_says_the_same_as_a_reply_in_one_piece(gateway: Mounted) -> None:
    line = gateway.open(scripted("oracle"))
    client = openai.OpenAI(base_url=line.url, api_key="t", max_retries=0)
    tools: Any = [
        {"type": "function", "function": {"name": "functions__math_add", "parameters": {}}}
    ]
    asked: Any = {"model": "m", "messages": MESSAGES, "tools": tools}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_completion()
    assert streamed.choices[0].finish_reason == "tool_calls"
    pieces = [
        [(c.id, c.function.name, c.function.arguments) for c in reply.choices[0].message.tool_calls]
        for reply in (whole, streamed)
    ]
    assert pieces[0] == pieces[1]
    assert streamed.usage == whole.usage
    assert events.count("chunk") > 6, "arguments come in pieces"
    assert [row["tool_calls"] for row in line.rows("response")] == [2, 2]


# ---------------------------------------------------------------- the process


def test_gold_is_reached_only_through_the_gateway(gateway: Mounted) -> None:
    gateway.open(scripted("oracle"))
    line = gateway.open(scripted("oracle"))
    process = gateway.gateway._scripted._process
    assert process is not None
    token = line.url.split("/")[-2]
    port = process.port.result()
    for guess in (token, ""):
        there = Line(f"http://127.0.0.1:{port}/s/{guess}/v1", line.folder, line.close)
        assert post(there, {"messages": MESSAGES})[0] == 404


def test_the_process_starts_with_the_first_need_and_again_after_a_crash(tmp_path: Path) -> None:
    with mounted(tmp_path) as gateway:
        assert gateway.gateway._scripted._process is None
        line = gateway.open(scripted("oracle"))
        process = gateway.gateway._scripted._process
        assert process is not None
        os.kill(process.process.pid, signal.SIGINT)
        assert ask(line, MESSAGES)["tool_calls"], "Ctrl-C is not for it"
        os.kill(process.process.pid, signal.SIGKILL)
        until(lambda: process.channel.closed)
        assert post(line, {"messages": MESSAGES})[0] == 502
        assert line.close()["upstream_error"], "the attempt is not to blame"
        assert ask(gateway.open(scripted("oracle")), MESSAGES)["tool_calls"]


def test_it_ends_when_its_host_does(tmp_path: Path) -> None:
    with mounted(tmp_path) as gateway:
        gateway.open(scripted("oracle"))
        process = gateway.gateway._scripted._process
        assert process is not None
        began = time.monotonic()
        process.channel.close()
        process.process.wait(5)
        assert time.monotonic() - began < 3


def test_it_knows_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_API_KEY", "sk-not-for-scripts")
    with mounted(tmp_path) as gateway:
        gateway.open(scripted("oracle"))
        process = gateway.gateway._scripted._process
        assert process is not None
        environ = Path(f"/proc/{process.process.pid}/environ")
        if environ.exists():
            assert b"sk-not-for-scripts" not in environ.read_bytes()


def test_a_step_is_chosen_without_memory() -> None:
    oracle = script("oracle", 1)
    asked = Asked(made=1, assistants=9, last_user="", tools=())
    assert [c.tool for c in next_step(oracle, planned_calls(oracle), asked).calls] == ["math_add"]
