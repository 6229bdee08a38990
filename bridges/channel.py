"""A private line between two of dyno's own processes: JSON lines over an inherited socket pair.

The parent calls (`Channel.call`), the child answers; the child may also send events unasked. No port,
no file, no password: only who inherited the descriptor can speak, and the end of one process is seen
at once by the other as the end of the stream. That is how a host or a launcher knows that its flow was
killed, whatever killed it.

Wire: one JSON object a line. Call `{"id": n, "do": verb, …}`, answer `{"id": n, "ok": value}` or
`{"id": n, "error": text, "kind": class}`, event `{"event": name, …}`.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class ChannelClosed(Exception):  # noqa: N818 - the condition
    """The other process is gone (killed or crashed); what was asked has no answer."""


class RemoteError(Exception):
    """The other process refused or failed; `kind` is the class name of its exception."""

    def __init__(self, message: str, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class Channel:
    """The calling end: thread-safe, many calls in flight.

    Args:
        sock: this end of `socket.socketpair()`.
        on_event: called in the reader's thread for each event; must not block.
        on_close: called once, when the other end is gone.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._sock = sock
        self._on_event = on_event
        self._on_close = on_close
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._next = 0
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="channel", daemon=True)
        self._reader.start()

    def start(self, do: str, **fields: Any) -> Future[Any]:
        """Send a call and return at once.

        Raises:
            ChannelClosed: the other end is gone (also set on the future if it goes later).
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise ChannelClosed(do)
            self._next += 1
            number = self._next
            self._waiting[number] = future
            future.number = number  # type: ignore[attr-defined]  # how a later call can name this one
            line = json.dumps({"id": number, "do": do, **fields}).encode() + b"\n"
            try:
                self._sock.sendall(line)
            except OSError as error:
                self._waiting.pop(number, None)
                raise ChannelClosed(do) from error
        return future

    def call(self, do: str, *, timeout: float | None = None, **fields: Any) -> Any:
        """Send a call and wait for its answer.

        Raises:
            RemoteError: the other process answered with an error.
            ChannelClosed: it is gone.
            TimeoutError: no answer within `timeout` seconds.
        """
        return self.start(do, **fields).result(timeout)

    @property
    def closed(self) -> bool:
        """True once the other end is gone."""
        return self._closed

    def close(self) -> None:
        """Hang up; the other process takes it as the order to end."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=5)
        self._sock.close()

    def _read(self) -> None:
        try:
            with self._sock.makefile("rb") as lines:
                for line in lines:
                    self._take(json.loads(line))
        except (OSError, ValueError):
            pass
        with self._lock:
            self._closed = True
            lost, self._waiting = list(self._waiting.values()), {}
        for future in lost:
            future.set_exception(ChannelClosed("the other process is gone"))
        if self._on_close:
            self._on_close()

    def _take(self, message: dict[str, Any]) -> None:
        if "event" in message:
            if self._on_event:
                self._on_event(message)
            return
        with self._lock:
            future = self._waiting.pop(message["id"], None)
        if future is None:
            return
        if "error" in message:
            future.set_exception(RemoteError(message["error"], message.get("kind", "Exception")))
        else:
            future.set_result(message.get("ok"))
