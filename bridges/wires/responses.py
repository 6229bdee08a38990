"""The OpenAI responses wire.

Its usage counts like chat's: cached (and cache-written) tokens are inside `input_tokens`, reasoning is
inside `output_tokens`. It comes with the whole response, which a stream holds in its last event
(`response.completed`, `response.incomplete`, `response.failed`); nothing needs to be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridges.metering import NOTHING, Usage
from bridges.wires import EventReader, Prepared, Said
from bridges.wires.openai import OpenAI
from bridges.wires.reading import count, first, forced, message, parsed, quoted, strangeness
from bridges.wires.streams import Events

ENDS = ("response.completed", "response.incomplete", "response.failed")
"""Events that end a stream; each holds the whole response."""
CALLS = {
    "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call",
    "computer_call",
}  # fmt: skip
"""Items that the client carries out. Those that the upstream carries out itself are no tool calls."""


class Responses(OpenAI):
    """`POST …/v1/responses`, in one piece or streamed."""

    name = "responses"
    path = "responses"

    def prepare(self, body: bytes, model: str, parameters: Mapping[str, Any]) -> Prepared:
        """Force model id and parameters."""
        request = forced(body, model, parameters)
        return Prepared(body) if request is None else request.prepared(body)

    def read(self, status: int, content_type: str, body: bytes) -> Said:
        """Usage, tool calls and what is wrong, of a response in one piece.

        An error status without usage is taken as nothing used: providers bill no such reply.
        """
        value = parsed(body)
        document = value if isinstance(value, dict) else {}
        usage = usage_of(document)
        if status >= 300:
            return Said(usage or NOTHING, error=f"status {status}: {message(document, body)}")
        error = strangeness(status, content_type, body, value)
        output = document.get("output")
        if error is None and document.get("status") == "failed":
            error = f"status {status} with a response that failed: {quoted(body)}"
        elif error is None and not isinstance(output, list):
            error = f"status {status} without output: {quoted(body)}"
        items = output if isinstance(output, list) else []
        return Said(usage, sum(map(_is_call, items)), error)

    def reader(self, strip_usage: bool) -> EventReader:
        """A reader of server-sent events."""
        return ResponsesEvents()


class ResponsesEvents(Events):
    """One streamed response."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: Usage | None = None
        self._calls: set[str] = set()
        self._finished = False

    @property
    def complete(self) -> bool:
        """The whole response has come, failed or not."""
        return self._finished

    @property
    def usage(self) -> Usage | None:
        """None until the last event; nothing where an error came in place of a response."""
        return self._usage

    @property
    def tool_calls(self) -> int:
        """Each item counts once."""
        return len(self._calls)

    def note(self, value: dict[str, Any], data: bytes) -> bool:
        """Everything is passed on."""
        kind = value.get("type")
        if kind in ("response.output_item.added", "response.output_item.done"):
            if _is_call(value.get("item")):
                self._calls.add(str(value.get("output_index")))
        elif kind == "error":
            self.fails(f"an error inside the stream: {message({'error': value}, data)}")
            self.ended = True
            if self._events == 1:
                self._usage = NOTHING
        elif kind in ENDS:
            self.ended = self._finished = True
            response = value.get("response")
            response = response if isinstance(response, dict) else {}
            self._usage = usage_of(response)
            if kind == "response.failed":
                self.fails(f"the response failed: {message(response, data)}")
        return True


def usage_of(document: Mapping[str, Any]) -> Usage | None:
    """Tokens from a response; None where it holds no usage that can be believed."""
    told = document.get("usage")
    if not isinstance(told, dict):
        return None
    try:
        given, made = count(told.get("input_tokens")), count(told.get("output_tokens"))
        if given is None or made is None:
            return None
        read = first(told, "input_tokens_details.cached_tokens")
        write = first(told, "input_tokens_details.cache_write_tokens")
        total = count(told.get("total_tokens")) or 0
        reasoning = first(told, "output_tokens_details.reasoning_tokens")
    except ValueError:
        return None
    return Usage(
        input=max(given - read - write, 0),
        cache_read=read,
        cache_write=write,
        output=max(made, total - given),
        reasoning=reasoning,
    )


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] in CALLS
