"""Environment code in processes that can be killed, seen from the host.

Claim: whatever a tool does (spin, hang, crash, return megabytes), it does in a process of its own
attempt. The host waits for it without blocking, at most `tool_seconds`, and then has the whole
process group killed; nobody else's call is slower for it. A killed worker's successor is forked for
the next call, as blank as the first was: who keeps state in a worker (`tau2.py`) looks whether it is
still `alive`, and brings its successor to where it was.

One `Zygote` a host for the code of suites, and one for each thing that is loaded before the first
fork (each started when first needed, again if it dies); one `Worker` an environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

from bridges.zygote import FRAME
from suites.home import PROJECT

REPLY_BYTES = 4_194_304
"""A longer reply is no reply: results are cut in the worker long before."""
BURIAL_SECONDS = 5.0
"""How long a killed worker is waited for; SIGKILL takes milliseconds."""
LOAD_SECONDS = 60.0
"""How long a zygote may load before its first fork; τ²'s largest domain takes half a second."""


class ZygoteFailed(Exception):  # noqa: N818 - the condition
    """What was to be loaded before the first fork could not be; the message says why."""


class WorkerTimeout(Exception):  # noqa: N818 - the condition
    """The call took longer than it may; its worker was killed."""


class WorkerCrashed(Exception):  # noqa: N818 - the condition
    """The worker ended without an answer; the message says how."""


class _Process:
    """One worker process: its number, our end of its line, and its end."""

    def __init__(self, number: int, line: socket.socket) -> None:
        self.number = number
        self.line = line
        self.exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()


class Zygote:
    """The process that forks workers (`bridges/zygote.py`), as the host keeps it.

    Args:
        preload: what it loads before its first fork: a module, and the JSON value for its
            `preload`; None: nothing.
    """

    def __init__(self, preload: tuple[str, Any] | None = None) -> None:
        self._preload = [preload[0], json.dumps(preload[1])] if preload else []
        self._loaded: asyncio.Future[str | None] | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._held = b""
        self._next = 0
        self._living: dict[int, _Process] = {}

    @property
    def living(self) -> int:
        """How many workers there are."""
        return len(self._living)

    def start(self) -> None:
        """Have it started, so that it loads while other things happen. Does not block.

        Raises:
            OSError: there can be no further process.
        """
        if self._line is None:
            self._start()

    async def ready(self) -> None:
        """Wait until it has loaded what it has to, starting it where it does not run.

        Raises:
            ZygoteFailed: it could not; the next call tries again.
        """
        self.start()
        assert self._loaded is not None
        done, _ = await asyncio.wait([self._loaded], timeout=LOAD_SECONDS)
        if not done:
            assert self._popen is not None
            self._popen.kill()  # its line ends with it; waiting here would stop everybody
            raise ZygoteFailed(f"it had not loaded after {LOAD_SECONDS:g} seconds")
        reason = self._loaded.result()
        if reason is not None:
            raise ZygoteFailed(reason)

    def fork(self) -> _Process:
        """Have a worker forked; it is ready once it answers. Does not block.

        Raises:
            OSError: the zygote cannot be started, or takes no orders.
        """
        self.start()
        assert self._line is not None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._next += 1
        process = _Process(self._next, ours)
        with theirs:
            order = json.dumps({"fork": process.number}).encode() + b"\n"
            try:
                socket.send_fds(self._line, [order], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        self._living[process.number] = process
        return process

    def kill(self, process: _Process) -> None:
        """Have a worker and all it started killed. Does not block; `process.exited` tells when."""
        process.line.close()
        if self._line is None or process.number not in self._living:
            return
        try:
            self._line.send(json.dumps({"kill": process.number}).encode() + b"\n")
        except OSError:
            self._lost()

    def close(self) -> None:
        """Let the zygote end, and with it every worker."""
        self._lost()
        if self._popen is not None:
            try:
                self._popen.wait(BURIAL_SECONDS)
            except subprocess.TimeoutExpired:
                self._popen.kill()

    def _start(self) -> None:
        if self._popen is not None:
            self._popen.poll()  # reap the one that died
        ours, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "bridges.zygote", str(theirs.fileno()), *self._preload],
                cwd=PROJECT,
                env=_clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        ours.setblocking(False)
        self._line = ours
        self._held = b""
        self._loaded = asyncio.get_running_loop().create_future()
        if not self._preload:
            self._loaded.set_result(None)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._line is not None
        try:
            data = self._line.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if "exited" not in event:
                self._settle(event.get("failed"))
                continue
            process = self._living.pop(event["exited"], None)
            if process is not None and not process.exited.done():
                process.exited.set_result(event["status"])

    def _settle(self, reason: str | None) -> None:
        """It has loaded (None), or never will."""
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(reason)

    def _lost(self) -> None:
        """The zygote is gone, and the kernel kills its children."""
        self._settle("its process ended while it loaded")
        if self._line is not None:
            asyncio.get_running_loop().remove_reader(self._line.fileno())
            self._line.close()
            self._line = None
        orphans, self._living = self._living, {}
        for process in orphans.values():
            if not process.exited.done():
                process.exited.set_result(None)


class Worker:
    """The worker of one environment: a process when it is needed, another when that one failed.

    One request at a time; the others wait for their turn, and their clocks do not run meanwhile.
    """

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._process: _Process | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        """True while there is a process, as far as is known."""
        return self._process is not None and not self._process.exited.done()

    def warm(self) -> None:
        """Have the process forked now, so that the first call finds it ready. Does not block."""
        if not self.alive:
            self._process = self._zygote.fork()

    async def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request (`bridges/zygote.py` has them) and wait for its reply.

        Raises:
            WorkerTimeout: no reply within `seconds`; the worker is being killed.
            WorkerCrashed: it ended, or answered what is no reply.
        """
        async with self._turn:
            if self._closed:
                raise WorkerCrashed("the environment is closed")
            try:
                async with asyncio.timeout(seconds):
                    return await self._exchange(json.dumps(request).encode())
            except TimeoutError:
                self._discard()
                raise WorkerTimeout(f"no answer within {seconds:g} s") from None
            except (OSError, ValueError) as error:
                raise WorkerCrashed(await self._how_it_ended(error)) from None
            except BaseException:  # the caller went away; the worker may be at it for long
                self._discard()
                raise

    async def close(self) -> None:
        """Kill the process, if there is one, and wait until it is gone."""
        self._closed = True
        process = self._process
        self._discard()
        if process is not None:
            await asyncio.wait([process.exited], timeout=BURIAL_SECONDS)

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        self.warm()
        assert self._process is not None
        loop, line = asyncio.get_running_loop(), self._process.line
        await loop.sock_sendall(line, FRAME.pack(len(request)) + request)
        (length,) = FRAME.unpack(await _receive(line, FRAME.size))
        if length > REPLY_BYTES:
            raise ValueError(f"a reply of {length} bytes")
        reply = json.loads(await _receive(line, length))
        if not isinstance(reply, dict):
            raise ValueError("a reply that is no object")  # noqa: TRY004 - what the line carried
        return reply

    async def _how_it_ended(self, error: Exception) -> str:
        process = self._process
        self._discard()
        if process is None:
            return str(error)
        await asyncio.wait([process.exited], timeout=BURIAL_SECONDS)
        status = process.exited.result() if process.exited.done() else None
        if isinstance(error, ValueError):
            return f"its process gave {error}"
        if status is None:
            return "its process is gone"
        if status < 0:
            return f"its process was killed by signal {-status}"
        return f"its process ended with exit code {status}"

    def _discard(self) -> None:
        if self._process is not None:
            self._zygote.kill(self._process)
            self._process = None


async def _receive(line: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes (ConnectionError at the end of the line)."""
    loop = asyncio.get_running_loop()
    parts = bytearray()
    while len(parts) < size:
        part = await loop.sock_recv(line, min(size - len(parts), 262_144))
        if not part:
            raise ConnectionError("the line ended")
        parts += part
    return bytes(parts)


def _clean_environment() -> dict[str, str]:
    """All that environment code may know of where it runs: no key, no token, no HOME."""
    kept = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1,localhost"}
