"""What a scripted model's wires have in common: how tokens are counted, ids made, streams cut up.

Usage is counted by a rule anybody can repeat, so that a meter can be checked to the token: a quarter of
the characters, rounded up, of the compact JSON of what is asked (instructions, messages, tools), and
of what is answered. A script may have a share of the input told as cache reads and writes, and tokens of
reasoning added to the output; each wire tells them by its own convention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Protocol

from bridges.metering import Usage
from bridges.scripted_behaviours import Asked, Step

PIECE = 24
"""Characters of text or arguments in one event of a stream."""

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Request = Mapping[str, Any]


class ScriptedWire(Protocol):
    """A module that plays scripted steps on one wire."""

    PATH: str
    """Below `/v1/`."""

    def asked_of(self, request: Request) -> Asked:
        """What a behaviour needs of a request."""
        ...

    def read_parts(self, request: Request) -> list[Any]:
        """What of a request a model reads: it is counted as input."""
        ...

    def whole(
        self, request: Request, model: str, identity: str, step: Step, usage: Usage
    ) -> dict[str, Any]:
        """The response in one piece; `identity` makes its ids."""
        ...

    def events(
        self, request: Request, model: str, identity: str, step: Step, usage: Usage
    ) -> Iterator[bytes]:
        """The response as server-sent events."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error's body in the provider's own form."""
        ...


def counted(parts: list[Any], step: Step, settings: Mapping[str, Any]) -> Usage:
    """What one response used, in the meter's terms.

    Args:
        parts: what of the request is read.
        settings: `cache_read` and `cache_write` (shares of the input), `reasoning` (tokens).
    """
    sent = sum(len(compact(part)) for part in parts)
    said = len(step.text or "") + sum(len(c.tool) + len(c.arguments) for c in step.calls)
    given, made = -(-sent // 4), -(-said // 4)
    read, write = (int(given * (settings.get(kind) or 0)) for kind in ("cache_read", "cache_write"))
    reasoning = int(settings.get("reasoning") or 0)
    return Usage(given - read - write, read, write, made + reasoning, reasoning)


def identifier(prefix: str, identity: str, at: int) -> str:
    """An id that a repeated request gets again."""
    return prefix + sha256(f"{identity}/{at}".encode()).hexdigest()[:24]


def event(value: dict[str, Any], name: str | None = None) -> bytes:
    """A server-sent event, named or not."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + compact(value).encode("utf-8", "surrogatepass") + b"\n\n"


def pieces(text: str) -> Iterator[str]:
    """A text as it comes in a stream."""
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def text_of(content: Any) -> str:
    """The text of a message's content, in one piece or in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(p.get("text") or "") for p in parts if isinstance(p, dict))


def written(prompts: list[str], mark: str) -> int:
    """How many lines of the prompts begin so."""
    return sum(prompt.count(f"\n{mark}") + prompt.startswith(mark) for prompt in prompts)


def wants_stream(request: Request) -> bool:
    """Whether the response is to be streamed."""
    return request.get("stream") is True
