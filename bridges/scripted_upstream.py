"""The gateway's hold on the process of the scripted models (bridges/scripted.py).

It is started with the first attempt that needs it, in an environment without keys, and ends when
this process does. The path it serves an attempt at has a secret of its own: a harness that knew
only its own token cannot go round the gateway and its meter.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

from bridges.channel import Channel, ChannelClosed, RemoteError
from suites.home import PROJECT

START_SECONDS = 60.0
LEDGER_SECONDS = 2.0
_INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "SYSTEMROOT")


class _Process:
    """One running process of scripted models."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.port: Future[int] = Future()
        command = [sys.executable, "-m", "bridges.scripted", "--control-fd", str(theirs.fileno())]
        environment = {k: os.environ[k] for k in _INHERITED if k in os.environ}
        with theirs:
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal is for the flow to handle
            )
        self.channel = Channel(ours, self._event, self._gone)

    def _event(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            self.port.set_result(event["port"])

    def _gone(self) -> None:
        if not self.port.done():
            self.port.set_exception(RuntimeError("the scripted models' process did not start"))


class ScriptedUpstream:
    """Starts the scripted models on demand and gives each attempt its script there."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._process: _Process | None = None
        self._secrets: dict[str, str] = {}

    async def open(self, token: str, script: dict[str, Any]) -> str:
        """Register an attempt's script; returns the base URL (`…/v1`) of its model.

        Raises:
            RemoteError: the script has a mistake, said in its message.
            ChannelClosed, RuntimeError, TimeoutError: the process is not there.
        """
        process, port = await self._ready()
        secret = secrets.token_urlsafe(16)
        await asyncio.wrap_future(process.channel.start("open", token=secret, script=script))
        self._secrets[token] = secret
        return f"http://127.0.0.1:{port}/s/{secret}/v1"

    async def forget(self, token: str) -> dict[str, int] | None:
        """Drop an attempt's script.

        Returns:
            The ledger, this model's own count; None for an attempt without a script, and where the
            process is gone.
        """
        secret = self._secrets.pop(token, None)
        if secret is None or self._process is None:
            return None
        try:
            answer = asyncio.wrap_future(self._process.channel.start("close", token=secret))
            ledger: dict[str, int] = await asyncio.wait_for(asyncio.shield(answer), LEDGER_SECONDS)
        except (ChannelClosed, RemoteError, TimeoutError):
            return None
        return ledger

    def stop(self) -> None:
        """End the process; blocks until it is gone."""
        if self._process:
            self._process.channel.close()
            try:
                self._process.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.process.kill()
                self._process.process.wait()
            self._process = None

    async def _ready(self) -> tuple[_Process, int]:
        async with self._starting:
            if self._process is None or self._process.channel.closed:
                if self._process:
                    self._process.process.wait()
                self._process = _Process()
            process = self._process
        # shielded: others may wait for the same start
        ready = asyncio.shield(asyncio.wrap_future(process.port))
        return process, await asyncio.wait_for(ready, START_SECONDS)
