"""One lease an attempt key, so that two sweeps on one evidence root do not run the same attempt twice.

A lease is a file made by exclusive create, holding its owner and its last sign of life. It is broken
when its owner is known to be dead (same host, same boot, no such process) or has not renewed it for
`TTL` seconds (another host). Breaking is a rename of the old file to a name of one's own, which only
one breaker can win; so a `kill -9` costs the next sweep nothing, and no lock outlives its owner.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

TTL = 90.0
"""Seconds without a sign of life after which a lease of another host is broken."""
RENEW_EVERY = 20.0


def boot_id() -> str:
    """What tells one boot of this machine from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def process_identity(pid: int) -> str | None:
    """`pid:start time`, which a later process of the same number does not share; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        try:  # no /proc here (macOS): the number alone must do
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return f"{pid}:"
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] == "Z" else f"{pid}:{fields[19]}"


def _owner_in(text: str) -> dict[str, Any]:
    """What a lease file says; {} while it is being written, or torn."""
    try:
        owner = json.loads(text or "{}")
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


class Leases:
    """The leases this process holds; a thread renews them while there are any.

    Args:
        folder: where the lease files lie, shared by all workers of one evidence root.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._owner = {
            "host": socket.gethostname(),
            "boot": boot_id(),
            "process": process_identity(os.getpid()),
            "pid": os.getpid(),
        }
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None

    def take(self, key: str) -> bool:
        """Take the lease of `key`; False if a living owner holds it."""
        path = self._folder / key
        body = json.dumps({**self._owner, "taken_at": time.time()})
        for _ in range(3):
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                if not self._break_if_dead(path):
                    return False
                continue
            with os.fdopen(descriptor, "w") as file:
                file.write(body)
            with self._lock:
                self._held.add(key)
                self._keep_renewing()
            return True
        return False

    def release(self, key: str) -> None:
        """Give it back."""
        with self._lock:
            self._held.discard(key)
        (self._folder / key).unlink(missing_ok=True)

    def owner(self, key: str) -> dict[str, Any] | None:
        """Who holds it now, or None; {} while it is being written."""
        try:
            return _owner_in((self._folder / key).read_text())
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Release all and stop renewing."""
        self._stop.set()
        for key in list(self._held):
            self.release(key)

    # ------------------------------------------------------------ staleness

    def _break_if_dead(self, path: Path) -> bool:
        """True if the lease is gone now, by us or by anybody.

        Breakers of one host take turns at a lock (the kernel frees it when its holder dies), and each
        looks anew when it is its turn: the one before may have taken the lease. Between hosts, where
        the lock may not reach, what was renamed away is compared with what was looked at, by content,
        since a new file may well get the old one's inode number; a living lease is put back.
        """
        with (self._folder / ".breaking").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                seen, age = path.read_text(), time.time() - path.stat().st_mtime
            except FileNotFoundError:
                return True
            if not self._is_dead(_owner_in(seen), age):
                return False
            grave = path.with_name(f".broken-{path.name}-{os.getpid()}-{threading.get_ident()}")
            try:
                path.rename(grave)
            except FileNotFoundError:
                return True
            broken = grave.read_text() == seen
            if not broken:
                try:
                    os.link(grave, path)
                except FileExistsError:
                    pass
            grave.unlink()
            return broken

    def _is_dead(self, owner: dict[str, Any], age: float) -> bool:
        if owner.get("host") == self._owner["host"]:
            if not owner.get("process"):
                return age > 5  # being written, or torn by a kill in that moment
            if owner.get("boot") != self._owner["boot"]:
                return True
            return process_identity(owner["pid"]) != owner["process"]
        if not owner:
            return age > 5
        return age > TTL

    def _keep_renewing(self) -> None:
        if self._renewer is None or not self._renewer.is_alive():
            self._renewer = threading.Thread(target=self._renew, name="leases", daemon=True)
            self._renewer.start()

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_EVERY):
            with self._lock:
                held = list(self._held)
            for key in held:
                try:
                    os.utime(self._folder / key)
                except FileNotFoundError:
                    pass
