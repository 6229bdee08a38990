"""A cache of rows: what a worker knew the moment it sealed a try, so that loading need not read it again.

    shards/<host>-<pid>-<start>/{tries,tool_calls,model_calls,messages}.ndjson

One folder a worker, so that nobody shares a file. Every row carries the hash of its bundle. A loader
believes a row only if the bundle on disk has that very hash now, and only if all the rows are there; the
bundle is read for all else. So shards may be torn, stale, doubled or deleted, and nothing is lost but time.

The `tries` row is written last: whoever sees it finds the rest.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

from warehouse.evidence import Bundle, CorruptBundle
from warehouse.rows import TABLES, Rows, ndjson, rows_of


class ShardWriter:
    """Appends the rows of sealed tries to this process's own shard. Safe to use from many threads.

    Args:
        root: the folder of all shards (`DYNO_HOME/shards`); made when the first row comes.
    """

    def __init__(self, root: Path) -> None:
        host = re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname()) or "host"
        self.folder = root / f"{host}-{os.getpid()}-{time.time_ns()}"
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._works = True

    def append(self, bundle: Bundle) -> bool:
        """Keep the rows of a try that has just been sealed.

        Returns:
            False if they were not kept (a full disk, a fork of the process that made this writer, a bundle
            that makes no sense): the loader will look at the bundle. Never raises for any of these, and
            leaves a shard alone that failed once.
        """
        try:
            rows = rows_of(bundle)
        except CorruptBundle:
            return False
        with self._lock:
            if not self._works or os.getpid() != self._pid:
                return False
            try:
                self._write(rows)
            except OSError:
                self._works = False
        return self._works

    def _write(self, rows: Rows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for table in reversed(TABLES):
            lines = counted(rows) if table == "tries" else rows[table]
            if lines:
                with (self.folder / f"{table}.ndjson").open("ab", buffering=0) as file:
                    data = ndjson(lines)
                    if file.write(data) != len(data):
                        raise OSError("the shard took only a part of the rows")


def counted(rows: Rows) -> list[dict[str, Any]]:
    """The `tries` row with how many rows the other files must hold for it."""
    counts = {f"{table[:-1]}_rows": len(rows[table]) for table in TABLES if table != "tries"}
    return [{**row, **counts} for row in rows["tries"]]


def shard_files(root: Path) -> dict[str, int]:
    """Every shard's name and the bytes of its `tries.ndjson`, in order; {} where there is none."""
    found = {}
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        try:
            found[folder.name] = (folder / "tries.ndjson").stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            continue
    return found
