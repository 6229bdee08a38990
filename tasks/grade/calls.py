"""The tool calls of one try, read from its journal, and the three ways to choose among them.

A leaderboard judges one response of a model; an agent may look at an error and call again. So one try
is read in three scopes, and none of them is mistaken for another:

    attempt         the calls that a bridge accepted: what the agent did to its environment
    attempt_strict  every call it made, also those refused for their arguments or an unknown name
    first_response  every call between the first model response that led to any and the agent's next
                    model request: what the leaderboard measures; unknown where that cannot be told
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

NOT_ACCEPTED = {"refused", "unknown_tool"}


class EvidenceHole(Exception):  # noqa: N818 - the condition
    """The journal lacks a row that a grade needs: a grader_error, never a failure."""


@dataclass(frozen=True)
class Call:
    """One `tools/call` as it was sent.

    Attributes:
        seq: its place in the try's one order.
        name: the native name, or the name as sent where no tool has it.
        arguments: the raw JSON text of the arguments, as sent; `{}` where there were none.
        status: how the bridge answered (`ok`, `refused`, `unknown_tool`, `tool_error`, …).
    """

    seq: int
    name: str
    arguments: str
    status: str

    @property
    def accepted(self) -> bool:
        """True unless the bridge sent it back unanswered."""
        return self.status not in NOT_ACCEPTED


def calls_of(bridge: Sequence[Mapping[str, Any]], tools: Mapping[str, str]) -> list[Call]:
    """The agent's calls in order.

    Args:
        bridge: rows of `bridge.jsonl`.
        tools: wire name to native name; a call by its native name is known by its row.

    Raises:
        EvidenceHole: a call has no result row.
    """
    status = {row["call"]: row["status"] for row in bridge if row["event"] == "result"}
    found = []
    for row in bridge:
        if row["event"] != "call" or row.get("requestor", "agent") != "agent":
            continue
        if row["seq"] not in status:
            raise EvidenceHole(f"the call in row {row['seq']} ({row['tool']}) has no result row")
        name = tools.get(row["tool"]) or row.get("native") or row["tool"]
        arguments = row.get("arguments")
        found.append(Call(row["seq"], name, arguments or "{}", status[row["seq"]]))
    return sorted(found, key=lambda call: call.seq)


def first_response(
    calls: Sequence[Call], model: Sequence[Mapping[str, Any]]
) -> tuple[list[Call] | None, str]:
    """The calls that the first response with any led to, and why they are unknown if they are.

    Args:
        calls: every call of the try, in order.
        model: rows of `model.jsonl`.

    Returns:
        (calls, ""), or (None, reason). No call at all is a known answer: an empty list.
    """
    rows = [row for row in model if row.get("requestor", "agent") == "agent"]
    requests = sorted(row["seq"] for row in rows if row["event"] == "request")
    answered = {row["call"]: row["seq"] for row in rows if row["event"] == "response"}
    if not requests:
        return None, "no model call was recorded"
    for request, following in pairwise(requests):
        if answered.get(request, following) >= following:
            return None, f"the agent's model calls overlap (rows {request} and {following})"
    if not calls:
        return [], ""
    first = calls[0].seq
    if requests[0] > first:
        return None, "the first tool call came before any model call"
    following = next((request for request in requests if request > first), None)
    return [call for call in calls if following is None or call.seq < following], ""


def rows_of(calls: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The `bridge.jsonl` rows of an agent that made these calls and had each accepted.

    Args:
        calls: tool name and arguments (JSON values) of each.
    """
    rows: list[dict[str, Any]] = []
    for tool, arguments in calls:
        seq = len(rows) + 1
        text = json.dumps(arguments, ensure_ascii=False)
        rows.append({"seq": seq, "event": "call", "tool": tool, "native": tool, "arguments": text})
        rows.append({"seq": seq + 1, "event": "result", "call": seq, "status": "ok"})
    return rows
