"""The flow's two servants, each a process of its own: the host (bridges, gateway) and the launchers.

Both are started on first use, shared by all attempts of a worker, and replaced when they die: an
attempt that was in flight then ends in an infrastructure error and is tried again, by the policy table.
Both end by themselves when this process does, because their socket ends (bridges/channel.py).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from bridges.channel import Channel, ChannelClosed
from suites.home import PROJECT

Event = dict[str, Any]

SAFE_ENVIRONMENT = ("PATH", "LANG", "TZ")
"""What a launcher inherits; a harness gets even less (see `environment.py`)."""


class Servant:
    """One child process on a socket pair, with its events handed on.

    Args:
        argv: the command; `{fd}` in an argument becomes the number of the inherited descriptor.
        env: its whole environment.
        log: file that its stderr is appended to.
        on_event: called for each event, in the reader's thread.
        on_gone: called once, when it has died or been stopped.
    """

    def __init__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        log: Path,
        on_event: Callable[[Event], None] | None = None,
        on_gone: Callable[[], None] = lambda: None,
    ) -> None:
        ours, theirs = socket.socketpair()
        self._ready: Future[Event] = Future()
        self._on_event = on_event
        self._on_gone = on_gone
        log.parent.mkdir(parents=True, exist_ok=True)
        with theirs, log.open("ab") as stderr:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [part.replace("{fd}", str(number)) for part in argv],
                pass_fds=[number],
                env=dict(env),
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C at a terminal is ours to handle, not theirs
            )
        self.log = log
        self.channel = Channel(ours, self._take, self._gone)

    def wait_ready(self, timeout: float = 60) -> Event:
        """The `ready` event. ChannelClosed if it died first."""
        return self._ready.result(timeout)

    @property
    def alive(self) -> bool:
        """False once the process has hung up."""
        return not self.channel.closed

    def stop(self) -> None:
        """Hang up and wait for its end; killed if it takes over ten seconds."""
        self.channel.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _take(self, event: Event) -> None:
        if event["event"] == "ready":
            if not self._ready.done():
                self._ready.set_result(event)
        elif self._on_event:
            self._on_event(event)

    def _gone(self) -> None:
        if not self._ready.done():
            tail = self.log.read_bytes()[-400:].decode("utf-8", "replace").strip()
            self._ready.set_exception(ChannelClosed(f"it ended at once; {self.log} says: {tail}"))
        self._on_gone()


class Processes:
    """The host and the launchers of this worker; thread-safe, lazily started, replaced when dead.

    Args:
        logs: folder for their stderr.
        host_env: environment of the host; it must hold the API keys, and nothing else needs them.
    """

    def __init__(self, logs: Path, host_env: Mapping[str, str] | None = None) -> None:
        self._logs = logs
        self._host_env = dict(os.environ if host_env is None else host_env)
        self._lock = threading.Lock()
        self._host: Servant | None = None
        self._launchers: dict[tuple[str, ...], Servant] = {}
        self._watchers: dict[tuple[str, int], Callable[[Event], None]] = {}
        self._closed = False

    # ------------------------------------------------------------ host

    def host(self) -> Channel:
        """The host's line. ChannelClosed if it cannot be started."""
        host = self._living_host()
        host.wait_ready()
        return host.channel

    def prestart(self, warm: Iterable[tuple[str, tuple[str, ...]]] = ()) -> None:
        """Begin to start the host and the launchers of these (python, imports), waiting for none."""
        self._living_host()
        self._living_launcher(sys.executable)
        for python, imports in warm:
            self._living_launcher(python, *imports)

    def _living_host(self) -> Servant:
        with self._lock:
            self._refuse_if_closed()
            if self._host is None or not self._host.alive:
                self._host = Servant(
                    [sys.executable, "-m", "bridges.host", "--control-fd", "{fd}"],
                    {**self._host_env, "PYTHONPATH": str(PROJECT)},
                    self._logs / "host.log",
                    self._host_event,
                    self._host_gone,
                )
            return self._host

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ChannelClosed("this worker is stopping")

    def watch(self, key: str, number: int, on_event: Callable[[Event], None]) -> None:
        """Hand the host's events about one try to `on_event` until `unwatch`."""
        self._watchers[key, number] = on_event

    def unwatch(self, key: str, number: int) -> None:
        """Stop handing events on."""
        self._watchers.pop((key, number), None)

    def _host_event(self, event: Event) -> None:
        watcher = self._watchers.get((event.get("attempt", ""), event.get("try", 0)))
        if watcher:
            watcher(event)

    def _host_gone(self) -> None:
        """A harness without its bridge would run to its deadline for nothing: tell each try now."""
        for watcher in list(self._watchers.values()):
            watcher({"event": "host_lost"})

    # ------------------------------------------------------------ launchers

    def launcher(self, python: str | None = None, imports: tuple[str, ...] = ()) -> Channel:
        """The line of the launcher that has `imports` loaded in `python` (none: the bare one)."""
        servant = self._living_launcher(python or sys.executable, *imports)
        servant.wait_ready()
        return servant.channel

    def _living_launcher(self, *wanted: str) -> Servant:
        with self._lock:
            self._refuse_if_closed()
            servant = self._launchers.get(wanted)
            if servant is None or not servant.alive:
                servant = self._launchers[wanted] = self._start_launcher(*wanted)
            return servant

    def _start_launcher(self, python: str, *imports: str) -> Servant:
        # Isolated mode: neither the user's site packages nor the working directory can change what
        # runs between us and a harness. Without imports, site-packages is not even looked at.
        flags = ["-I"] if imports else ["-I", "-S"]
        script = str(Path(__file__).with_name("launcher.py"))
        env = {name: os.environ[name] for name in SAFE_ENVIRONMENT if name in os.environ}
        return Servant([python, *flags, script, "{fd}", *imports], env, self._logs / "launcher.log")

    def stop_launchers(self) -> None:
        """End the launchers, and so every harness; the next launch starts new ones."""
        with self._lock:
            launchers, self._launchers = list(self._launchers.values()), {}
        for launcher in launchers:
            launcher.stop()

    def pids(self) -> dict[str, int]:
        """Process ids by role, of those that run."""
        with self._lock:
            found = {f"launcher {i}": s for i, s in enumerate(self._launchers.values())}
            if self._host:
                found["host"] = self._host
            return {name: s.process.pid for name, s in found.items() if s.alive}

    def stop(self) -> None:
        """End them all; launchers first, so that no harness outlives its bridge."""
        with self._lock:
            self._closed = True
            host, self._host = self._host, None
        self.stop_launchers()
        if host:
            host.stop()
