"""The answering end of a private line (bridges/channel.py calls), for an asyncio process.

Each call is answered by a task of its own, so a slow one delays no other; answers go out as they
are ready, matched by number. When the calling process is gone, whatever ended it, the line says so
once: that is this process's order to end.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

Verb = Callable[..., Awaitable[Any]]
"""Answers one kind of call: takes its fields by name, returns a JSON value, raises to refuse."""


class Answering(asyncio.Protocol):
    """Answers calls on an inherited socket.

    Args:
        verbs: what can be asked, by name.
        on_end: called once, when the calling end is gone; must not block.
    """

    def __init__(self, verbs: Mapping[str, Verb], on_end: Callable[[], None]) -> None:
        self._verbs = verbs
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()
        self._searched = 0
        self._running: set[asyncio.Task[None]] = set()

    async def listen(self, sock: socket.socket) -> None:
        """Start answering on `sock`, one end of `socket.socketpair()`."""
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def notify(self, event: dict[str, Any]) -> None:
        """Send an event unasked: `{"event": name, …}`. Nothing happens where the line is gone."""
        self._send(event)

    # ------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line is up."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        """Take what came; answer every whole line in it."""
        self._held += data
        while (end := self._held.find(b"\n", self._searched)) >= 0:
            line = bytes(self._held[:end])
            del self._held[: end + 1]
            self._searched = 0
            task = asyncio.get_running_loop().create_task(self._answer(json.loads(line)))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        self._searched = len(self._held)

    def connection_lost(self, exc: Exception | None) -> None:
        """The calling process ended or hung up."""
        self._transport = None
        self._on_end()

    # ------------------------------------------------------------ answers

    async def _answer(self, call: dict[str, Any]) -> None:
        number = call.pop("id", None)
        name = call.pop("do", None)
        try:
            verb = self._verbs.get(name)
            if verb is None:
                known = ", ".join(sorted(self._verbs))
                raise LookupError(f"no such verb: {name!r}; there are {known}")
            answer = {"id": number, "ok": await verb(**call)}
        except Exception as error:
            answer = {"id": number, "error": str(error), "kind": type(error).__name__}
        self._send(answer)

    def _send(self, message: dict[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(json.dumps(message).encode() + b"\n")
