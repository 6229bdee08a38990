"""The OpenAI chat-completions wire, as its many imitators speak it.

Usage is read leniently, because upstreams differ in where they put cached and reasoning tokens;
what is forwarded is never normalised. Two rules decide between the readings:

- cached (and cache-written) tokens are inside `prompt_tokens`, so uncached input is the rest;
- `output` is `completion_tokens`, or `total - prompt` where that is more: some upstreams leave
  reasoning out of `completion_tokens`, though it is billed as output, and only the total tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridges.metering import NOTHING, Usage
from bridges.wires import EventReader, Prepared, Said
from bridges.wires.openai import OpenAI
from bridges.wires.reading import count, first, forced, message, parsed, quoted, strangeness
from bridges.wires.streams import Events


class Chat(OpenAI):
    """`POST …/v1/chat/completions`, in one piece or streamed."""

    name = "chat"
    path = "chat/completions"

    def prepare(self, body: bytes, model: str, parameters: Mapping[str, Any]) -> Prepared:
        """Force model id and parameters; ask for usage where a stream does not."""
        request = forced(body, model, parameters)
        if request is None:
            return Prepared(body)
        asked = request.asked
        strip = asked.get("stream") is True and not _wants_usage(asked)
        if strip:
            options = asked.get("stream_options")
            options = options if isinstance(options, dict) else {}
            changes = request.changes | {"stream_options": {**options, "include_usage": True}}
            edits = (*request.edits, "stream_options.include_usage")
            request = replace(request, changes=changes, edits=edits)
        return request.prepared(body, strip_usage=strip)

    def read(self, status: int, content_type: str, body: bytes) -> Said:
        """Usage, tool calls and what is wrong, of a reply in one piece.

        An error status without usage is taken as nothing used: providers bill no such reply.
        """
        value = parsed(body)
        document = value if isinstance(value, dict) else {}
        usage = usage_of(document)
        if status >= 300:
            return Said(usage or NOTHING, error=f"status {status}: {message(document, body)}")
        error = strangeness(status, content_type, body, value)
        choices = document.get("choices")
        if error is None and not (isinstance(choices, list) and choices):
            error = f"status {status} without choices: {quoted(body)}"
        return Said(usage, _count_tool_calls(document), error)

    def reader(self, strip_usage: bool) -> EventReader:
        """A reader of server-sent events."""
        return ChatEvents(strip_usage)


class ChatEvents(Events):
    """One streamed reply; the usage event is taken out again where `strip_usage` says so."""

    def __init__(self, strip_usage: bool) -> None:
        super().__init__(hold=strip_usage)
        self._usage: Usage | None = None
        self._calls: set[tuple[str, str]] = set()
        self._finished = False

    @property
    def complete(self) -> bool:
        """`[DONE]`, or a `finish_reason`."""
        return self.ended or self._finished

    @property
    def usage(self) -> Usage | None:
        """As the last event told that told any."""
        return self._usage

    @property
    def tool_calls(self) -> int:
        """Each index counts once."""
        return len(self._calls)

    def note(self, value: dict[str, Any], data: bytes) -> bool:
        """False for a pure usage event."""
        self._usage = usage_of(value) or self._usage
        choices = value.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            self._read_choice(choice)
        return not (choices == [] and value.get("usage"))

    def _read_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            return
        if choice.get("finish_reason"):
            self._finished = True
        delta = choice.get("delta")
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._calls.add((str(choice.get("index")), str(call.get("index"))))


def usage_of(document: Mapping[str, Any]) -> Usage | None:
    """Tokens from a reply or an event; None where it holds no usage that can be believed."""
    try:
        return _usage_of(document)
    except ValueError:
        return None


def _usage_of(document: Mapping[str, Any]) -> Usage | None:
    told = document.get("usage")
    if not isinstance(told, dict):
        groq = document.get("x_groq")
        told = groq.get("usage") if isinstance(groq, dict) else None
    if not isinstance(told, dict):
        return None
    prompt, completion = count(told.get("prompt_tokens")), count(told.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    read = first(
        told, "prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens"
    )
    write = first(
        told,
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
    )
    total = count(told.get("total_tokens")) or 0
    return Usage(
        input=max(prompt - read - write, 0),
        cache_read=read,
        cache_write=write,
        output=max(completion, total - prompt),
        reasoning=first(told, "completion_tokens_details.reasoning_tokens"),
    )


def _wants_usage(asked: Mapping[str, Any]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _count_tool_calls(document: Mapping[str, Any]) -> int:
    found = 0
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        found += len(calls) if isinstance(calls, list) else 0
    return found
