"""The OpenAI chat-completions wire, as its many imitators speak it.

Usage is read leniently, because upstreams differ in where they put cached and reasoning tokens;
what is forwarded is never normalised. Two rules decide between the readings:

- cached (and cache-written) tokens are inside `prompt_tokens`, so uncached input is the rest;
- `output` is `completion_tokens`, or `total - prompt` where that is more: some upstreams leave
  reasoning out of `completion_tokens`, though it is billed as output, and only the total tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bridges.metering import NOTHING, Usage
from bridges.splicing import REMOVE, members, with_changes
from bridges.wires import EventReader, Prepared, Said

_FINAL_CODES = {"insufficient_quota", "billing_hard_limit_reached"}
_LONGEST_EVENT = 8 << 20
"""Bytes; what is longer without an end is no event stream, and is passed on unread."""
_SHOWN = 300
"""Characters of a strange reply that its error quotes."""


class Chat:
    """`POST …/v1/chat/completions`, in one piece or streamed."""

    name = "chat"
    path = "chat/completions"

    def prepare(self, body: bytes, model: str, parameters: Mapping[str, Any]) -> Prepared:
        """Force model id and parameters; ask for usage where a stream does not.

        A parameter of None takes the member out (for models that refuse one that a harness sends).
        """
        try:
            found = members(body.decode())
        except ValueError:
            return Prepared(body)
        asked = {member.key: member.value for member in found}
        changes: dict[str, Any] = {}
        edits = []
        if asked.get("model") != model:
            changes["model"] = model
            edits.append("model")
        for name, value in parameters.items():
            if (value is None and name in asked) or (
                value is not None and _differs(asked, name, value)
            ):
                changes[name] = REMOVE if value is None else value
                edits.append(f"parameters.{name}")
        stream = asked.get("stream") is True
        strip = stream and not _wants_usage(asked)
        if strip:
            options = asked.get("stream_options")
            options = options if isinstance(options, dict) else {}
            changes["stream_options"] = {**options, "include_usage": True}
            edits.append("stream_options.include_usage")
        return Prepared(
            body=with_changes(found, changes).encode() if changes else body,
            edits=tuple(edits),
            model=asked["model"] if isinstance(asked.get("model"), str) else None,
            stream=stream,
            strip_usage=strip,
        )

    def authorise(self, key: str) -> dict[str, str]:
        """The key as a bearer."""
        return {"Authorization": f"Bearer {key}"}

    def read(self, status: int, content_type: str, body: bytes) -> Said:
        """Usage, tool calls and what is wrong, of a reply in one piece.

        An error status without usage is taken as nothing used: providers bill no such reply.
        """
        value = _parsed(body)
        document = value if isinstance(value, dict) else {}
        usage = usage_of(document)
        if status >= 300:
            return Said(usage or NOTHING, error=f"status {status}: {_message(document, body)}")
        error = None
        if not body.strip():
            error = f"status {status} with an empty body"
        elif not isinstance(value, dict):
            kind = content_type or "no content type"
            error = f"status {status} with {kind}, not JSON: {_quoted(body)}"
        elif document.get("error"):
            error = f"status {status} with an error inside: {_message(document, body)}"
        elif not document.get("choices"):
            error = f"status {status} without choices: {_quoted(body)}"
        return Said(usage, _count_tool_calls(document), error)

    def reader(self, strip_usage: bool) -> EventReader:
        """A reader of server-sent events."""
        return ChatEvents(strip_usage)

    def is_final(self, body: bytes) -> bool:
        """True for a 429 that means "no credit left"."""
        value = _parsed(body)
        error = value.get("error") if isinstance(value, dict) else None
        return isinstance(error, dict) and bool(
            {error.get("code"), error.get("type")} & _FINAL_CODES
        )

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class ChatEvents:
    """One streamed reply, read while it passes.

    Bytes go on as they come. Only where the usage event has to be taken out again is an event held
    until its end has arrived.
    """

    def __init__(self, strip_usage: bool) -> None:
        self.ended = False
        self._strip = strip_usage
        self._rest = b""
        self._usage: Usage | None = None
        self._tool_calls: set[tuple[Any, Any]] = set()
        self._finished = False
        self._error: str | None = None
        self._events = 0
        self._unreadable = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what is to be passed on now."""
        if self._unreadable:
            return chunk
        passed = []
        *events, self._rest = _split_events(self._rest + chunk)
        for event in events:
            if not self._read(event) and self._strip:
                continue
            passed.append(event)
        if len(self._rest) > _LONGEST_EVENT:
            self._unreadable = True
            self._error = self._error or f"an event longer than {_LONGEST_EVENT} bytes"
            passed.append(self._rest)
            self._rest = b""
        return b"".join(passed) if self._strip else chunk

    def finish(self) -> bytes:
        """The stream is over; an event without its blank line still counts."""
        rest, self._rest = self._rest, b""
        keep = self._read(rest) if rest.strip() else True
        return rest if self._strip and keep else b""

    def said(self) -> Said:
        """What the stream has said so far."""
        complete = self.ended or self._finished
        error = self._error
        if error is None and not complete:
            error = "the stream ended before the reply was finished"
            if not self._events:
                error = "the stream held no event that can be read"
        return Said(self._usage, len(self._tool_calls), error, complete)

    def _read(self, event: bytes) -> bool:
        """Note what an event says; False for a pure usage event."""
        data = b"\n".join(
            line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")
        )
        if not data:
            return True
        if data == b"[DONE]":
            self.ended = True
            return True
        value = _parsed(data)
        if not isinstance(value, dict):
            self._error = self._error or f"an event that is not JSON: {_quoted(data)}"
            return True
        self._events += 1
        if value.get("error"):
            self._error = self._error or f"an error inside the stream: {_message(value, data)}"
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
                self._tool_calls.add((choice.get("index"), call.get("index")))


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
    prompt, completion = _count(told.get("prompt_tokens")), _count(told.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    read = _first(
        told, "prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens"
    )
    write = _first(
        told,
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
    )
    total = _count(told.get("total_tokens")) or 0
    return Usage(
        input=max(prompt - read - write, 0),
        cache_read=read,
        cache_write=write,
        output=max(completion, total - prompt),
        reasoning=_first(told, "completion_tokens_details.reasoning_tokens"),
    )


def _split_events(data: bytes) -> list[bytes]:
    """Events with their blank lines, then what has no end yet."""
    events: list[bytes] = []
    while True:
        ends = [at + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if (at := data.find(mark)) >= 0]
        if not ends:
            return [*events, data]
        events.append(data[: min(ends)])
        data = data[min(ends) :]


def _wants_usage(asked: Mapping[str, Any]) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _differs(asked: Mapping[str, Any], name: str, value: Any) -> bool:
    return name not in asked or asked[name] != value


def _count_tool_calls(document: Mapping[str, Any]) -> int:
    count = 0
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        count += len(calls) if isinstance(calls, list) else 0
    return count


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _message(document: Mapping[str, Any], body: bytes) -> str:
    error = document.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    return told[:_SHOWN] if isinstance(told, str) and told else _quoted(body)


def _quoted(body: bytes) -> str:
    return body[:_SHOWN].decode(errors="backslashreplace")


MOST_TOKENS = 10**12
"""A count past this is no measurement."""


def _count(value: Any) -> int | None:
    """A token count as told; None where none is told.

    Raises:
        ValueError: what is told cannot be a count (negative, not finite, absurdly large), so that the
            whole account is not to be believed.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MOST_TOKENS:  # NaN is refused too: it compares false
        raise ValueError(f"{value} is no count of tokens")
    return int(value)


def _first(told: Mapping[str, Any], *paths: str) -> int:
    """The first of these counts that is given, 0 if none is (ValueError as `_count`)."""
    for path in paths:
        value: Any = told
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        count = _count(value)
        if count is not None:
            return count
    return 0
