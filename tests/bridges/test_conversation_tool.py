"""Conversations in the `tool` way: a real client of the protocol speaks to the user by a tool."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conversation_parts import at_endpoint, chat, everything, replayed, said, scripted, talk
from gateway_parts import Reply, Upstream, until
from host_parts import Bare, Opened, RunningHost
from mcp import Client

from bridges.channel import RemoteError

STOP = "###STOP###"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    yield running
    running.stop()


def urls(opened: Opened) -> dict[str, str]:
    return {server["name"]: server["url"] for server in opened.answer["servers"]}


def speaking(opened: Opened) -> Bare:
    return Bare(urls(opened)["user"])


def say(client: Bare, message: str) -> dict[str, Any]:
    return client.call("respond_to_user", json.dumps({"message": message}))


def test_an_agent_talks_to_its_user_by_a_tool(host: RunningHost) -> None:
    opened = talk(host, scripted("reboot"), "tool")
    assert list(urls(opened)) == ["shop", "user"]

    async def live() -> list[Any]:
        async with Client(urls(opened)["user"]) as user, Client(urls(opened)["shop"]) as shop:
            (tool,) = (await user.list_tools()).tools
            assert (tool.name, tool.input_schema["required"]) == ("respond_to_user", ["message"])
            await shop.list_tools()
            found = await shop.call_tool("look_up", {"id": 1})
            asked = await user.call_tool("respond_to_user", {"message": "Please use reboot."})
            bye = await user.call_tool("respond_to_user", {"message": "Bye."})
            late = await shop.call_tool("look_up", {})
            return [(r.is_error, r.content[0].text) for r in (found, asked, bye, late)]

    found, asked, bye, late = asyncio.run(live())
    assert found == (False, "look_up done")
    assert asked == (False, "I have used reboot (calls so far: 1).")
    assert bye[0] is False
    assert "The user has ended the conversation" in bye[1]
    assert STOP not in bye[1]
    assert late[0] is True
    shown = [
        (r["event"], r["requestor"], r.get("tool") or r.get("role")) for r in everything(opened)
    ]
    assert shown[4:] == [
        ("call", "agent", "look_up"),
        ("result", "agent", None),
        ("call", "agent", "respond_to_user"),
        ("message", "agent", "assistant"),
        ("call", "user", "reboot"),
        ("result", "user", None),
        ("message", "user", "user"),
        ("result", "agent", None),
        ("call", "agent", "respond_to_user"),
        ("message", "agent", "assistant"),
        ("message", "user", "user"),
        ("end", "agent", None),
        ("result", "agent", None),
        ("call", "agent", "look_up"),
        ("result", "agent", None),
    ]
    summary = opened.close("agent_stop")
    assert summary["listed"]
    assert summary["conversation"]["ended"] == "user_stop"
    # the messages count once each, and not again as calls
    assert summary["conversation"]["steps"] == 1 + 2 + 1 + 2 + 1 + 1 + 1
    assert summary["conversation"]["errors"] == 0


def test_an_empty_message_is_a_mistake_and_no_end(host: RunningHost) -> None:
    opened = talk(host, scripted("reboot"), "tool")
    client = speaking(opened)
    for arguments in ('{"message": " "}', "{}", '{"message": 3}', '{"message": "a", "to": "b"}'):
        assert client.call("respond_to_user", arguments)["isError"]
    assert len(said(opened)) == 2
    assert not say(client, "Use reboot.")["isError"]
    assert opened.close()["conversation"]["errors"] == 4


def test_a_mistake_in_speaking_is_no_action(host: RunningHost) -> None:
    opened = talk(host, replayed(*(f"And {n}?" for n in range(99))), "tool")
    client = speaking(opened)
    while not opened.rows("end", "conversation"):
        say(client, f"Well {len(said(opened))}.")
        say(client, "")
    summary = opened.close()["conversation"]
    assert (summary["ended"], summary["blame"]) == ("too_many_errors", None)
    opened = talk(host, replayed(*(f"And {n}?" for n in range(99))), "tool", max_steps=25)
    client = speaking(opened)
    say(client, "")
    while not opened.rows("end", "conversation"):
        say(client, f"Well {len(said(opened))}.")
    assert opened.close()["conversation"]["blame"] == "user"


def test_who_speaks_by_the_tool_has_no_other_way(host: RunningHost) -> None:
    opened = talk(host, scripted(), "tool")
    with pytest.raises(RemoteError, match="by a tool"):
        opened.say("Hello.")


def test_no_environment_takes_the_place_of_the_user(host: RunningHost) -> None:
    taken = {"name": "user", "kind": "functions", "tools": []}
    with pytest.raises(RemoteError, match="may be named"):
        talk(host, scripted(), "tool", environments=[taken])


def test_the_end_that_comes_with_opening_is_told_by_the_tool_too(host: RunningHost) -> None:
    opened = talk(host, scripted(opening=f"Never mind. {STOP}"), "tool")
    assert opened.answer["conversation"]["ended"] == "user_stop"
    answer = say(speaking(opened), "Wait!")
    assert answer["isError"]
    assert "over" in answer["text"]


def test_two_who_speak_at_once_are_answered_one_after_the_other(
    host: RunningHost, upstream: Upstream
) -> None:
    upstream.replies = [
        Reply.json(chat("Hi")),
        Reply([json.dumps(chat("Re: first")).encode()[:5], json.dumps(chat("Re: first")).encode()[5:]],
              pause=0.2),
        Reply.json(chat("Re: second")),
    ]  # fmt: skip
    opened = talk(host, at_endpoint(upstream.url), "tool")

    async def live() -> list[str]:
        async with Client(urls(opened)["user"]) as one, Client(urls(opened)["user"]) as two:
            first = asyncio.create_task(one.call_tool("respond_to_user", {"message": "first"}))
            while len(upstream.bodies) < 2:
                await asyncio.sleep(0.01)
            second = await two.call_tool("respond_to_user", {"message": "second"})
            return [(await first).content[0].text, second.content[0].text]

    assert asyncio.run(live()) == ["Re: first", "Re: second"]
    assert upstream.most_in_flight == 1
    assert [text for _, text, _ in said(opened)][2:] == [
        "first",
        "Re: first",
        "second",
        "Re: second",
    ]


@pytest.mark.parametrize("then", ["first", "second"])
def test_an_answer_that_its_client_did_not_wait_for_is_not_lost(
    host: RunningHost, upstream: Upstream, then: str
) -> None:
    late = json.dumps(chat("Re: first")).encode()
    upstream.replies = [
        Reply.json(chat("Hi")),
        Reply([late[:5], late[5:]], pause=0.3),
        Reply.json(chat("Re: second")),
    ]
    opened = talk(host, at_endpoint(upstream.url), "tool")
    client = speaking(opened)
    sender = Bare(urls(opened)["user"])
    params = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"respond_to_user",'
        '"arguments":{"message":"first"}}}'
    )
    kind = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sender.connection.request("POST", sender.path, params, kind)
    until(lambda: len(upstream.bodies) == 2)
    sender.connection.close()
    until(lambda: opened.rows("result"))
    assert opened.rows("result")[0]["status"] == "cancelled"
    answer = say(client, then)
    assert not answer["isError"]
    if then == "first":  # it asks again what it did not hear the answer to
        assert answer["text"] == "Re: first"
        assert [text for _, text, _ in said(opened)][2:] == ["first", "Re: first"]
    else:
        assert answer["text"] == "Re: first\n\nRe: second"
    assert opened.close()["conversation"]["turns"] == (2 if then == "first" else 3)


def test_closing_while_the_user_thinks_ends_the_call(host: RunningHost, upstream: Upstream) -> None:
    gate = threading.Semaphore(0)
    upstream.replies = [Reply.json(chat("Hi")), Reply([b" ", b" "], gate=gate)]
    opened = talk(host, at_endpoint(upstream.url), "tool")

    async def live() -> dict[str, Any]:
        async with Client(urls(opened)["user"]) as user:
            asked = asyncio.create_task(user.call_tool("respond_to_user", {"message": "Hello?"}))
            while len(upstream.bodies) < 2:
                await asyncio.sleep(0.01)
            summary = await asyncio.to_thread(opened.close, "timeout")
            await asyncio.wait([asked], timeout=10)
            assert asked.done()
            asked.exception()
            return summary

    summary = asyncio.run(live())
    assert (summary["conversation"]["ended"], summary["dropped"]) == ("timeout", False)
    assert opened.rows("result")[-1]["status"] == "cancelled"
    gate.release()
