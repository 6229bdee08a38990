"""Conversations about real τ² worlds: both sides act on one world, and it comes to what upstream says."""

from __future__ import annotations

from typing import Any

import pytest
from conversation_parts import GREETING, scripted, talk
from host_parts import Bare, Opened, RunningHost
from tau2_parts import Reference, setup_of

from bridges.scripted import Player
from bridges.scripted_chat import asked_of

SIDES = {"agent": "assistant", "user": "user"}


def gold(task: dict[str, Any]) -> list[dict[str, Any]]:
    actions = (task.get("evaluation_criteria") or {}).get("actions") or []
    return [
        {
            "tool": action["name"],
            "arguments": action["arguments"],
            "requestor": "user" if action.get("requestor") == "user" else "agent",
        }
        for action in actions
    ]


def begin(
    host: RunningHost, upstream: Reference, domain: str, task: dict[str, Any], way: str
) -> Opened:
    """The task's conversation, with its setup and a user by the book."""
    setup = setup_of(task) or {}
    history = setup.get("message_history") or [GREETING]
    said = [
        {"role": m["role"], "content": m["content"]}
        for m in history
        if m["role"] != "tool" and not m.get("tool_calls")
    ]
    calls = [call for call in gold(task) if call["requestor"] == "user"]
    user = {"kind": "scripted", "opening": "I need help.", "calls": calls}
    terms = {"way": way, "messages": said, "stops": ["###STOP###"], "max_steps": 200}
    return host.open(
        environments=[upstream.spec(domain)],
        setup=setup or None,
        conversation={**terms, "max_errors": 10, "user": user},
    )


def play(opened: Opened, task: dict[str, Any], said_before: int) -> None:
    """The oracle, turn by turn, to the end."""
    script = {
        "behaviour": "oracle",
        "oracle": {"calls": gold(task), "answer": "All is done."},
        "conversation": {"way": "turns", "given": {"made": 0, "said": said_before}},
    }
    player, world = Player(script), Bare(opened.url)
    told = opened.answer["conversation"]
    shown: list[dict[str, Any]] = []
    while not told["ended"]:
        step = player.step(asked_of({"messages": [*told["messages"], *shown]}))
        for call in step.calls:
            world.call(call.tool, call.arguments)
            shown.append({"role": "assistant", "tool_calls": [{"function": {"name": call.tool}}]})
        if not step.calls:
            told, shown = opened.say(step.text or ""), []


@pytest.mark.parametrize("number", [0, 7, 19])
def test_both_sides_act_on_one_world_as_upstream_would_have_them(
    worlds: RunningHost, upstream: Reference, number: int
) -> None:
    task = upstream.tasks("telecom", "tasks_small")[number]
    opened = begin(worlds, upstream, "telecom", task, "turns")
    play(opened, task, said_before=1)
    made = [(r["requestor"], r["tool"]) for r in opened.rows("call")]
    assert made == [(c["requestor"], c["tool"]) for c in gold(task)]
    calls = [
        {"requestor": SIDES[c["requestor"]], "name": c["tool"], "arguments": c["arguments"]}
        for c in gold(task)
    ]
    reference = upstream.comes_to("telecom", setup_of(task), calls)
    assert opened.state() == reference["state"]
    summary = opened.close()
    assert summary["conversation"]["ended"] == "user_stop"
    assert summary["tool_calls"] == sum(c["requestor"] == "agent" for c in gold(task))


def test_a_history_is_where_world_and_words_begin(worlds: RunningHost, upstream: Reference) -> None:
    (task, *_) = (t for t in upstream.tasks("mock") if "message_history" in (setup_of(t) or {}))
    opened = begin(worlds, upstream, "mock", task, "turns")
    told = opened.answer["conversation"]
    assert [m["role"] for m in told["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert told["messages"][1]["tool_calls"][0]["id"] == told["messages"][2]["tool_call_id"]
    assert told["turn"] == 2
    assert "task_2" in Bare(opened.url).call("get_users")["text"]
    assert opened.rows("call")[0]["turn"] == 2
    assert opened.close()["conversation"]["steps"] == 3


def test_the_users_of_worlds_without_user_tools_call_nothing(
    worlds: RunningHost, upstream: Reference
) -> None:
    setup = scripted("create_task")
    opened = talk(worlds, setup, environments=[upstream.spec("mock")])
    before = opened.state()
    assert opened.say("Please use create_task.")["ended"] is None
    (row,) = opened.rows("result")
    assert (row["requestor"], row["status"]) == ("user", "unknown_tool")
    assert opened.state() == before
