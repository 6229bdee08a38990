"""Worlds are upstream's: they begin as upstream's begin, and any calls leave them as upstream's are."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from host_parts import Bare, Opened, RunningHost
from mcp import Client
from tau2_parts import Reference, call, calls_in_any_order, gold, setup_of

DOMAINS = ("airline", "retail", "telecom", "mock")
EVERYTHING = bool(os.environ.get("DYNO_TEST_EVERYTHING"))
"""Set: all 2285 telecom tasks (a minute); else every twentieth."""


async def carry_out(opened: Opened, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the calls one after another as clients of the SDK do; what each was answered."""
    urls = {"assistant": opened.url}
    if opened.answer["user_servers"]:
        urls["user"] = opened.user_url
    answers = []
    async with Client(urls["assistant"]) as agent, Client(urls.get("user", opened.url)) as user:
        clients = {"assistant": agent, "user": user}
        for each in calls:
            answer = await clients[each["requestor"]].call_tool(each["name"], each["arguments"])
            assert len(answer.content) == 1
            answers.append({"text": answer.content[0].text, "error": answer.is_error})
    return answers


# ---------------------------------------------------------------- the beginning


@pytest.mark.parametrize(
    ("domain", "file", "step"),
    [
        ("airline", "tasks", 1),
        ("retail", "tasks", 1),
        ("mock", "tasks", 1),
        ("telecom", "tasks_small", 1),
        ("telecom", "tasks_full", 1 if EVERYTHING else 20),
    ],
)
def test_every_task_begins_as_upstream_sets_it(
    worlds: RunningHost, upstream: Reference, domain: str, file: str, step: int
) -> None:
    spec = upstream.spec(domain)
    tasks = upstream.tasks(domain, file)[::step]
    states = set()
    for task in tasks:
        setup = setup_of(task)
        opened = worlds.open(environments=[spec], setup=setup)
        state = opened.state()
        opened.close()
        assert state == upstream.begins(domain, setup), task["id"]
        states.add(json.dumps(state))
    print(f"{domain} {file}: {len(tasks)} tasks begin in {len(states)} different states")
    assert domain not in ("telecom", "mock") or len(states) > 1


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("domain", DOMAINS)
def test_calls_of_an_mcp_client_in_any_order_leave_the_world_that_upstream_makes_of_them(
    worlds: RunningHost, upstream: Reference, domain: str, seed: int
) -> None:
    setup = setup_of(upstream.tasks(domain)[seed])
    calls = calls_in_any_order(upstream, domain, 120, seed)
    opened = worlds.open(environments=[upstream.spec(domain)], setup=setup)
    answers = asyncio.run(carry_out(opened, calls))
    truth = upstream.comes_to(domain, setup, calls)
    for asked, got, due in zip(calls, answers, truth["answers"], strict=True):
        assert got == due, asked
    assert opened.state() == truth["state"] == truth["made"]
    assert truth["state"] != upstream.begins(domain, setup)
    failed = sum(due["error"] for due in truth["answers"])
    print(f"{domain}: {len(calls)} calls, {failed} of them errors, the world changed")
    assert 0 < failed < len(calls)
    by_agent = [each["requestor"] == "assistant" for each in calls]
    errors = [due["error"] for due in truth["answers"]]
    summary = opened.close()
    assert summary["tool_calls"] == sum(by_agent)
    assert summary["tool_errors"] == sum(
        error and mine for error, mine in zip(errors, by_agent, strict=True)
    )
    assert summary["environment_lost"] is None


@pytest.mark.parametrize("domain", ["retail", "telecom"])
def test_calls_at_once_are_carried_out_in_the_order_of_the_journal(
    worlds: RunningHost, upstream: Reference, domain: str
) -> None:
    setup = setup_of(upstream.tasks(domain)[0])
    calls = calls_in_any_order(upstream, domain, 60, seed=7)
    opened = worlds.open(environments=[upstream.spec(domain)], setup=setup)

    async def all_at_once() -> None:
        await asyncio.gather(*(carry_out(opened, calls[start::6]) for start in range(6)))

    asyncio.run(all_at_once())
    rows = opened.rows("call")
    sides = {"agent": "assistant", "user": "user"}
    journaled = [
        {
            "requestor": sides[row["requestor"]],
            "name": row["tool"],
            "arguments": json.loads(row["arguments"]),
        }
        for row in rows
    ]
    assert sorted(map(json.dumps, journaled)) == sorted(map(json.dumps, calls))
    truth = upstream.comes_to(domain, setup, journaled)
    texts = {row["call"]: row["text"] for row in opened.rows("result")}
    assert [texts[row["seq"]] for row in rows] == [due["text"] for due in truth["answers"]]
    assert opened.state() == truth["state"]


@pytest.mark.parametrize("domain", ["airline", "telecom"])
def test_two_worlds_at_once_do_not_see_each_other(
    worlds: RunningHost, upstream: Reference, domain: str
) -> None:
    setup = setup_of(upstream.tasks(domain)[0])
    spec = upstream.spec(domain)
    first, second, idle = (worlds.open(environments=[spec], setup=setup) for _ in range(3))
    one, two = (calls_in_any_order(upstream, domain, 40, seed) for seed in (11, 12))

    async def both() -> None:
        await asyncio.gather(carry_out(first, one), carry_out(second, two))

    asyncio.run(both())
    begun = upstream.begins(domain, setup)
    assert first.state() == upstream.comes_to(domain, setup, one)["state"] != begun
    assert second.state() == upstream.comes_to(domain, setup, two)["state"] != begun
    assert idle.state() == begun


# ---------------------------------------------------------------- what each side is told


def test_upstream_judges_names_and_arguments(worlds: RunningHost, upstream: Reference) -> None:
    opened = worlds.open(environments=[upstream.spec("retail")])
    client = opened.client()
    asked = [
        call("nope", order_id="1"),
        call("get_order_details"),
        call("get_order_details", order_id="#W1", more=1),
        call("get_order_details", order_id=7),
        call("use_tool", tool_name="x"),
    ]
    truth = upstream.comes_to("retail", None, asked)["answers"]
    for each, due in zip(asked, truth, strict=True):
        answer = client.call(each["name"], json.dumps(each["arguments"]))
        assert answer["isError"]
        assert answer["text"] == due["text"]
    assert truth[0]["text"] == "Error: Tool 'nope' not found."
    rows = opened.rows("call")
    assert [row["native"] for row in rows] == [None, *["get_order_details"] * 3, None]
    assert {row["status"] for row in opened.rows("result")} == {"tool_error"}
    assert opened.close()["tool_errors"] == 5


@pytest.mark.parametrize("arguments", ["[]", '"text"', "5", f"[{'[' * 100_000}{']' * 100_000}]"])
def test_arguments_that_are_no_object_never_reach_the_world(
    worlds: RunningHost, upstream: Reference, arguments: str
) -> None:
    opened = worlds.open(environments=[upstream.spec("mock")])
    answer = opened.client().call("create_task", arguments)
    assert answer["isError"]
    (row,) = opened.rows("result")
    assert row["status"] == "refused"
    assert opened.rows("call")[0]["arguments"] == arguments
    assert opened.state() == upstream.begins("mock", None)


@pytest.mark.parametrize("arguments", ["null", "{}"])
def test_no_arguments_are_an_empty_object(
    worlds: RunningHost, upstream: Reference, arguments: str
) -> None:
    opened = worlds.open(environments=[upstream.spec("mock")])
    (due,) = upstream.comes_to("mock", None, [call("get_users")])["answers"]
    answer = opened.client().call("get_users", arguments)
    assert (answer["text"], answer["isError"]) == (due["text"], due["error"])


def test_the_users_tools_are_the_users_alone(worlds: RunningHost, upstream: Reference) -> None:
    setup = setup_of(upstream.tasks("telecom")[0])
    spec = upstream.spec("telecom")
    opened = worlds.open(environments=[spec], setup=setup)
    agent, user = opened.client(), Bare(opened.user_url)
    assert [tool["name"] for tool in agent.tools()] == [tool["name"] for tool in spec["tools"]]
    assert opened.user_url.split("/")[4] not in json.dumps(opened.answer["servers"])
    assert opened.url.split("/")[4] != opened.user_url.split("/")[4]
    assert agent.call("toggle_airplane_mode")["text"] == (
        "Error: Tool 'toggle_airplane_mode' not found."
    )
    assert not user.call("toggle_airplane_mode")["isError"]
    assert [tool["name"] for tool in user.tools()] == [t["name"] for t in spec["user_tools"]]
    assert [row["requestor"] for row in opened.rows("result")] == ["agent", "user"]
    summary = opened.close()
    assert (summary["tool_calls"], summary["tool_errors"], summary["listed"]) == (1, 1, True)
    status, _ = user.send(b"{}")
    assert status == 404


def test_only_the_agents_listing_counts(worlds: RunningHost, upstream: Reference) -> None:
    opened = worlds.open(environments=[upstream.spec("telecom")])
    Bare(opened.user_url).tools()
    assert opened.close()["listed"] is False


def test_a_domain_without_user_tools_has_no_door_for_the_user(
    worlds: RunningHost, upstream: Reference
) -> None:
    opened = worlds.open(environments=[upstream.spec("airline")])
    assert opened.answer["user_servers"] == []


def test_gold_actions_work(worlds: RunningHost, upstream: Reference) -> None:
    """The random orders are made of these: were they all errors, they would show little."""
    setup = setup_of(upstream.tasks("telecom")[0])
    opened = worlds.open(environments=[upstream.spec("telecom")], setup=setup)
    answers = asyncio.run(carry_out(opened, gold(upstream, "telecom")))
    assert sum(not answer["error"] for answer in answers) > len(answers) / 2
