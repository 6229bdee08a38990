"""A scripted model that does the part it is asked for, and no other: gold keyed by sub-task.

An oracle that replays all its gold in each of N subagents would measure nothing. This one looks which
parts the last user message names, by the value of one argument of the gold calls (`part`), and makes the
gold calls of those, one a response. Asked without any tools, it is a planner: it answers with the parts that
are named, as `{"parts": [text, …]}`, a whole instruction for each. So one model serves a single loop over the
whole task and a tree of agents with a part each, and what differs between them is what the harness makes
of it: how often it has to ask, and what its limits cut off.

`error_rate` is the chance that a part goes wrong, drawn from the attempt's seed and the part's name: the
same part errs in every harness, whoever does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bridges.scripted_behaviours import Asked, Script, Step, ToolCall, altered, offered

PART = "part"
"""Name of the argument where the settings name none."""


def next_of_part(script: Script, asked: Asked) -> Step:
    """The next call of the parts that are asked for, the plan of them, or the final text."""
    key = str(script.settings.get("part", PART))
    parts = list(dict.fromkeys(_part(call, key) for call in script.gold))
    named = [part for part in parts if part and _names(asked.last_user, part)]
    if not asked.tools:
        return Step(text=json.dumps({"parts": [_told(script.gold, key, part) for part in named]}))
    wanted = [call for part in named for call in _calls(script, key, part)]
    if asked.made < len(wanted):
        call = wanted[asked.made]
        name = offered(call["tool"], asked.tools)
        return Step(calls=(ToolCall(name, json.dumps(call.get("arguments") or {})),))
    return Step(text=script.answer if named == parts else f"Done: {', '.join(named) or 'nothing'}.")


def _part(call: Mapping[str, Any], key: str) -> str:
    return str((call.get("arguments") or {}).get(key) or "")


def _names(text: str, part: str) -> bool:
    """Whether a text names a part as a word of its own."""
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


def _told(gold: Sequence[Mapping[str, Any]], key: str, part: str) -> str:
    """What a planner would write for a part."""
    tools = list(dict.fromkeys(call["tool"] for call in gold if _part(call, key) == part))
    return f"Do the part {key} {part} of the task, with {' and then '.join(tools)}."


def _calls(script: Script, key: str, part: str) -> list[Mapping[str, Any]]:
    """The gold calls of a part; the last of them wrong where chance has it so."""
    calls = [call for call in script.gold if _part(call, key) == part]
    chance = script.random(f"part/{part}")
    if chance.random() < script.settings.get("error_rate", 0.0):
        given = dict(calls[-1].get("arguments") or {})
        others = sorted(name for name in given if name != key)
        if others:
            given[others[0]] = altered(given[others[0]], chance)
            return [*calls[:-1], {**calls[-1], "arguments": given}]
    return calls
