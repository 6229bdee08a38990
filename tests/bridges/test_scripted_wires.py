"""Scripted models on every wire, by the real SDKs: the same plan, the same figures, streamed or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
import pytest
from gateway_parts import Line, Mounted, model, mounted

from bridges.gateway import WIRES

TOOL = {"name": "math_add", "input_schema": {"type": "object"}}
GOLD = [
    {"tool": "math_add", "arguments": {"a": 1, "unit": "m"}},
    {"tool": "math_add", "arguments": {"a": 2, "unit": "é" * 30}},
]
CACHED = {"cache_read": 0.4, "cache_write": 0.1, "reasoning": 5}
"""A model that tells of every kind of token."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with mounted(tmp_path_factory.mktemp("scripted-wires")) as running:
        yield running


def scripted(wire: str, behaviour: str = "oracle", **settings: Any) -> dict[str, Any]:
    script = {
        "behaviour": behaviour,
        "settings": settings,
        "seed": 1,
        "oracle": {"calls": GOLD, "vandal": None, "answer": "Added, all of them, as asked."},
        "tools": [TOOL],
    }
    return model(f"scripted:{behaviour}", wire=wire, scripted=script)


@dataclass
class Agent:
    """A small harness: an SDK, and a conversation that it carries on."""

    line: Line
    stream: bool
    tool: str = "math_add"
    messages: list[Any] = field(default_factory=lambda: [{"role": "user", "content": "Add."}])

    def step(self, **more: Any) -> tuple[list[tuple[str, Any]], str]:
        """Ask once, answer every call with `ok`; the calls and the text."""
        raise NotImplementedError


class ChatAgent(Agent):
    def step(self, **more: Any) -> tuple[list[tuple[str, Any]], str]:
        client = openai.OpenAI(base_url=self.line.url, api_key="t", max_retries=0)
        tool = {"type": "function", "function": {"name": self.tool, "parameters": {}}}
        asked: Any = {"model": "m", "messages": self.messages, "tools": [tool], **more}
        if self.stream:
            with client.chat.completions.stream(**asked) as stream:
                reply: Any = stream.get_final_completion()
        else:
            reply = client.chat.completions.create(**asked)
        message = reply.choices[0].message
        calls = message.tool_calls or []
        said = {"role": "assistant", "content": message.content}
        if calls:
            said["tool_calls"] = [
                {"id": c.id, "type": "function",
                 "function": {"name": c.function.name, "arguments": c.function.arguments}}
                for c in calls
            ]  # fmt: skip
        self.messages.append(said)
        self.messages += [{"role": "tool", "tool_call_id": c.id, "content": "ok"} for c in calls]
        told = [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        return told, message.content or ""


class ResponsesAgent(Agent):
    def tools(self) -> list[Any]:
        return [
            {"type": "function", "name": self.tool, "parameters": {}, "strict": False},
            {"type": "web_search"},
            {"type": "custom", "name": "patch", "description": "Free text."},
        ]

    def step(self, **more: Any) -> tuple[list[tuple[str, Any]], str]:
        client = openai.OpenAI(base_url=self.line.url, api_key="t", max_retries=0)
        asked: Any = {"model": "m", "input": self.messages, "tools": self.tools(), **more}
        if self.stream:
            with client.responses.stream(**asked) as stream:
                reply: Any = stream.get_final_response()
        else:
            reply = client.responses.create(**asked)
        keep = {"exclude_none": True, "exclude": {"parsed_arguments"}}
        self.messages += [item.model_dump(**keep) for item in reply.output]
        calls = [item for item in reply.output if item.type == "function_call"]
        self.messages += [
            {"type": "function_call_output", "call_id": c.call_id, "output": "ok"} for c in calls
        ]
        return [(self.named(c), json.loads(c.arguments)) for c in calls], reply.output_text

    def named(self, call: Any) -> str:
        return str(call.name)


class NamespacedAgent(ResponsesAgent):
    """As Codex offers the tools of a server."""

    def tools(self) -> list[Any]:
        inner = {"type": "function", "name": "math_add", "parameters": {}, "strict": False}
        return [
            {"type": "namespace", "name": "mcp__bridge", "description": "b", "tools": [inner]},
            {"type": "web_search"},
        ]

    def named(self, call: Any) -> str:
        assert call.namespace == "mcp__bridge", "a call names its namespace and its bare name"
        return str(call.name)


class MessagesAgent(Agent):
    def step(self, **more: Any) -> tuple[list[tuple[str, Any]], str]:
        root = self.line.url.removesuffix("/v1")
        client = anthropic.Anthropic(base_url=root, api_key="t", max_retries=0)
        tools = [{"name": self.tool, "input_schema": {"type": "object"}}]
        system = [{"type": "text", "text": "Be good.", "cache_control": {"type": "ephemeral"}}]
        asked: Any = {"model": "m", "max_tokens": 99, "messages": self.messages, "tools": tools}
        asked |= {"system": system, **more}
        if self.stream:
            with client.beta.messages.stream(**asked) as stream:
                reply: Any = stream.get_final_message()
        else:
            reply = client.beta.messages.create(**asked)
        calls = [block for block in reply.content if block.type == "tool_use"]
        assert reply.stop_reason == ("tool_use" if calls else "end_turn")
        content = [
            block.model_dump(include={"type", "text", "id", "name", "input"})
            for block in reply.content
        ]
        self.messages.append({"role": "assistant", "content": content})
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": "ok"} for c in calls]
        if results:
            reminder = {"type": "text", "text": "<system-reminder>Go on.</system-reminder>"}
            self.messages.append({"role": "user", "content": [*results, reminder]})
        text = "".join(block.text for block in reply.content if block.type == "text")
        return [(c.name, c.input) for c in calls], text


AGENTS: dict[str, tuple[str, type[Agent]]] = {
    "chat": ("chat", ChatAgent),
    "responses": ("responses", ResponsesAgent),
    "responses, namespaces": ("responses", NamespacedAgent),
    "messages": ("messages", MessagesAgent),
}
EVERY = pytest.mark.parametrize("kind", AGENTS)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
CALLS = [(call["tool"], call["arguments"]) for call in GOLD]


def agent(gateway: Mounted, kind: str, stream: bool, *args: Any, **settings: Any) -> Agent:
    wire, made = AGENTS[kind]
    return made(gateway.open(scripted(wire, *args, **settings)), stream)


@EVERY
@STREAMED
def test_the_oracle_calls_all_of_gold_and_then_answers(
    gateway: Mounted, kind: str, stream: bool
) -> None:
    one = agent(gateway, kind, stream)
    assert one.step() == (CALLS, "")
    assert one.step() == ([], "Added, all of them, as asked.")
    assert [row["tool_calls"] for row in one.line.rows("response")] == [2, 0]


@EVERY
@STREAMED
def test_the_meter_equals_the_models_own_ledger(gateway: Mounted, kind: str, stream: bool) -> None:
    one = agent(gateway, kind, stream, **CACHED)
    for _ in range(3):
        one.step()
    summary = one.line.close()
    assert summary["ledger"] == {"requests": 3, **summary["usage"]}
    assert min(summary["usage"].values()) > 0, "every kind of token was used"


@EVERY
@STREAMED
def test_one_call_at_a_time_where_the_request_wants_it(
    gateway: Mounted, kind: str, stream: bool
) -> None:
    one = agent(gateway, kind, stream)
    more: dict[str, Any] = {"parallel_tool_calls": False}
    if kind == "messages":
        more = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    assert [one.step(**more)[0] for _ in range(3)] == [[CALLS[0]], [CALLS[1]], []]


@pytest.mark.parametrize("kind", ["chat", "responses", "messages"])
@STREAMED
def test_tools_are_called_by_the_name_the_harness_gave_them(
    gateway: Mounted, kind: str, stream: bool
) -> None:
    one = agent(gateway, kind, stream)
    one.tool = "mcp__bridge__math_add"
    assert [name for name, _ in one.step()[0]] == ["mcp__bridge__math_add"] * 2


@EVERY
@STREAMED
def test_a_playbook_is_followed_by_the_responses_given_so_far(
    gateway: Mounted, kind: str, stream: bool
) -> None:
    both = [{"tool": "math_add", "arguments": {"a": n}} for n in (1, 2)]
    steps = [{"text": "First.", "calls": both}, {"text": "Then."}, {"calls": both[:1]}]
    plays = [{"when": "Add.", "steps": steps}]
    one = agent(gateway, kind, stream, "playbook", plays=plays, steps=[{"text": "Wrong."}])
    assert one.step() == ([("math_add", {"a": 1}), ("math_add", {"a": 2})], "First.")
    assert one.step() == ([], "Then.")
    one.messages.append({"role": "user", "content": "Add. Again."})
    assert one.step()[0] == [("math_add", {"a": 1})]
    assert one.step() == ([], "Done.")


@EVERY
@STREAMED
def test_noisys_endpoint_fails_in_the_wires_own_words(
    gateway: Mounted, kind: str, stream: bool
) -> None:
    one = agent(gateway, kind, stream, "noisy", rate_500=1.0, rate_429=0.0)
    with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)) as failed:
        one.step()
    assert "scripted" in str(failed.value)
    error = json.loads(one.line.rows("response")[0]["body"])
    assert (error.get("type") == "error") == (kind == "messages")


@EVERY
def test_a_cut_stream_is_seen_as_one(gateway: Mounted, kind: str) -> None:
    steps = [{"text": "long " * 99, "cut_stream_after": 6}]
    one = agent(gateway, kind, True, "playbook", steps=steps)
    with pytest.raises(Exception):  # noqa: B017 - each SDK has its own
        one.step()
    row = one.line.rows("response")[0]
    assert (row["complete"], row["usage"]) == (False, None)


@STREAMED
def test_a_tool_of_free_text_gets_free_text(gateway: Mounted, stream: bool) -> None:
    steps = [{"calls": [{"tool": "patch", "arguments": {"input": "*** Begin"}}]}]
    one = agent(gateway, "responses", stream, "playbook", steps=steps)
    one.step()
    call = one.messages[-1]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "patch", "*** Begin")


@STREAMED
def test_a_playbook_sends_arguments_that_are_no_json(gateway: Mounted, stream: bool) -> None:
    steps = [{"calls": [{"tool": "math_add", "arguments": "{broken"}]}]
    for wire in WIRES:
        line = gateway.open(scripted(wire, "playbook", steps=steps))
        client = openai.OpenAI(base_url=line.url, api_key="t", max_retries=0)
        said: Any = {"input": "Add."} if wire == "responses" else {"messages": []}
        client.post(
            f"/{WIRES[wire].path}", body={"model": "m", "stream": stream, **said}, cast_to=object
        )
        assert "{broken" in line.rows("response")[0]["body"].replace("\\", "")
