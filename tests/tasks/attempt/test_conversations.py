"""Conversations lived for real: a host, a user, and harnesses that run once a turn or once for all."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suites.schema import Harness, Model
from tasks.attempt.converse import BY_TOOL, IN_TURN
from tests.tasks.attempt.conftest import Bench
from tests.tasks.talking import OPENING, POLICY, TOOL, task, write_suite
from warehouse.evidence import Bundle

Shell = Callable[..., Harness]
Talk = Callable[..., Bundle]

CALL = 'tool get_weather \'{"city": "Oslo"}\' > /dev/null; '
RESPOND = 'tool respond_to_user \'{"message": "%s"}\'; '


@pytest.fixture
def talk(bench: Bench, tmp_path: Path) -> Talk:
    """Run one conversation with a harness; `said` is what a replayed user says, else a script does."""

    def run(harness: Harness | str, said: list[Any] | None = None, **changes: Any) -> Bundle:
        values = {"only": "*", "user": "scripted"} | changes
        if said is not None:
            messages = [{"content": m} if isinstance(m, str) else m for m in said]
            (tmp_path / "said.json").write_text(json.dumps(messages))
            values["user"] = f"replay:{tmp_path / 'said.json'}"
        suite = write_suite(tmp_path, values.pop("task", None) or task())
        return bench.run(harness, suites=[suite], **values)

    return run


@pytest.fixture
def by_turns(shell: Shell) -> Shell:
    """A harness of one line of sh that runs once a turn."""
    return lambda script, **changes: shell(script, conversation="turns", **changes)


def ended(bundle: Bundle) -> str:
    """How the host says that the conversation ended."""
    return str(bundle.record["host"]["conversation"]["ended"])


def heard(bundle: Bundle, role: str) -> list[str]:
    """What one of the two said in the conversation itself."""
    rows = bundle.rows("conversation.jsonl")
    return [r["content"] for r in rows if r["event"] == "message" and r["role"] == role][1:]


def user_model(*steps: dict[str, Any], **changes: Any) -> Model:
    """A user played by a model whose answers are written down."""
    values = {
        "name": "person",
        "endpoint": "scripted:playbook",
        "scripted": {"steps": list(steps)},
    } | changes
    return Model.model_validate(values)


# ---------------------------------------------------------------- the three ways


@pytest.mark.parametrize("way", ["turns", "tool", "resume"])
def test_reference_harness_solves_a_conversation_each_way(talk: Talk, way: str) -> None:
    bundle = talk(f"reference-{way}")
    record = bundle.record
    assert (record["ending"], record["error"], ended(bundle)) == ("clean", None, "user_stop")
    assert (record["host"]["listed"], record["host"]["tool_errors"]) == (True, 0)
    calls = [row for row in bundle.rows("bridge.jsonl") if row["event"] == "call"]
    assert calls[0]["tool"] == "get_weather"
    rows = bundle.rows("conversation.jsonl")
    assert [row["content"] for row in rows if row["event"] == "message"] == [
        "Hi! How can I help you today?",
        OPENING,
        "It is 12 degrees.",
        "###STOP###",
    ]
    assert bundle.record["stamp"]["user_model"] == "scripted"


def test_each_turn_is_told_all_and_keeps_nothing(talk: Talk, by_turns: Shell) -> None:
    script = (
        CALL + "(ls -A $HOME; ls -A); touch $HOME/mine mine; cp $MESSAGES $HOME; "
        'echo "turn $TURN heard $(cat "$MESSAGE")"; echo note >&2'
    )
    env = {
        "MESSAGES": "{{ messages_file }}",
        "MESSAGE": "{{ message_file }}",
        "TURN": "{{ turn }}",
        "SAID": "{{ message }}",
    }
    bundle = talk(by_turns(script, env=env), ["One?", "Two?", "Three?"])
    said = [f"turn {n} heard {m}?" for n, m in enumerate(["One", "Two", "Three"], 1)]
    assert heard(bundle, "assistant") == said
    assert heard(bundle, "user") == ["Two?", "Three?", "###STOP###"]
    assert [launch["exit_code"] for launch in bundle.record["launches"]] == [0, 0, 0]
    assert bundle.text("stdout") == "\n".join(said) + "\n"
    assert bundle.text("stderr") == "note\n" * 3
    assert bundle.text("turns/002.stderr") == "note\n"


def test_a_turn_knows_the_whole_transcript_with_its_own_calls(talk: Talk, by_turns: Shell) -> None:
    harness = by_turns(
        CALL + 'cp "$M" "$P" .; echo well',
        env={"M": "{{ messages_file }}", "P": "{{ prompt_file }}"},
    )
    bundle = talk(harness, ["One?", "Two?"])
    messages = json.loads(bundle.text("final/files/messages.json"))
    assert [m["role"] for m in messages] == [
        "system", "assistant", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert messages[0]["content"] == POLICY
    (call,) = messages[3]["tool_calls"]
    assert (call["function"]["name"], call["id"]) == ("get_weather", messages[4]["tool_call_id"])
    assert messages[4]["content"] == "12 degrees"
    prompt = bundle.text("final/files/prompt.txt")
    wanted = [
        POLICY,
        "[user]\nOne?",
        "[assistant calls get_weather]",
        "12 degrees",
        "Two?",
        IN_TURN,
    ]
    assert [prompt.index(part) for part in wanted] == sorted(prompt.index(part) for part in wanted)


def test_resume_goes_on_in_its_own_home_with_what_is_new(talk: Talk, shell: Shell) -> None:
    harness = shell(
        CALL + 'echo begun > $HOME/state; echo edited > $HOME/config; echo "first {{ message }}"',
        conversation="resume",
        resume=["sh", "-c", 'cat $HOME/state $HOME/config; echo "turn {{ turn }} {{ message }}"'],
        files={"home/config": "as written"},
    )
    bundle = talk(harness, ["One?", "Two?", "Three?"])
    kept = "begun\nedited\n"
    said = ["first One?", f"{kept}turn 2 Two?", f"{kept}turn 3 Three?"]
    assert heard(bundle, "assistant") == said


def test_the_reference_resumes_with_the_very_messages_it_had(talk: Talk) -> None:
    steps = [
        {"calls": [{"tool": "get_weather", "arguments": {"city": "Oslo"}}]},
        {"text": "It is 12."},
        {"text": "Still 12."},
    ]
    model = {"name": "m", "endpoint": "scripted:playbook", "scripted": {"steps": steps}}
    bundle = talk("reference-resume", ["One?", "Two?"], models=[model])
    requests = [r for r in bundle.rows("model.jsonl") if r["event"] == "request"]
    bodies = [json.loads(row["body"])["messages"] for row in requests]
    assert [len(messages) for messages in bodies] == [3, 5, 7]
    assert bodies[2][:5] == bodies[1]
    assert [m["content"] for m in bodies[2][5:]] == ["It is 12.", "Two?"]


def test_a_harness_that_runs_once_talks_by_the_tool(talk: Talk, shell: Shell) -> None:
    script = (
        CALL + f'cp "$M" .; {RESPOND % "First."}{RESPOND % "Second."}{RESPOND % "Third."}'
        'tool get_weather \'{"city": "Oslo"}\'; true'
    )
    bundle = talk(shell(script, env={"M": "{{ messages_file }}"}), ["One?", "Two?"])
    assert heard(bundle, "assistant") == ["First.", "Second."]
    assert bundle.text("stdout").startswith("Two?\n")
    assert "has ended the conversation" in bundle.text("stdout")
    assert ended(bundle) == "user_stop"
    statuses = [r["status"] for r in bundle.rows("bridge.jsonl") if r["event"] == "result"]
    assert statuses[-2:] == ["refused", "refused"], "nothing happens once it is over"
    messages = json.loads(bundle.text("final/files/messages.json"))
    assert [m["role"] for m in messages] == ["system", "assistant", "user"]
    assert messages[0]["content"] == f"{POLICY}\n\n{BY_TOOL}"


def test_a_harness_that_ends_before_the_user_does_is_the_agents_stop(
    talk: Talk, shell: Shell
) -> None:
    bundle = talk(shell(CALL + RESPOND % "Bye."), ["One?", "Two?", "Three?"])
    assert (bundle.record["ending"], ended(bundle)) == ("clean", "agent_stop")


def test_what_it_says_it_used_is_not_said_to_the_user(talk: Talk, by_turns: Shell) -> None:
    script = CALL + 'echo hello; echo \'{"output": 5, "model": "m"}\''
    bundle = talk(by_turns(script, telemetry={"usage": "last_line_json"}), ["One?", "Two?"])
    assert heard(bundle, "assistant") == ["hello", "hello"]
    assert bundle.record["reported"] == {"output": 10, "model": "m"}


def test_what_a_resumed_session_says_that_it_used_is_counted_once(talk: Talk, shell: Shell) -> None:
    def turn(tokens: int) -> str:
        said = {"type": "item.completed", "item": {"type": "agent_message", "text": "hello"}}
        used = {"type": "turn.completed", "usage": {"input_tokens": tokens, "output_tokens": 1}}
        return f"echo '{json.dumps(said)}'; echo '{json.dumps(used)}'"

    harness = shell(
        CALL + turn(100),
        conversation="resume",
        resume=["sh", "-c", turn(250)],
        telemetry={"usage": "codex_jsonl"},
    )
    bundle = talk(harness, ["One?", "Two?"])
    assert heard(bundle, "assistant") == ["hello", "hello"]
    assert bundle.record["reported"]["input"] == 250


# ---------------------------------------------------------------- harnesses that fail


@pytest.mark.parametrize(
    ("script", "ending", "error", "reason"),
    [
        ("exit 1", "crashed", None, "agent_error"),
        ("exit 5", "refused", None, "agent_error"),
        ("exit 9", "budget", None, "max_steps"),
        ("exit 44", "crashed", "harness_infra", "agent_error"),
        ("kill -9 $$", "killed", "harness_killed", "agent_error"),
    ],
)
@pytest.mark.parametrize("way", ["turns", "tool"])
def test_a_harness_that_dies_in_the_middle_ends_the_conversation(
    talk: Talk, bench: Bench, shell: Shell, way: str, script: str, ending: str, error: str | None,
    reason: str,
) -> None:  # fmt: skip
    harness = shell(
        CALL + f"test {{{{ turn }}}} = 1 || {{ {script}; }}; echo said"
        if way == "turns"
        else CALL + RESPOND % "said" + script,
        conversation=way,
        exit_codes={5: "refused", 9: "budget", 44: "infra_error"},
    )
    bundle = talk(harness, ["One?", "Two?", "Three?"])
    assert bundle.record["ending"] == ending
    assert (bundle.record["error"] or {}).get("class") == error
    assert ended(bundle) == reason
    assert heard(bundle, "assistant") == ["said"]
    assert bench.evidence.is_done(bundle.key) == (error is None)
    if way == "turns":
        assert [launch["turn"] for launch in bundle.record["launches"]] == [1, 2]


def test_one_deadline_holds_for_all_turns(talk: Talk, by_turns: Shell) -> None:
    script = CALL + "test {{ turn }} = 3 && sleep 984; sleep 0.6; echo well {{ turn }}"
    started = time.monotonic()
    bundle = talk(by_turns(script), ["1", "2", "3", "4"], limits={"seconds": 2.5})
    assert time.monotonic() - started < 20
    record = bundle.record
    assert (record["ending"], record["blame"], ended(bundle)) == ("timeout", "agent", "timeout")
    assert len(record["launches"]) == 3
    assert 2.5 <= record["timings"]["wall_s"] < 10


def test_stopping_in_a_turn_seals_the_try_as_cancelled(
    talk: Talk, bench: Bench, by_turns: Shell
) -> None:
    threading.Timer(1.5, bench.shop.stop).start()
    bundle = talk(by_turns(CALL + "test {{ turn }} = 2 && sleep 60; echo well"), ["1", "2", "3"])
    assert bundle.record["error"]["class"] == "cancelled"
    assert ended(bundle) == "None", "nobody ended it"
    assert not bench.evidence.is_done(bundle.key)


@pytest.mark.parametrize(
    ("happens", "error"), [("stop", "cancelled"), ("the host dies", "host_lost")]
)
def test_what_happens_while_the_user_thinks_is_seen_at_once(
    talk: Talk, bench: Bench, by_turns: Shell, happens: str, error: str
) -> None:
    thinking = user_model({"text": "One?"}, {"hang": True})
    bench.shop.processes.host()
    act = {
        "stop": bench.shop.stop,
        "the host dies": lambda: os.kill(bench.shop.processes.pids()["host"], signal.SIGKILL),
    }
    threading.Timer(2, act[happens]).start()
    started = time.monotonic()
    record = talk(by_turns(CALL + "echo well"), user=thinking, limits={"seconds": 100}).record
    assert time.monotonic() - started < 30
    assert record["error"]["class"] == error
    assert len(record["launches"]) == 1


@pytest.mark.parametrize("script", ["true", "printf ' \\n\\n'"])
def test_saying_nothing_is_the_agents_error(talk: Talk, by_turns: Shell, script: str) -> None:
    bundle = talk(by_turns(CALL + script), ["1", "2"])
    assert (bundle.record["ending"], ended(bundle)) == ("crashed", "agent_error")
    assert "said nothing" in bundle.record["detail"]


def test_tools_need_to_be_listed_once_in_all_turns(talk: Talk, by_turns: Shell) -> None:
    said = ["1", "2", "3"]
    listing = by_turns("test {{ turn }} = 2 && tool --list > /dev/null; echo well {{ turn }}")
    assert talk(listing, said).record["error"] is None
    assert (
        talk(by_turns("echo well {{ turn }}"), said).record["error"]["class"] == "bridge_unlisted"
    )


@pytest.mark.parametrize(
    ("limits", "acts", "detail", "blame"),
    [
        ({"max_steps": 7}, CALL, "7 steps", "agent"),
        ({"max_steps": 26}, "", "26 steps", "user"),
        ({"max_errors": 2}, "tool get_weather '{}'; ", "2 tool calls", "agent"),
    ],
    ids=["steps", "a user that does not let go", "errors"],
)
@pytest.mark.parametrize("way", ["turns", "tool"])
def test_a_conversation_that_is_cut_off_has_spent_its_budget(
    talk: Talk, shell: Shell, way: str, limits: dict[str, int], acts: str, detail: str, blame: str
) -> None:
    user = task()["user"] | limits
    turn = f"tool --list > /dev/null; {acts}"
    once = f"for i in $(seq 20); do {turn}{RESPOND % 'well'}done"
    harness = shell(f"{turn} echo well" if way == "turns" else once, conversation=way)
    record = talk(harness, [str(n) for n in range(40)], task=task(user=user)).record
    assert (record["ending"], record["blame"], record["error"]) == ("budget", blame, None)
    assert detail in record["detail"]


# ---------------------------------------------------------------- users that fail


def test_a_users_endpoint_that_is_down_is_no_result(talk: Talk, by_turns: Shell) -> None:
    nobody = Model(name="nobody", endpoint="http://127.0.0.1:9/v1")
    bundle = talk(by_turns(CALL + "echo well"), user=nobody)
    record = bundle.record
    assert record["error"]["class"] == "upstream_unreachable"
    assert "the user's model" in record["error"]["message"]
    assert record["launches"] == []


def test_a_users_endpoint_that_fails_in_the_middle_is_the_users_fault(
    talk: Talk, by_turns: Shell
) -> None:
    failing = user_model({"text": "One?"}, *[{"status": 500}] * 9)
    record = talk(by_turns(CALL + "echo well"), user=failing).record
    assert (record["error"]["class"], record["blame"]) == ("upstream_error", "user")


@pytest.mark.parametrize(
    ("steps", "detail"),
    [
        ([{"text": "One?"}, {"text": ""}, {"text": ""}], "said nothing"),
        ([{"text": "One?"}] * 5, "the same"),
        ([{"calls": [{"tool": "nothing_such"}]}] * 12, "all of them the user's"),
    ],
)
@pytest.mark.parametrize("way", ["turns", "tool"])
def test_a_user_that_cannot_go_on_is_no_result(
    talk: Talk, shell: Shell, way: str, steps: list[dict[str, Any]], detail: str
) -> None:
    script = "echo well" if way == "turns" else (RESPOND % "well") * 4
    bundle = talk(shell(CALL + script, conversation=way), user=user_model(*steps))
    record = bundle.record
    assert (record["error"]["class"], record["blame"]) == ("user_failed", "user")
    assert detail in record["error"]["message"]


@pytest.mark.parametrize("way", ["turns", "tool"])
def test_a_user_that_takes_most_of_the_time_is_not_the_agents_fault(
    talk: Talk, shell: Shell, way: str
) -> None:
    slow = user_model({"text": "One?"}, {"hang": True})
    script = "echo well" if way == "turns" else RESPOND % "well"
    harness = shell(CALL + script, conversation=way)
    record = talk(harness, user=slow, limits={"seconds": 3}).record
    assert record["error"]["class"] == "user_failed"
    assert "the user took" in record["error"]["message"]


def test_a_slow_agent_cannot_hide_behind_a_user_who_is_about_to_speak(
    talk: Talk, by_turns: Shell
) -> None:
    slow = user_model({"text": "One?"}, {"hang": True})
    harness = by_turns(CALL + "sleep 2.5; echo well")
    record = talk(harness, user=slow, limits={"seconds": 4}).record
    assert (record["ending"], record["blame"], record["error"]) == ("timeout", "agent", None)


def test_a_model_that_plays_the_user_is_metered_apart(talk: Talk) -> None:
    prices = {"date": "2026-11-01", "input": 1.0, "output": 1.0}
    person = user_model({"text": "One?"}, {"text": "Thanks. ###STOP###"}, prices=prices)
    bundle = talk("reference-turns", user=person)
    host = bundle.record["host"]
    assert ended(bundle) == "user_stop"
    assert (host["model_calls"], host["user"]["model_calls"]) == (2, 2)
    assert host["cost"] > 0
    assert host["user"]["cost"] > 0
    first = next(r for r in bundle.rows("model.jsonl") if r.get("requestor") == "user")
    assert task()["user"]["scenario"] in first["body"]


# ---------------------------------------------------------------- policies that are too long


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"command": ["sh", "-c", CALL + "echo well", "agent", "{{ prompt }}"]}, "`command[4]`"),
        ({"env": {"POLICY": "{{ prompt }}"}}, "`env.POLICY`"),
        ({"env": {f"P{n}": "{{ prompt[:100000] }}" for n in range(60)}}, "together"),
    ],
)
def test_a_policy_longer_than_a_command_line_is_a_mistake_of_the_harness_file(
    talk: Talk, bench: Bench, by_turns: Shell, changes: dict[str, Any], names: str
) -> None:
    long = "Rule: be kind to every customer, whatever the hour.\n" * 4000
    bundle = talk(by_turns(CALL + "echo well", **changes), task=task(policy=long))
    error = bundle.record["error"]
    assert error["class"] == "harness_config"
    assert names in error["message"]
    assert "prompt_file" in error["message"]


@pytest.mark.parametrize(
    "changes",
    [{"stdin": "{{ prompt }}"}, {"env": {"F": "{{ prompt_file }}"}}],
    ids=["stdin", "file"],
)
def test_a_long_policy_passes_by_stdin_and_by_file(
    talk: Talk, by_turns: Shell, changes: dict[str, Any]
) -> None:
    long = "Rule: be kind to every customer, whatever the hour.\n" * 4000
    bundle = talk(by_turns(CALL + "cat $F | grep -c kind", **changes), task=task(policy=long))
    assert heard(bundle, "assistant") == ["4000"]


def test_a_user_with_tools_of_its_own_is_asked_for_them(talk: Talk, by_turns: Shell) -> None:
    reboot = TOOL | {"name": "reboot", "input_schema": {"type": "object"}, "result": "rebooted"}
    user = task()["user"] | {"script": {"opening": OPENING, "calls": [{"tool": "reboot"}]}}
    phone = {"name": "phone", "audience": "user", "tools": [reboot]}
    changed = task(user=user, environments=[*task()["environments"], phone])
    script = "tool --list | grep -c reboot; test {{ turn }} = 1 && echo Please reboot. || echo Bye."
    bundle = talk(by_turns(script), task=changed)
    assert heard(bundle, "assistant") == ["0\nPlease reboot.", "0\nBye."], (
        "they are not the agent's"
    )
    calls = [row for row in bundle.rows("bridge.jsonl") if row["event"] == "call"]
    assert [(row["requestor"], row["tool"]) for row in calls] == [("user", "reboot")]
