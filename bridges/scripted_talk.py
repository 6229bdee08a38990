"""What a scripted model does next where there is a user to talk to.

Its plan is a list: its own gold calls; for each run of the user's gold calls one thing to say, which
names their tools ("Please use reboot, then dial."); last, its answer. A scripted user does as it is
told (bridges/users.py), so the two of them walk through all of the gold. How far they are is read from
the request: the agent's calls that it holds, and what the agent has said, beyond what the prompt held
to begin with (as messages, or written out in a prompt). In the `tool` way saying is a call of
`respond_to_user`.

The null model says that it cannot help, and is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bridges.conversation_tool import SPEAK
from bridges.scripted_behaviours import (
    REFUSAL,
    Asked,
    Script,
    Step,
    ToolCall,
    is_agents,
    offered,
)

Item = Mapping[str, Any] | str
"""One step of a plan: a call of the agent's, or what it says."""


def next_in_conversation(script: Script, calls: Sequence[Mapping[str, Any]], asked: Asked) -> Step:
    """The next of the plan that the request does not hold yet; once all is done, the last words."""
    assert script.conversation is not None
    items = plan(script, calls)
    given = script.conversation.get("given") or {}
    by_tool = script.conversation.get("way") == "tool"
    speak = offered(SPEAK, asked.tools)
    spoken = sum(name == speak for name in asked.called) if by_tool else 0
    made = asked.made + asked.written_calls - spoken - (given.get("made") or 0)
    said = asked.texts + asked.written_texts - (given.get("said") or 0)
    if by_tool:
        said = spoken
    ahead = _ahead(items, made, said)
    if not ahead:
        return Step(text=REFUSAL if script.behaviour == "null" else script.answer)
    first = ahead[0]
    if isinstance(first, str):
        if not by_tool:
            return Step(text=first)
        return Step(calls=(ToolCall(speak, json.dumps({"message": first})),))
    run: list[ToolCall] = []
    for item in ahead:
        if isinstance(item, str) or (run and not asked.parallel):
            break
        arguments = json.dumps(item.get("arguments") or {})
        run.append(ToolCall(offered(item["tool"], asked.tools), arguments))
    return Step(calls=tuple(run))


def plan(script: Script, calls: Sequence[Mapping[str, Any]]) -> list[Item]:
    """All that the model does in a conversation, in order."""
    if script.behaviour == "null":
        return [REFUSAL]
    items: list[Item] = []
    wanted: list[str] = []
    for call in calls:
        if is_agents(call):
            items += [*_request(wanted), call]
            wanted = []
        else:
            wanted.append(call["tool"])
    return [*items, *_request(wanted), script.answer]


def _request(tools: Sequence[str]) -> list[str]:
    return [f"Please use {', then '.join(tools)}."] if tools else []


def _ahead(items: Sequence[Item], made: int, said: int) -> Sequence[Item]:
    """What is left after so many calls and sayings."""
    for at, item in enumerate(items):
        done = said if isinstance(item, str) else made
        if done <= 0:
            return items[at:]
        if isinstance(item, str):
            said -= 1
        else:
            made -= 1
    return []
