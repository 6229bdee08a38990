"""Conversations in the `turns` way, over the host's own verbs: who speaks, when it ends, what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from conversation_parts import GREETING, SHOP, everything, replayed, said, scripted, talk
from host_parts import Bare, RunningHost

from bridges.channel import RemoteError

HI, STOP = GREETING["content"], "###STOP###"


def shop(opened: Any) -> Bare:
    (server,) = opened.answer["servers"]
    assert server["name"] == "shop"
    return Bare(server["url"])


# ---------------------------------------------------------------- from the first word to the last


def test_a_scripted_user_opens_does_what_it_is_told_to_and_says_goodbye(host: RunningHost) -> None:
    opened = talk(host, scripted("toggle_data", "reboot"))
    told = opened.answer["conversation"]
    assert told == {
        "messages": [GREETING, {"role": "user", "content": "My phone is dead."}],
        "ended": None,
        "turn": 1,
    }
    shop(opened).call("look_up", '{"id": 4}')
    told = opened.say("Please use toggle_data, then reboot.")
    assert told["reply"] == "I have used toggle_data, then reboot (calls so far: 2)."
    assert (told["ended"], told["turn"]) == (None, 2)
    call = opened.rows("call")[0]
    assert told["messages"][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call-{call['seq']}",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"id": 4}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": f"call-{call['seq']}", "content": "look_up done"},
        {"role": "assistant", "content": "Please use toggle_data, then reboot."},
        {"role": "user", "content": told["reply"]},
    ]
    told = opened.say("All is well.")
    assert (told["reply"], told["ended"], told["turn"]) == (STOP, "user_stop", 3)
    summary = opened.close("agent_stop")
    assert summary["conversation"].pop("user_seconds") >= 0
    assert summary["conversation"] == {
        "ended": "user_stop",
        "detail": "the user ended the conversation",
        "blame": None,
        "steps": 1 + 2 + 1 + 2 + 2 + 1 + 1 + 1,
        "errors": 0,
        "turns": 3,
    }
    assert (summary["tool_calls"], summary["tool_errors"], summary["user"]) == (1, 0, None)


def test_the_record_has_every_word_and_call_in_one_order(host: RunningHost) -> None:
    opened = talk(host, scripted("reboot"))
    shop(opened).call("look_up")
    opened.say("Please use reboot.")
    opened.say("Bye.")
    opened.close()
    rows = everything(opened)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    seen = [(r["event"], r["requestor"], r.get("role") or r.get("tool"), r["turn"]) for r in rows]
    assert seen == [
        ("message", "agent", "assistant", 0),
        ("message", "user", "user", 1),
        ("call", "agent", "look_up", 1),
        ("result", "agent", None, 1),
        ("message", "agent", "assistant", 1),
        ("call", "user", "reboot", 1),
        ("result", "user", None, 1),
        ("message", "user", "user", 2),
        ("message", "agent", "assistant", 2),
        ("message", "user", "user", 3),
        ("end", "agent", None, 3),
    ]
    assert said(opened)[0] == ("assistant", HI, True)
    assert not any(opening for _, _, opening in said(opened)[1:])


def test_after_the_end_every_call_and_word_is_refused_and_on_record(host: RunningHost) -> None:
    opened = talk(host, scripted())
    assert opened.say("Bye.")["ended"] == "user_stop"
    answer = shop(opened).call("look_up")
    assert answer["isError"]
    assert "over" in answer["text"]
    assert opened.rows("result")[-1]["status"] == "refused"
    again = opened.say("One more thing.")
    assert (again["reply"], again["ended"]) == (None, "user_stop")
    assert said(opened)[-1][1] == STOP
    assert again["messages"][-1] == {"role": "user", "content": STOP}
    (phone,) = opened.answer["user_servers"]
    assert Bare(phone["url"]).call("reboot")["isError"]


def test_an_attempt_without_a_conversation_is_as_it_was(host: RunningHost) -> None:
    opened = host.open({"name": "one", "input_schema": {"type": "object"}})
    assert "conversation" not in opened.answer
    opened.client().call("one")
    assert [row["turn"] for row in opened.rows()] == [0, 0]
    with pytest.raises(RemoteError, match="no conversation"):
        opened.say("Hello?")
    summary = opened.close("agent_stop")
    assert (summary["conversation"], summary["user"]) == (None, None)
    assert not (opened.folder / "conversation.jsonl").exists()


# ---------------------------------------------------------------- what was said before


CALL = [{"id": "h1", "name": "look_up", "arguments": {"id": 1}}]
HISTORY = [
    {"role": "user", "content": "Where is my parcel?"},
    {"role": "assistant", "tool_calls": CALL},
    {"role": "tool", "id": "h1", "content": "on its way"},
]
ANSWERED = {"role": "assistant", "content": "It is on its way."}
SHOWN = [
    {"role": "user", "content": "Where is my parcel?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "h1",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"id": 1}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "h1", "content": "on its way"},
]


def test_after_the_agents_word_the_user_speaks(host: RunningHost) -> None:
    opened = talk(host, scripted(), history=[*HISTORY, ANSWERED])
    told = opened.answer["conversation"]
    spoken = {"role": "user", "content": "My phone is dead."}
    assert told == {"messages": [*SHOWN, ANSWERED, spoken], "ended": None, "turn": 2}
    assert [(content, opening) for _, content, opening in said(opened)] == [
        ("Where is my parcel?", True),
        ("It is on its way.", True),
        ("My phone is dead.", False),
    ]
    assert opened.close()["conversation"]["steps"] == 1


def test_after_the_users_word_the_agent_speaks(host: RunningHost) -> None:
    opened = talk(host, scripted("reboot"), history=HISTORY[:1])
    assert opened.answer["conversation"] == {"messages": SHOWN[:1], "ended": None, "turn": 1}
    assert opened.say("Please use reboot.")["reply"].startswith("I have used reboot")


def test_after_a_result_whoever_called_goes_on(host: RunningHost) -> None:
    assert talk(host, scripted(), history=HISTORY).answer["conversation"]["messages"] == SHOWN
    asked = [{"id": "u1", "name": "reboot", "arguments": {}}]
    users = [
        ANSWERED,
        {"role": "user", "tool_calls": asked},
        {"role": "tool", "id": "u1", "content": "rebooted", "requestor": "user"},
    ]
    told = talk(host, scripted(), history=users).answer["conversation"]
    assert told["messages"] == [ANSWERED, {"role": "user", "content": "My phone is dead."}]


def test_a_goodbye_said_before_is_the_end(host: RunningHost) -> None:
    opened = talk(host, scripted(), history=[{"role": "user", "content": f"Bye {STOP}"}])
    assert opened.answer["conversation"]["ended"] == "user_stop"
    assert shop(opened).call("look_up")["isError"]


def test_a_history_that_stops_half_way_is_refused(host: RunningHost) -> None:
    with pytest.raises(RemoteError, match="has no result"):
        talk(host, scripted(), history=HISTORY[:2])


# ---------------------------------------------------------------- how it ends


def test_a_user_that_never_lets_go_is_cut_off_and_to_blame(host: RunningHost) -> None:
    opened = talk(host, replayed(*(f"And then {n}?" for n in range(99))), max_steps=24)
    for number in range(12):
        told = opened.say(f"Thing {number}.")
        assert told["ended"] == ("max_steps" if number == 11 else None)
    assert told["reply"] is None  # the agent's twelfth word is the 24th step
    summary = opened.close()["conversation"]
    assert (summary["steps"], summary["blame"]) == (24, "user")
    (end,) = opened.rows("end", "conversation")
    assert (end["reason"], end["blame"], end["requestor"]) == ("max_steps", "user", "user")


def test_an_agent_that_acts_and_acts_is_cut_off_and_to_blame(host: RunningHost) -> None:
    opened = talk(host, scripted(), max_steps=9)
    client = shop(opened)
    refused = [client.call("look_up")["isError"] for _ in range(6)]
    assert refused == [False] * 4 + [True] * 2
    summary = opened.close()["conversation"]
    assert (summary["ended"], summary["steps"], summary["blame"]) == ("max_steps", 9, "agent")


def test_the_limit_comes_before_the_goodbye(host: RunningHost) -> None:
    opened = talk(host, scripted(), max_steps=3)
    assert opened.say("Bye.")["ended"] == "max_steps"


def test_failed_calls_of_both_together_end_it(host: RunningHost) -> None:
    wrong = [{"tool": "dial", "arguments": {"n": "x"}}]
    opened = talk(host, replayed(wrong, "Hm.", wrong, "Hm?"), max_errors=3)
    assert shop(opened).call("refund", '{"n": "x"}')["isError"]
    assert opened.say("Please dial.")["ended"] == "too_many_errors"
    summary = opened.close()
    assert summary["conversation"]["errors"] == 3
    assert (summary["tool_calls"], summary["tool_errors"]) == (1, 1)


def test_a_user_whose_own_calls_all_failed_is_to_blame(host: RunningHost) -> None:
    wrong = [{"tool": "dial", "arguments": {"n": "x"}}]
    opened = talk(host, replayed("Hello.", wrong, wrong, wrong), max_errors=3)
    assert opened.say("Please dial.")["ended"] == "too_many_errors"
    assert opened.close()["conversation"]["blame"] == "user"


def test_a_user_that_calls_and_calls_is_cut_off_and_to_blame(host: RunningHost) -> None:
    right = [{"tool": "dial", "arguments": {"n": 1}}]
    opened = talk(host, replayed("Hello.", *[right] * 20), max_steps=24)
    assert opened.say("Please dial.")["ended"] == "max_steps"
    assert opened.close()["conversation"]["blame"] == "user"


def test_a_user_that_repeats_itself_is_broken(host: RunningHost) -> None:
    opened = talk(host, replayed(*["Hello?"] * 5))
    assert opened.say("Yes?")["ended"] is None
    told = opened.say("Yes??")
    assert (told["ended"], told["reply"]) == ("user_error", "Hello?")
    assert opened.close()["conversation"]["blame"] == "user"


def test_a_user_that_falls_silent_is_asked_once_more(host: RunningHost) -> None:
    opened = talk(host, replayed("Hello.", "", "Sorry, I dozed off.", "", ""))
    assert opened.say("Yes?")["reply"] == "Sorry, I dozed off."
    told = opened.say("And?")
    assert (told["ended"], told["reply"]) == ("user_error", None)


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_agent_that_says_nothing_fails(host: RunningHost, nothing: str) -> None:
    opened = talk(host, scripted())
    assert opened.say(nothing)["ended"] == "agent_error"
    assert opened.close()["conversation"]["blame"] == "agent"


def test_closing_writes_the_end_that_the_flow_names(host: RunningHost) -> None:
    opened = talk(host, scripted())
    assert opened.close("timeout")["conversation"]["ended"] == "timeout"
    assert opened.rows("end", "conversation")[0]["reason"] == "timeout"
    opened = talk(host, scripted())
    assert opened.close()["conversation"]["ended"] is None
    assert not opened.rows("end", "conversation")


def test_a_user_without_tools_is_told_so(host: RunningHost) -> None:
    opened = talk(host, replayed([{"tool": "fly", "arguments": {}}], "I cannot fly."),
                  environments=[SHOP])  # fmt: skip
    assert opened.answer["conversation"]["messages"][-1]["content"] == "I cannot fly."
    (row,) = opened.rows("result")
    assert (row["status"], row["requestor"]) == ("unknown_tool", "user")
    assert opened.close()["conversation"]["errors"] == 1


def test_the_agent_never_sees_the_users_tools(host: RunningHost) -> None:
    opened = talk(host, scripted())
    assert [each["name"] for each in shop(opened).tools()] == ["look_up", "refund"]
    assert opened.close()["listed"]
