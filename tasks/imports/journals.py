"""A published simulation's messages as the journals that a live attempt of the same would have left.

A grader rebuilds the trajectory from `bridge.jsonl` and `conversation.jsonl` and must not need to know
whether we ran it. What upstream keeps in one message (a text with several calls) becomes one row each
in the same order: the text, then each call with its result, which is the order in which they replay.

What the file does not say (moments, durations) is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from suites.schema import Task
from tasks.imports.results import Simulation, seconds_of

ERROR = "Error: "
"""How upstream begins the result of a failed call; files that leave `error` out are read by it."""

BLAMES = {
    "agent_error": "agent",
    "context_window_exceeded": "agent",
    "user_error": "user",
    "infrastructure_error": "infra",
    "timeout": "infra",
}

Row = dict[str, Any]


@dataclass
class Journals:
    """The rows of one simulation under one counter.

    Attributes:
        bridge: of `bridge.jsonl`.
        conversation: of `conversation.jsonl`.
        steps: as upstream counts them: a text is one, a call and its result are two.
        errors: failed calls of both sides.
        turns: messages of the user.
    """

    bridge: list[Row] = field(default_factory=list)
    conversation: list[Row] = field(default_factory=list)
    steps: int = 0
    errors: int = 0
    turns: int = 0

    def ended(self, simulation: Simulation) -> Row:
        """The host's account of the conversation."""
        return {
            "ended": simulation.reason,
            "detail": detail_of(simulation),
            "blame": BLAMES.get(simulation.reason),
            "steps": self.steps,
            "errors": self.errors,
            "turns": self.turns,
        }


def detail_of(simulation: Simulation) -> str:
    """How it ended, in words."""
    note = (simulation.judged.get("info") or {}).get("note")
    return f"published as {simulation.reason}" + (f": {note}" if note else "")


def journals_of(simulation: Simulation, task: Task | None, world: str) -> Journals:
    """The journals of one simulation.

    Args:
        simulation: as published.
        task: its task; None where that is not known.
        world: name of the suite's world, whose tools both sides call.
    """
    history = list((task.setup or {}).get("message_history") or ()) if task else []
    return _Writer(world, history).write(simulation)


class _Writer:
    """Writes rows in order, one counter for both files."""

    def __init__(self, world: str, history: list[Row]) -> None:
        self._server = world
        self._history = history
        self._made = Journals()
        self._seq = 0

    def write(self, simulation: Simulation) -> Journals:
        messages = [message for message in simulation.messages if message["role"] != "system"]
        opening = self._opening(messages)
        for number, message in enumerate(messages):
            if message["role"] == "tool":
                continue
            requestor = "user" if message["role"] == "user" else "agent"
            if (message.get("content") or "").strip():
                self._text(message, requestor, opening=number < opening)
            if number >= opening:
                calls = message.get("tool_calls") or []
                for call, result in _paired(calls, messages[number + 1 :]):
                    self._call(call, result, requestor)
        end = {"reason": simulation.reason, "detail": detail_of(simulation)}
        self._row(
            "conversation",
            "end",
            "user" if BLAMES.get(simulation.reason) == "user" else "agent",
            None,
            **end,
            blame=BLAMES.get(simulation.reason),
        )
        return self._made

    def _opening(self, messages: list[Row]) -> int:
        """How many of the messages were there before anybody of this run spoke."""
        size = len(self._history)
        if size and [_said(m) for m in messages[:size]] == [_said(m) for m in self._history]:
            return size
        greets = bool(messages) and messages[0]["role"] == "assistant"
        return 1 if greets and not messages[0].get("tool_calls") else 0

    def _text(self, message: Row, requestor: str, opening: bool) -> None:
        if requestor == "user":
            self._made.turns += 1
        if not opening:
            self._made.steps += 1
        role = "user" if requestor == "user" else "assistant"
        self._row(
            "conversation",
            "message",
            requestor,
            message.get("timestamp"),
            role=role,
            content=message["content"],
            opening=opening,
        )

    def _call(self, call: Row, result: Row | None, requestor: str) -> None:
        arguments = call.get("arguments")
        seq = self._row(
            "bridge",
            "call",
            requestor,
            None,
            server=self._server,
            tool=call["name"],
            native=call["name"],
            arguments=arguments if isinstance(arguments, str) else _text_of(arguments),
            id=call.get("id"),
        )
        self._made.steps += 2
        if result is None:
            return
        content = result.get("content") or ""
        said = result.get("error")
        failed = content.startswith(ERROR) if said is None else bool(said)
        self._made.errors += failed
        self._row(
            "bridge",
            "result",
            requestor,
            result.get("timestamp"),
            call=seq,
            is_error=failed,
            text=content,
            cut=0,
            ms=None,
            status="tool_error" if failed else "ok",
        )

    def _row(self, file: str, event: str, requestor: str, at: Any, **fields: Any) -> int:
        self._seq += 1
        rows = self._made.bridge if file == "bridge" else self._made.conversation
        rows.append(
            {
                "seq": self._seq,
                "turn": self._made.turns,
                "requestor": requestor,
                "try": 1,
                "at": seconds_of(at),
                "event": event,
                **fields,
            }
        )
        return self._seq


def _paired(calls: list[Row], following: list[Row]) -> Iterator[tuple[Row, Row | None]]:
    """Each call with its result among the tool messages that follow: by id, else by place."""
    results: list[Row] = []
    for message in following:
        if message["role"] != "tool":
            break
        results.append(message)
    for call in calls:
        same = [one for one in results if call.get("id") and one.get("id") == call["id"]]
        chosen = same[0] if same else results[0] if results else None
        if chosen is not None:
            results.remove(chosen)
        yield call, chosen


def _said(message: Row) -> tuple[Any, ...]:
    calls = [(call["name"], call.get("arguments")) for call in message.get("tool_calls") or ()]
    return message["role"], message.get("content") or "", calls


def _text_of(arguments: Any) -> str:
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
