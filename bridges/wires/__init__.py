"""The wires a model endpoint speaks, each in a module that knows nothing of attempts or of HTTP.

A wire says what the gateway must understand of its bytes: where it is served, which edits a request
needs, what a reply used, how an error is worded. All else passes through unread. To add a wire,
write a class with these methods and name it in `gateway.WIRES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bridges.metering import Usage


@dataclass(frozen=True)
class Prepared:
    """A request ready to go upstream."""

    body: bytes
    edits: tuple[str, ...] = ()
    """What was changed in the body, as the journal names it."""
    model: str | None = None
    """The model id the client sent."""
    stream: bool = False
    strip_usage: bool = False
    """The client did not ask for the usage event: it is taken out of the stream again."""


@dataclass(frozen=True)
class Said:
    """What a finished reply said."""

    usage: Usage | None = None
    """None: it did not tell."""
    tool_calls: int = 0
    error: str | None = None
    """What is wrong with it, in words; None for a sound reply."""
    complete: bool = True
    """False: it ended before it was finished."""


class EventReader(Protocol):
    """Reads a streamed reply as it passes."""

    ended: bool
    """True once the event that ends the reply has been read."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what is to be passed on now."""
        ...

    def finish(self) -> bytes:
        """The stream is over; returns what was held back."""
        ...

    def said(self) -> Said:
        """What the stream has said so far."""
        ...


class Wire(Protocol):
    """One dialect of a model API."""

    name: str
    path: str
    """Below `/v1/`."""

    def prepare(self, body: bytes, model: str, parameters: Mapping[str, Any]) -> Prepared:
        """The request with the closed list of edits; unchanged where it is not understood."""
        ...

    def authorise(self, key: str) -> dict[str, str]:
        """The headers that carry the key."""
        ...

    def read(self, status: int, content_type: str, body: bytes) -> Said:
        """What a reply that came in one piece said."""
        ...

    def reader(self, strip_usage: bool) -> EventReader:
        """A reader for one streamed reply."""
        ...

    def is_final(self, body: bytes) -> bool:
        """Whether an error that asks to come back later cannot mend by waiting (no credit left)."""
        ...

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """The body of an error reply in this wire's shape."""
        ...

    def shed_by(self, data: bytes) -> int | None:
        """The status (429, 529) that the first event of a stream stands for, where it asks to come back.

        Args:
            data: of that event; nothing has been passed on yet.
        """
        ...

    def card(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models/ID` says of the line's model."""
        ...

    def cards(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models` says."""
        ...
