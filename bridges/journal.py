"""The append-only record of one try: what reached the bridges and the model, in one order.

Claim: a row is in the kernel's hands before the request it tells of goes on, so whatever is killed
next, the evidence holds all that happened up to then. All files share one `seq` counter, because
"which calls came before the second model request" is asked of several at once.

    bridge.jsonl          list, call, result       (tools)
    model.jsonl           request, response        (models)
    conversation.jsonl    message, end             (what agent and user say; conversations only)

Every row is one line of valid UTF-8 JSON that any reader takes: `seq` (from 1 over all files),
`turn` (the user's messages so far; 0 outside a conversation), `requestor`, `try`, `at` (Unix
seconds, float), `event`, then the event's own fields. What no UTF-8 can hold (lone surrogates,
stray bytes) is kept as visible text, `\\ud800` or `\\xff`.

A journal that cannot write (a full disk) never fails the request at hand: it says so in `dropped`,
and the attempt is not graded on evidence that has holes.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any, Literal

CONTRACT = 1
"""Version of what agents see of a bridge and readers of its record; part of the attempt key."""

LIMIT_BYTES = 536_870_912
"""Where a record is cut, all files together: an agent in a loop must not fill the disk."""

File = Literal["bridge", "model", "conversation"]
FILES: dict[File, str] = {
    "bridge": "bridge.jsonl",
    "model": "model.jsonl",
    "conversation": "conversation.jsonl",
}

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Journal:
    """The record files of one try. Used by one thread (the host's event loop).

    Args:
        folder: the try's folder; it must exist.
        try_number: 1 for the first try; stands in every row.
        limit_bytes: what the files may hold together; rows beyond it are dropped.

    Attributes:
        turn: the conversation's turn, stamped on rows from now on.
        dropped: True once any row, or part of one, could not be written.

    Raises:
        FileExistsError: the folder already holds a record; a try is recorded once.
        FileNotFoundError: there is no such folder.
    """

    def __init__(self, folder: Path, try_number: int, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = Path(folder)
        self.try_number = try_number
        self.turn = 0
        self.dropped = False
        self._limit_bytes = limit_bytes
        self._seq = 0
        self._fds: dict[File, int] = {}
        self._sizes: dict[File, int] = dict.fromkeys(FILES, 0)
        self._closed = False
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{self.folder}: no such folder")
        for name in FILES.values():
            if (self.folder / name).exists():
                raise FileExistsError(f"{self.folder / name}: this try already has a record")

    @property
    def seq(self) -> int:
        """The number of the newest row; 0 before the first."""
        return self._seq

    def append(self, file: File, event: str, requestor: str = "agent", **fields: Any) -> int:
        """Write one row and hand it to the operating system; never raises.

        Args:
            file: `bridge`, `model` or `conversation`.
            event: the row's kind (docs/evidence.md).
            requestor: `agent`, `user` or `judge`: for whom the call was made.
            fields: the event's own keys; JSON values, or bytes (taken as UTF-8).

        Returns:
            The row's `seq`. A row that could not be written has used its number up: the gap shows.
        """
        self._seq += 1
        row = {
            "seq": self._seq,
            "turn": self.turn,
            "requestor": requestor,
            "try": self.try_number,
            "at": time.time(),
            "event": event,
            **fields,
        }
        try:
            line = _encode(row).encode() + b"\n"
        except (ValueError, TypeError):  # surrogates, bytes, NaN: the rare row pays for the walk
            line = _encode(_representable(row)).encode() + b"\n"
        self._write(file, line)
        return self._seq

    def close(self) -> None:
        """Nothing is written any more; a row that comes later counts as dropped."""
        self._closed = True
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _write(self, file: File, line: bytes) -> None:
        if self._closed or sum(self._sizes.values()) + len(line) > self._limit_bytes:
            self._closed = True  # what follows a hole is not written either
            self.dropped = True
            return
        try:
            fd = self._fds.get(file)
            if fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                fd = self._fds[file] = os.open(self.folder / FILES[file], flags, 0o644)
            written = os.write(fd, line)
            while written < len(line):
                written += os.write(fd, line[written:])
        except OSError:
            self.dropped = True
            self._cut_torn_row(file)
        else:
            self._sizes[file] += len(line)

    def _cut_torn_row(self, file: File) -> None:
        """Take back half a line, so that the rows before and after it stay readable."""
        fd = self._fds.get(file)
        if fd is None:
            return
        try:
            os.ftruncate(fd, self._sizes[file])
        except OSError:
            self._closed = True


def _representable(value: Any) -> Any:
    """The same value in what strict UTF-8 JSON can hold; None for NaN and the infinities."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {str(_representable(key)): _representable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_representable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    return repr(value)
