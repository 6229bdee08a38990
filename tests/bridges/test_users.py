"""Users that are models: what they are sent, what they are charged, and what becomes of their failures."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conversation_parts import (
    GREETING,
    SHOP,
    at_endpoint,
    chat,
    everything,
    modelled,
    replayed,
    said,
    scripted,
    talk,
)
from gateway_parts import Reply, Upstream, until
from host_parts import Bare, RunningHost

from bridges.channel import RemoteError
from bridges.users import ScriptedUser

SYSTEM = {"role": "system", "content": "You are a customer."}
STOP = "###STOP###"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    yield running
    running.stop()


def bodies(upstream: Upstream) -> list[dict[str, Any]]:
    return [json.loads(body) for body in upstream.bodies]


# ---------------------------------------------------------------- what a model is sent


def test_a_model_sees_the_conversation_from_its_own_side(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [
        Reply.json(chat("It is dead.")),
        Reply.json(chat("Let me see.", ("reboot", '{"hard": true}'))),
        Reply.json(chat("I rebooted it.")),
    ]
    opened = talk(host, at_endpoint(upstream.url))
    Bare(opened.url).call("look_up", '{"id": 1}')
    assert opened.say("Reboot it.")["reply"] == "I rebooted it."
    first, second, third = bodies(upstream)
    hello = [SYSTEM, {"role": "user", "content": GREETING["content"]}]
    assert first["messages"] == hello
    own = [
        {"role": "assistant", "content": "It is dead."},
        {"role": "user", "content": "Reboot it."},
    ]
    assert second["messages"] == hello + own
    call = {"name": "reboot", "arguments": '{"hard": true}'}
    calls = [{"id": "c0-reboot", "type": "function", "function": call}]
    assert third["messages"] == [
        *hello,
        *own,
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c0-reboot", "content": "reboot done"},
    ]
    assert [t["function"]["name"] for t in first["tools"]] == ["toggle_data", "reboot", "dial"]
    assert (first["seed"], first["model"]) == (7, "real-id")
    assert [text for _, text, _ in said(opened)][1:] == [
        "It is dead.",
        "Reboot it.",
        "I rebooted it.",
    ]


def test_a_model_without_tools_is_offered_none_and_its_own_parameters_rule(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(chat("Hi"))]
    talk(host, at_endpoint(upstream.url, seed=2**60), environments=[SHOP])
    talk(host, at_endpoint(upstream.url, model={"parameters": {"seed": 5, "temperature": 0}}))
    talk(host, at_endpoint(upstream.url, seed=None))
    free, forced, unseeded = bodies(upstream)
    assert "tools" not in free
    assert 0 <= free["seed"] < 2**31
    assert (forced["seed"], forced["temperature"]) == (5, 0)
    assert "seed" not in unseeded


def test_what_was_said_and_done_before_is_turned_round_too(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(chat("And now?"))]
    theirs = [{"id": "u1", "name": "reboot", "arguments": {"hard": True}}]
    own = [{"id": "a1", "name": "look_up", "arguments": {}}]
    history = [
        {"role": "user", "content": "It is dead."},
        {"role": "assistant", "tool_calls": own},
        {"role": "tool", "id": "a1", "content": "known", "requestor": "assistant"},
        {"role": "assistant", "content": "Reboot it."},
        {"role": "user", "tool_calls": theirs},
        {"role": "tool", "id": "u1", "content": "rebooted", "requestor": "user"},
    ]
    opened = talk(host, at_endpoint(upstream.url), history=history)
    (body,) = bodies(upstream)
    function = {"name": "reboot", "arguments": '{"hard": true}'}
    assert body["messages"] == [
        SYSTEM,
        {"role": "assistant", "content": "It is dead."},
        {"role": "user", "content": "Reboot it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "u1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "u1", "content": "rebooted"},
    ]
    told = opened.answer["conversation"]
    assert [m["role"] for m in told["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert told["turn"] == 2


# ---------------------------------------------------------------- what it costs, and whose it is


def test_the_user_is_metered_apart_from_the_agent(host: RunningHost) -> None:
    agent = {
        "endpoint": "scripted:null",
        "name": "null",
        "prices": {"input": 100.0, "output": 100.0},
        "scripted": {"behaviour": "null"},
    }
    opened = talk(
        host, modelled({"text": "It is dead."}, {"text": f"Bye {STOP}"}), model=agent, max_steps=50
    )
    ask = Bare(f"{opened.answer['model_url']}/chat/completions")
    assert ask.send(b'{"messages": [{"role": "user", "content": "hm"}]}')[0] == 200
    assert opened.say("Sorry.")["ended"] == "user_stop"
    requests = [(r["requestor"], r["turn"]) for r in opened.rows("request", "model")]
    assert requests == [("user", 0), ("agent", 1), ("user", 1)]
    answers = opened.rows("response", "model")
    assert [row["requestor"] for row in answers] == ["user", "agent", "user"]
    summary = opened.close()
    assert summary["model_calls"] == 1
    assert summary["cost"] == pytest.approx(answers[1]["cost"])
    assert summary["user"]["model_calls"] == 2
    assert summary["user"]["cost"] == pytest.approx(answers[0]["cost"] + answers[2]["cost"])
    tokens = [row["usage"]["output"] for row in answers]
    assert summary["user"]["usage"]["output"] == tokens[0] + tokens[2]
    assert summary["user"]["upstream_error"] is None


def test_the_agents_budget_is_not_the_users(host: RunningHost) -> None:
    opened = talk(host, modelled(*({"text": f"Word {n}"} for n in range(9))), model_calls=1)
    for number in range(5):
        assert opened.say(f"Go on {number}.")["ended"] is None
    assert opened.close()["user"]["model_calls"] == 6


def test_a_wait_for_the_users_model_stops_the_attempts_clock(
    host: RunningHost, upstream: Upstream
) -> None:
    shed = Reply.json({"error": "later"}, 429, retry_after_ms="200")
    upstream.replies = [shed, Reply.json(chat("Hi"))]
    while not host.events.empty():
        host.events.get()
    opened = talk(host, at_endpoint(upstream.url))
    assert opened.answer["conversation"]["turn"] == 1
    events = [host.events.get(timeout=5) for _ in range(2)]
    assert [(e["event"], e["waiting"], e["attempt"]) for e in events] == [
        ("waiting", True, opened.key),
        ("waiting", False, opened.key),
    ]
    summary = opened.close()
    assert summary["user"]["waited_seconds"] >= 0.2
    assert summary["waited_seconds"] == summary["user"]["waited_seconds"]
    assert summary["user"]["upstream_error"] is None


# ---------------------------------------------------------------- what goes wrong


def test_an_endpoint_that_stumbles_is_asked_again(host: RunningHost, upstream: Upstream) -> None:
    upstream.replies = [
        Reply.json({"error": "oh"}, 500),
        Reply([b"{}"], headers={"content-type": "application/json"}),
        Reply.json(chat("Hi")),
    ]
    opened = talk(host, at_endpoint(upstream.url))
    assert said(opened)[-1][1] == "Hi"
    assert len({bytes(body) for body in upstream.bodies}) == 1
    assert opened.close()["user"]["upstream_error"] is None


def test_an_endpoint_that_fails_ends_the_conversation_and_is_named(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(chat("Hi")), Reply.json({"error": "broken"}, 500)]
    opened = talk(host, at_endpoint(upstream.url))
    told = opened.say("Hello!")
    assert (told["ended"], told["reply"]) == ("user_error", None)
    summary = opened.close("agent_stop")
    assert summary["conversation"]["blame"] == "user"
    assert "500" in summary["conversation"]["detail"]
    assert summary["user"]["upstream_error"]["class"] == "upstream_error"
    assert summary["upstream_error"] is None
    assert len(upstream.bodies) == 4


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusal_is_not_asked_for_twice(
    host: RunningHost, upstream: Upstream, status: int
) -> None:
    upstream.replies = [Reply.json({"error": {"message": "no"}}, status)]
    opened = talk(host, at_endpoint(upstream.url))
    assert opened.answer["conversation"]["ended"] == "user_error"
    assert len(upstream.bodies) == 1
    error = opened.close()["user"]["upstream_error"]
    assert (error or {}).get("class") == {400: None, 401: "upstream_auth"}[status]


def test_an_endpoint_that_is_not_there_is_named(host: RunningHost) -> None:
    opened = talk(host, at_endpoint("http://127.0.0.1:1/v1"))
    assert opened.answer["conversation"]["ended"] == "user_error"
    summary = opened.close()
    assert summary["user"]["upstream_error"]["class"] == "upstream_unreachable"
    assert summary["conversation"]["steps"] == 0


def test_a_model_that_says_nothing_is_asked_the_same_again_and_then_given_up(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(chat("")), Reply.json(chat("Hi")), Reply.json(chat(None))]
    opened = talk(host, at_endpoint(upstream.url))
    assert said(opened)[-1][1] == "Hi"
    assert upstream.bodies[0] == upstream.bodies[1]
    assert opened.say("Hello!")["ended"] == "user_error"
    assert len(upstream.bodies) == 4
    assert opened.close()["user"]["upstream_error"] is None


def test_a_model_that_only_calls_tools_is_cut_off(host: RunningHost) -> None:
    step = {"calls": [{"tool": "reboot", "arguments": {}}]}
    opened = talk(host, modelled({"text": "Hi"}, step, loop=True), max_steps=20)
    assert opened.say("Hello!")["ended"] == "max_steps"
    summary = opened.close()
    assert (summary["conversation"]["steps"], summary["tool_calls"]) == (20, 0)


def test_arguments_that_are_no_json_are_an_error_that_the_model_is_told(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [
        Reply.json(chat(None, ("reboot", "{hard"), ("dial", '{"n": 1}'))),
        Reply.json(chat("I dialled.")),
    ]
    opened = talk(host, at_endpoint(upstream.url))
    first, second = opened.rows("result")
    assert (first["status"], second["status"]) == ("refused", "ok")
    assert opened.rows("call")[0]["arguments"] == "{hard"
    tools = [m for m in bodies(upstream)[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in tools] == ["c0-reboot", "c1-dial"]
    assert "JSON" in tools[0]["content"]
    assert opened.close()["conversation"]["errors"] == 1


def test_a_closed_attempt_lets_go_of_a_user_that_thinks(
    host: RunningHost, upstream: Upstream
) -> None:
    gate = threading.Semaphore(0)
    upstream.replies = [Reply.json(chat("Hi")), Reply([b" ", b" "], gate=gate)]
    opened = talk(host, at_endpoint(upstream.url))
    asked = host.channel.start("say", attempt=opened.key, text="Hello!", **{"try": 1})
    until(lambda: len(opened.rows("request", "model")) == 2)
    summary = opened.close("timeout")
    assert summary["conversation"]["ended"] == "timeout"
    assert asked.result(10)["reply"] is None
    rows = everything(opened)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert opened.rows("response", "model")[-1]["complete"] is False
    gate.release()


@pytest.mark.parametrize("answer", [Reply.json(chat("Well?")), Reply.json({}, 400)])
def test_what_the_user_says_once_it_is_over_is_not_part_of_it(
    host: RunningHost, upstream: Upstream, answer: Reply
) -> None:
    gate = threading.Semaphore(0)
    late = Reply([b"", *answer.chunks], answer.status, answer.headers, gate=gate)
    upstream.replies = [Reply.json(chat("Hi")), late]
    opened = talk(host, at_endpoint(upstream.url), max_steps=6)
    asked = host.channel.start("say", attempt=opened.key, text="Hello!", **{"try": 1})
    until(lambda: len(upstream.bodies) == 2)
    for _ in range(2):
        Bare(opened.url).call("look_up")
    gate.release()
    told = asked.result(10)
    assert (told["ended"], told["reply"]) == ("max_steps", None)
    assert said(opened)[-1][1] == "Hello!"
    assert len(opened.rows("end", "conversation")) == 1


def test_an_attempt_may_be_closed_while_its_user_thinks_of_a_first_word(
    host: RunningHost, upstream: Upstream
) -> None:
    gate = threading.Semaphore(0)
    upstream.replies = [Reply([b" ", b" "], gate=gate)]
    folder = host.folder / "early"
    folder.mkdir()
    opening = host.channel.start(
        "open",
        attempt="early",
        folder=str(folder),
        environments=[SHOP],
        limits={},
        conversation={
            "way": "turns",
            "messages": [GREETING],
            "stops": [STOP],
            "max_steps": 9,
            "max_errors": 9,
            "user": at_endpoint(upstream.url),
        },
        **{"try": 1},
    )
    until(lambda: upstream.bodies)
    summary = host.channel.call(
        "close", timeout=30, attempt="early", reason="timeout", **{"try": 1}
    )
    assert (summary["conversation"]["ended"], summary["dropped"]) == ("timeout", False)
    assert summary["user"]["model_calls"] == 1
    with pytest.raises(RemoteError, match="closed"):
        opening.result(30)
    gate.release()


# ---------------------------------------------------------------- a user by the book


def turns(user: ScriptedUser, *heard: str) -> list[Any]:
    """What it does about each message; a text, or the tools it calls and then a text."""

    async def live() -> list[Any]:
        done: list[Any] = []
        for text in heard:
            user.hears(text)
            turn = await user.turn()
            if turn.calls:
                done.append([call.tool for call in turn.calls])
                user.learns([""] * len(turn.calls))
                turn = await user.turn()
                assert not turn.calls
            done.append(turn.text)
        return done

    return asyncio.run(live())


def by_the_book(*tools: str) -> ScriptedUser:
    calls = [{"tool": tool, "arguments": {}} for tool in tools]
    return ScriptedUser("Hi", calls, STOP, opened=True)


def test_a_scripted_user_does_what_comes_next_if_it_is_named_as_a_whole_word() -> None:
    done = turns(
        by_the_book("dial", "reboot"), "Please dial_up and redial, then dial.", "`reboot`!"
    )
    assert [each for each in done if isinstance(each, list)] == [["dial"], ["reboot"]]
    assert turns(by_the_book("dial", "reboot"), "Use reboot.") == [STOP]
    assert turns(by_the_book("dial"), "Use dials.") == [STOP]


def test_a_scripted_user_does_a_thing_as_often_as_it_is_told_to() -> None:
    done = turns(by_the_book("dial", "dial", "dial"), "dial, then dial", "dial", "Thanks.")
    assert [each for each in done if isinstance(each, list)] == [["dial", "dial"], ["dial"]]
    texts = [each for each in done if isinstance(each, str)]
    assert texts[-1] == STOP
    assert len(set(texts)) == len(texts)  # or it would count as broken


def test_a_replay_ends_when_it_is_used_up(host: RunningHost) -> None:
    opened = talk(host, replayed("Hi", [{"tool": "reboot", "arguments": {}}], "Done"))
    assert opened.say("?")["reply"] == "Done"
    assert opened.say("??")["ended"] == "user_stop"
    assert [row["tool"] for row in opened.rows("call")] == ["reboot"]


def test_a_user_of_no_known_kind_is_refused(host: RunningHost) -> None:
    with pytest.raises(RemoteError, match="no user of the kind"):
        talk(host, {**scripted(), "kind": "ghost"})
