"""The Anthropic messages wire.

Its usage counts unlike OpenAI's: `input_tokens` is uncached input only, cache reads and writes stand
beside it. A stream tells the input with its first event and the output, counted from the beginning, with
`message_delta`; later upstreams (and imitators) tell all of it there again. All counts only grow, so the
largest told is the one that holds. Until a `message_delta` has told the output, nothing is measured: the
output that `message_start` tells is a placeholder.

A compaction of the context by the upstream is billed, and stands in `iterations` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridges.metering import NOTHING, Usage
from bridges.wires import EventReader, Prepared, Said
from bridges.wires.reading import count, first, forced, message, parsed, quoted, strangeness
from bridges.wires.streams import Events

_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error",
    403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
_FINAL_KINDS = {"billing_error"}
_SHED = {"overloaded_error": 529, "rate_limit_error": 429}
"""Types of an error that asks to come back, and the status that it stands for."""
_APART = ("compaction", "advisor_message")
"""Kinds of `iterations` whose tokens the top-level usage leaves out."""


class Messages:
    """`POST …/v1/messages`, in one piece or streamed."""

    name = "messages"
    path = "messages"

    def prepare(self, body: bytes, model: str, parameters: Mapping[str, Any]) -> Prepared:
        """Force model id and parameters."""
        request = forced(body, model, parameters)
        return Prepared(body) if request is None else request.prepared(body)

    def authorise(self, key: str) -> dict[str, str]:
        """The key as `x-api-key`; version and beta headers are the client's own."""
        return {"x-api-key": key}

    def read(self, status: int, content_type: str, body: bytes) -> Said:
        """Usage, tool calls and what is wrong, of a message in one piece.

        An error status without usage is taken as nothing used: providers bill no such reply.
        """
        value = parsed(body)
        document = value if isinstance(value, dict) else {}
        usage = usage_of(document.get("usage"))
        if status >= 300:
            return Said(usage or NOTHING, error=f"status {status}: {message(document, body)}")
        error = strangeness(status, content_type, body, value)
        content = document.get("content")
        if error is None and not isinstance(content, list):
            error = f"status {status} without content: {quoted(body)}"
        return Said(usage, sum(map(_is_call, content if isinstance(content, list) else [])), error)

    def reader(self, strip_usage: bool) -> EventReader:
        """A reader of server-sent events."""
        return MessagesEvents()

    def is_final(self, body: bytes) -> bool:
        """True for an account without credit."""
        return _kind(parsed(body)) in _FINAL_KINDS

    def shed_by(self, data: bytes) -> int | None:
        """`event: error` for want of room."""
        return _SHED.get(_kind(parsed(data)))

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """Anthropic's error object."""
        kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message, "code": code}}

    def card(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models/ID` says of the line's model."""
        return {
            "type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z",
        }  # fmt: skip

    def cards(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models` says."""
        return {"data": [self.card(model)], "has_more": False, "first_id": model, "last_id": model}


class MessagesEvents(Events):
    """One streamed message."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, Any] = {}
        self._measured = False
        self._nothing = False
        self._calls: set[str] = set()
        self._finished = False

    @property
    def complete(self) -> bool:
        """`message_stop` has come."""
        return self._finished

    @property
    def usage(self) -> Usage | None:
        """None until the output is told; nothing where an error came in place of a message."""
        if self._nothing:
            return NOTHING
        return usage_of(self._told) if self._measured else None

    @property
    def tool_calls(self) -> int:
        """Each block counts once."""
        return len(self._calls)

    def note(self, value: dict[str, Any], data: bytes) -> bool:
        """Everything is passed on."""
        kind = value.get("type")
        if kind == "message_start":
            started = value.get("message")
            self._take(started.get("usage") if isinstance(started, dict) else None)
        elif kind == "content_block_start":
            if _is_call(value.get("content_block")):
                self._calls.add(str(value.get("index")))
        elif kind == "message_delta":
            told = value.get("usage")
            self._take(told)
            if isinstance(told, dict) and told.get("output_tokens") is not None:
                self._measured = True
        elif kind == "message_stop":
            self.ended = self._finished = True
        elif kind == "error":
            self.ended = True
            self._nothing = self._events == 1
        return True

    def _take(self, told: Any) -> None:
        for key, value in told.items() if isinstance(told, dict) else ():
            before = self._told.get(key)
            if _is_number(value) and _is_number(before):
                self._told[key] = max(before, value)
            elif value is not None:
                self._told[key] = value


def usage_of(told: Any) -> Usage | None:
    """Tokens from a `usage` object; None where it holds no usage that can be believed."""
    if not isinstance(told, dict):
        return None
    try:
        usage = _usage_of(told)
        iterations = told.get("iterations")
        for one in iterations if isinstance(iterations, list) else ():
            apart = _usage_of(one) if isinstance(one, dict) and one.get("type") in _APART else None
            usage = usage + apart if usage and apart else usage
    except ValueError:
        return None
    return usage


def _usage_of(told: Mapping[str, Any]) -> Usage | None:
    given, made = count(told.get("input_tokens")), count(told.get("output_tokens"))
    if given is None or made is None:
        return None
    return Usage(
        input=given,
        cache_read=first(told, "cache_read_input_tokens"),
        cache_write=first(told, "cache_creation_input_tokens"),
        output=made,
        reasoning=first(told, "output_tokens_details.thinking_tokens"),
    )


def _kind(value: Any) -> str:
    """The type of an error; empty for what is none."""
    error = value.get("error") if isinstance(value, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    return kind if isinstance(kind, str) else ""


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_use"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
