"""Server-sent events, read while they pass.

Bytes go on as they come. Only where an event may have to be taken out again is it held until its end
has arrived.
"""

from __future__ import annotations

from typing import Any

from bridges.metering import Usage
from bridges.wires import Said, Wire
from bridges.wires.reading import message, parsed, quoted

LONGEST_EVENT = 8 << 20
"""Bytes; what is longer without an end is no event stream, and is passed on unread."""
LONGEST_OPENING = 1 << 16
"""Bytes for which the first event of a stream is waited for; an error is shorter."""

_MARKS = (b"\n\n", b"\r\n\r\n", b"\n\r\n")


class Events:
    """One streamed reply; a wire says in `note` what its events mean.

    Attributes:
        ended: True once the event that ends the reply has been read.
    """

    def __init__(self, hold: bool = False) -> None:
        self.ended = False
        self._hold = hold
        self._rest = bytearray()
        self._searched = 0
        self._error: str | None = None
        self._events = 0
        self._unreadable = False

    # ------------------------------------------------------------ what a wire says

    @property
    def complete(self) -> bool:
        """Whether the reply was finished."""
        raise NotImplementedError

    @property
    def usage(self) -> Usage | None:
        """What it used, as far as it told."""
        raise NotImplementedError

    @property
    def tool_calls(self) -> int:
        """How many it asked for."""
        raise NotImplementedError

    def note(self, value: dict[str, Any], data: bytes) -> bool:
        """Take an event's JSON object; False for one that is not to be passed on."""
        raise NotImplementedError

    # ------------------------------------------------------------ EventReader

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what is to be passed on now."""
        if self._unreadable:
            return chunk
        passed = []
        self._rest += chunk
        while (event := self._next()) is not None:
            if self._read(event) or not self._hold:
                passed.append(event)
        if len(self._rest) > LONGEST_EVENT:
            self._unreadable = True
            self.fails(f"an event longer than {LONGEST_EVENT} bytes")
            passed.append(bytes(self._rest))
            self._rest.clear()
        return b"".join(passed) if self._hold else chunk

    def finish(self) -> bytes:
        """The stream is over; an event without its blank line still counts."""
        rest = bytes(self._rest)
        self._rest.clear()
        keep = self._read(rest) if rest.strip() else True
        return rest if self._hold and keep else b""

    def said(self) -> Said:
        """What the stream has said so far."""
        error = self._error
        if error is None and not self.complete:
            error = "the stream ended before the reply was finished"
            if not self._events:
                error = "the stream held no event that can be read"
        return Said(self.usage, self.tool_calls, error, self.complete)

    def fails(self, error: str) -> None:
        """Note what is wrong; the first of it counts."""
        self._error = self._error or error

    def _next(self) -> bytes | None:
        """The next whole event with its blank line, taken out; None where its end has not come."""
        begin = max(self._searched - 3, 0)
        ends = [at + len(mark) for mark in _MARKS if (at := self._rest.find(mark, begin)) >= 0]
        if not ends:
            self._searched = len(self._rest)
            return None
        event = bytes(self._rest[: min(ends)])
        del self._rest[: min(ends)]
        self._searched = 0
        return event

    def _read(self, event: bytes) -> bool:
        data = data_of(event)
        if not data:
            return True
        if data == b"[DONE]":
            self.ended = True
            return True
        value = parsed(data)
        if not isinstance(value, dict):
            self.fails(f"an event that is not JSON: {quoted(data)}")
            return True
        self._events += 1
        if value.get("error"):
            self.fails(f"an error inside the stream: {message(value, data)}")
        return self.note(value, data)


def data_of(event: bytes) -> bytes:
    """The data of an event; empty for a comment."""
    return b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))


class Opening:
    """Holds a stream back until its first event shows whether the upstream means to answer at all.

    A shed request can be repeated only while the client has seen nothing of the reply.

    Attributes:
        shed: the status that the first event stands for, where it asks to come back.
    """

    def __init__(self, wire: Wire, hold: bool) -> None:
        self.shed: int | None = None
        self._wire = wire
        self._held: bytes | None = b"" if hold else None

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk; returns what may be passed on now."""
        if self._held is None:
            return chunk
        self._held += chunk
        ends = [at for mark in _MARKS if (at := self._held.find(mark)) >= 0]
        if ends:
            self.shed = self._wire.shed_by(data_of(self._held[: min(ends)]))
        elif len(self._held) < LONGEST_OPENING:
            return b""
        return self.finish()

    def finish(self) -> bytes:
        """What is held, which is held no longer."""
        held, self._held = self._held, None
        return held or b""
