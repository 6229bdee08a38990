"""The trajectory that upstream's evaluator judges, rebuilt from a try's journals.

Upstream keeps one list of messages; dyno keeps what was said (`conversation.jsonl`) and what was called
(`bridge.jsonl`) under one counter. Each call that the world answered becomes a message with that one
call and the result after it, where the call stands: the world carries calls out in the order of their
rows, so they replay in it. Ids are `call-<seq>`; who called is kept. A result is the text that the agent
was given, bounded and fit for every wire; the replay's are made so too before they are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.texts import fit
from tasks.grade.calls import EvidenceHole
from tasks.grade.recorded import Recorded

ANSWERED = ("ok", "tool_error")
"""Results of calls that are part of the world; a call that hung, crashed or was refused is not."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Ending:
    """How a conversation ended.

    Attributes:
        reason: upstream's word; None where no row says.
        detail: in words.
    """

    reason: str | None
    detail: str


def ending_of(recorded: Recorded) -> Ending:
    """How it ended, by its first `end` row.

    Raises:
        EvidenceHole: the harness ended cleanly, and no row says how the conversation did.
    """
    for row in _in_order(recorded.conversation):
        if row["event"] == "end":
            detail = row.get("detail") or ""
            return Ending(row["reason"], f"by {row['reason']}" + (f" ({detail})" if detail else ""))
    if recorded.ending == "clean":
        raise EvidenceHole("no row of conversation.jsonl says how the conversation ended")
    return Ending(None, f"with the harness, by {recorded.ending}")


def messages_of(
    recorded: Recorded, world: str, history: Sequence[Any] | None
) -> list[dict[str, Any]]:
    """Upstream's messages, as JSON values; the history's as they are given.

    Args:
        recorded: what the try left.
        world: name of the environment whose calls count.
        history: the task's `message_history`, which then stands for the opening messages.

    Raises:
        EvidenceHole: a call has no result row.
    """
    results = {row["call"]: row for row in recorded.bridge if row["event"] == "result"}
    messages: list[Any] = list(history or ())
    for row in _in_order([*recorded.bridge, *recorded.conversation]):
        if row["event"] == "end":
            break
        if row["event"] == "message" and not (history and row.get("opening")):
            messages.append({"role": row["role"], "content": row["content"], "timestamp": None})
        if row["event"] == "call" and row.get("server", world) == world:
            messages += _called(row, results.get(row["seq"]))
    return messages


def _called(row: Row, result: Row | None) -> list[dict[str, Any]]:
    """A call and its result; nothing where the world never carried it out."""
    where = f"the call in row {row['seq']} ({row['tool']})"
    if result is None:
        raise EvidenceHole(f"{where} has no result row")
    arguments = _arguments(row.get("arguments"))
    if result["status"] not in ANSWERED or arguments is None:
        return []
    text = result.get("text") or ""
    requestor = "user" if row.get("requestor") == "user" else "assistant"
    call = {
        "id": f"call-{row['seq']}",
        "name": row.get("native") or row["tool"],
        "arguments": arguments,
        "requestor": requestor,
    }
    answer = {
        "id": call["id"],
        "role": "tool",
        "content": text if result.get("cut") else fit(text)[0],
        "requestor": requestor,
        "error": result["status"] == "tool_error",
        "timestamp": None,
    }
    return [{"role": requestor, "tool_calls": [call], "timestamp": None}, answer]


def _arguments(text: str | None) -> dict[str, Any] | None:
    """As the world reads them; None where there is nothing upstream could be given."""
    try:
        value = json.loads(text or "{}") or {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["seq"])
