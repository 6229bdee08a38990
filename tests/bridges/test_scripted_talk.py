"""Scripted models that have a user to talk to: what they say and do is read from the request alone."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from conversation_parts import SHOP, scripted, talk
from host_parts import Bare, RunningHost
from wire_forms import ASKED, Request

from bridges.metering import NOTHING
from bridges.scripted import Player
from bridges.scripted_behaviours import Asked
from bridges.scripted_chat import whole

GOLD = [
    {"tool": "look_up", "arguments": {"id": 1}, "requestor": "agent"},
    {"tool": "toggle_data", "arguments": {}, "requestor": "user"},
    {"tool": "reboot", "arguments": {}, "requestor": "user"},
    {"tool": "refund", "arguments": {"n": 2}, "requestor": "agent"},
    {"tool": "refund", "arguments": {"n": 3}, "requestor": "agent"},
    {"tool": "toggle_data", "arguments": {}, "requestor": "user"},
]
VANDAL = {"tool": "refund", "arguments": {"n": 999}, "requestor": "agent"}
SHOP_TOOLS = [{"type": "function", "function": {"name": t["name"]}} for t in SHOP["tools"]]
SPEAKING = {"type": "function", "function": {"name": "mcp__user__respond_to_user"}}


@pytest.fixture(autouse=True, params=list(ASKED))
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All of it holds on every wire."""
    monkeypatch.setattr(sys.modules[__name__], "asked_of", ASKED[request.param])
    return str(request.param)


def asked_of(request: Request) -> Asked:
    """As the wire under test has it."""
    raise NotImplementedError


def script(behaviour: str, way: str = "turns", **more: Any) -> dict[str, Any]:
    oracle = {"calls": GOLD, "vandal": VANDAL, "answer": "It will cost 42."}
    return {
        "behaviour": behaviour,
        "seed": 3,
        "oracle": oracle,
        "tools": SHOP["tools"],
        "conversation": {"way": way, **more},
    }


def played(
    player: Player, messages: list[dict[str, Any]], tools: list[Any], **more: Any
) -> list[str]:
    """All that it does till it is done, asked again and again by a harness and a patient user."""
    done: list[str] = []
    while len(done) < 20:
        request = {"messages": messages, "tools": tools, **more}
        step = player.step(asked_of(request))
        assert player.step(asked_of(request)) == step  # the same question, the same answer
        message = whole({}, "m", f"{len(messages)}", step, NOTHING)["choices"][0]["message"]
        messages = [*messages, message]
        calls = message.get("tool_calls") or []
        if not calls:
            done.append(message["content"])
            if done[-1:] == done[-2:-1] or tools[-1] is SPEAKING:
                return done
            messages.append({"role": "user", "content": "Go on."})
        for call in calls:
            function = call["function"]
            done.append(f"{function['name']} {function['arguments']}")
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "{}"})
    raise AssertionError(done)


IN_TURNS = [
    'look_up {"id": 1}',
    "Please use toggle_data, then reboot.",
    'refund {"n": 2}',
    'refund {"n": 3}',
    "Please use toggle_data.",
    "It will cost 42.",
    "It will cost 42.",
]
OPENED = [{"role": "user", "content": "Help!"}]


@pytest.mark.parametrize("parallel", [True, False])
def test_the_oracle_acts_and_asks_the_user_in_gold_order(parallel: bool) -> None:
    player = Player(script("oracle"))
    assert played(player, OPENED, SHOP_TOOLS, parallel_tool_calls=parallel) == IN_TURNS


def test_what_the_prompt_held_already_is_not_taken_for_its_own() -> None:
    call = {"id": "h", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    before = [
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "h", "content": "{}"},
        {"role": "assistant", "content": "On its way."},
        *OPENED,
    ]
    player = Player(script("oracle", given={"made": 1, "said": 2}))
    assert played(player, before, SHOP_TOOLS) == IN_TURNS


def test_a_conversation_that_is_written_out_in_the_prompt_counts_as_well() -> None:
    player = Player(script("oracle", given={"made": 1, "said": 1}))
    told = [
        "You sell phones.",
        "[assistant]\nHi!",
        "[assistant calls look_up]\n{}",
        "[look_up answers]\n{}",
        "[user]\nHelp!",
    ]
    done = []
    for _ in range(20):
        prompt = [{"role": "user", "content": "\n\n".join(told)}]
        step = player.step(asked_of({"messages": prompt, "tools": SHOP_TOOLS}))
        if not step.calls:
            done.append(step.text)
            told += [f"[assistant]\n{step.text}", "[user]\nGo on."]
        for call in step.calls:
            done.append(f"{call.tool} {call.arguments}")
            told += [f"[assistant calls {call.tool}]\n{call.arguments}", f"[{call.tool} answers]\n"]
    assert done[:7] == IN_TURNS


def test_where_a_tool_speaks_all_that_it_says_goes_through_it() -> None:
    player = Player(script("oracle", "tool"))
    speak = "mcp__user__respond_to_user"
    assert played(player, OPENED, [*SHOP_TOOLS, SPEAKING]) == [
        IN_TURNS[0],
        f'{speak} {{"message": "Please use toggle_data, then reboot."}}',
        *IN_TURNS[2:4],
        f'{speak} {{"message": "Please use toggle_data."}}',
        f'{speak} {{"message": "It will cost 42."}}',
        "It will cost 42.",
    ]


def test_the_vandal_does_its_damage_before_it_answers() -> None:
    done = played(Player(script("vandal")), OPENED, SHOP_TOOLS)
    assert done == [*IN_TURNS[:5], 'refund {"n": 999}', *IN_TURNS[5:]]
    theirs = script("vandal")
    theirs["oracle"] = {"calls": GOLD, "answer": "Bye."}
    done = played(Player(theirs), OPENED, SHOP_TOOLS)
    assert done[5] == 'refund {"n": 3}'  # its own last call once more, never the user's


def test_noise_leaves_its_mark_on_some_and_the_same_on_each_repetition() -> None:
    seen = set()
    for seed in range(30):
        noisy = {**script("noisy"), "seed": seed, "settings": {"rate_429": 0, "rate_500": 0}}
        done = played(Player(noisy), OPENED, SHOP_TOOLS)
        assert done == played(Player(noisy), OPENED, SHOP_TOOLS)
        seen.add(tuple(done))
    assert tuple(IN_TURNS) in seen
    assert len(seen) > 3


def test_the_null_model_refuses_once_and_is_done() -> None:
    refusal = "I cannot help with that."
    assert played(Player(script("null")), OPENED, SHOP_TOOLS) == [refusal, refusal]
    done = played(Player(script("null", "tool")), OPENED, [*SHOP_TOOLS, SPEAKING])
    assert done == [f'mcp__user__respond_to_user {{"message": "{refusal}"}}', refusal]


def test_oracle_and_scripted_user_walk_through_all_of_the_gold(host: RunningHost) -> None:
    users = [call["tool"] for call in GOLD if call["requestor"] == "user"]
    opened = talk(host, scripted(*users))
    player, shop = Player(script("oracle", given={"said": 1})), Bare(opened.url)
    told = opened.answer["conversation"]
    while not told["ended"]:
        step = player.step(asked_of({"messages": told["messages"], "tools": SHOP_TOOLS}))
        for call in step.calls:
            shop.call(call.tool, call.arguments)
        if step.calls:  # as the next run of the harness will be shown them
            told["messages"] += [
                {"role": "assistant", "tool_calls": [{"function": {"name": c.tool}}]}
                for c in step.calls
            ]
            continue
        told = opened.say(step.text or "")
    made = [(r["requestor"], r["tool"], json.loads(r["arguments"])) for r in opened.rows("call")]
    assert made == [(c["requestor"], c["tool"], c["arguments"]) for c in GOLD]
    assert opened.close()["conversation"]["ended"] == "user_stop"
