"""The models that need no model: a process of its own that speaks like a provider.

The gateway forwards to it over HTTP as to any upstream, so all that a real model goes through is
gone through offline too. It holds the gold of the attempts under way, which no other path leads to:
each attempt's model stands at a secret address, `/s/<secret>/v1/…`, that only the gateway knows.

    python -m bridges.scripted --control-fd N

Asked over the control line (bridges/channel.py): `open {token, script}`, `close {token}` → the
ledger, this model's own count of what it was asked and answered. It ends when that line does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import uvicorn
import uvloop

from bridges import scripted_chat, scripted_messages, scripted_responses
from bridges.answering import Answering
from bridges.metering import NOTHING, Usage
from bridges.scripted_behaviours import Asked, Script, Step, fault, next_step, planned_calls
from bridges.scripted_parts import next_of_part
from bridges.scripted_playbook import Playbook
from bridges.scripted_talk import next_in_conversation
from bridges.scripted_wire import ScriptedWire, counted, wants_stream

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

WIRES: dict[str, ScriptedWire] = {
    f"v1/{wire.PATH}": wire for wire in (scripted_chat, scripted_responses, scripted_messages)
}

_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Player:
    """One attempt's scripted model."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.script = Script.of(script)
        self.model = str(script.get("model") or self.script.behaviour)
        self.requests = 0
        self.used = NOTHING
        is_playbook = self.script.behaviour == "playbook"
        self._playbook = Playbook(self.script.settings) if is_playbook else None
        self._calls = planned_calls(self.script)

    def step(self, asked: Asked) -> Step:
        """What to answer to the next request."""
        self.requests += 1
        broken = fault(self.script, self.requests)
        if broken:
            return broken
        if self._playbook:
            return self._playbook.next(asked)
        if self.script.behaviour == "parts":
            return next_of_part(self.script, asked)
        if self.script.conversation is not None:
            return next_in_conversation(self.script, self._calls, asked)
        return next_step(self.script, self._calls, asked)

    def count(self, usage: Usage) -> None:
        """Enter a response's usage in the ledger."""
        self.used = self.used + usage

    @property
    def ledger(self) -> dict[str, int]:
        """This model's own count: `requests`, and tokens by kind."""
        return {"requests": self.requests, **self.used.as_dict()}


class ScriptedModels:
    """An ASGI application: the scripted models of all open attempts."""

    def __init__(self) -> None:
        self._players: dict[str, Player] = {}

    async def open(self, token: str, script: dict[str, Any]) -> None:
        """Register an attempt's script under a secret (ValueError: a mistake in it)."""
        self._players[token] = Player(script)

    async def close(self, token: str) -> dict[str, int]:
        """Forget an attempt; returns its ledger."""
        return self._players.pop(token).ledger

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        _, _, token, path = [*scope["path"].split("/", 3), "", "", ""][:4]
        player = self._players.get(token)
        wire = WIRES.get(path)
        if player is None or wire is None or scope["method"] != "POST":
            return await _send(send, 404, _JSON, b'{"error":{"message":"no such scripted model"}}')
        try:
            request = json.loads(await _body(receive))
            asked = wire.asked_of(request)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            message = wire.error(400, f"the request cannot be read: {error}")
            return await _send(send, 400, _JSON, json.dumps(message).encode())
        step = player.step(asked)
        pause = step.delay_seconds + player.script.settings.get("delay_seconds", 0)
        if pause:
            await asyncio.sleep(pause)
        if step.hang:
            return await _until_gone(receive)
        if step.body is not None or step.status != 200:
            return await _send_raw(send, wire, step)
        return await _respond(send, wire, player, request, asked, step)


async def _respond(
    send: Send,
    wire: ScriptedWire,
    player: Player,
    request: dict[str, Any],
    asked: Asked,
    step: Step,
) -> None:
    usage = counted(wire.read_parts(request), step, player.script.settings)
    identity = f"{player.script.seed}/{asked.made}/{asked.assistants}"
    player.count(usage)
    if not wants_stream(request):
        body = json.dumps(wire.whole(request, player.model, identity, step, usage)).encode()
        return await _send(
            send, 200, _JSON | step.headers, body, cut=step.cut_stream_after is not None
        )
    await _start(send, 200, _EVENTS | step.headers)
    stream = wire.events(request, player.model, identity, step, usage)
    for number, event in enumerate(stream):
        if number == step.cut_stream_after:
            return None  # without an end: the server drops the connection
        if step.chunk_delay_seconds:
            await asyncio.sleep(step.chunk_delay_seconds)
        await send({"type": "http.response.body", "body": event, "more_body": True})
    return await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_raw(send: Send, wire: ScriptedWire, step: Step) -> None:
    body = step.body
    if body is None:
        body = wire.error(step.status, step.text or f"status {step.status}")
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    await _send(
        send, step.status, _JSON | step.headers, data, cut=step.cut_stream_after is not None
    )


async def _send(
    send: Send, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False
) -> None:
    await _start(send, status, headers | {"content-length": str(len(body))})
    if cut:
        body = body[: len(body) // 2]
    await send({"type": "http.response.body", "body": body, "more_body": cut})


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: this process ends with its control line."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(control: socket.socket) -> None:
    """Be the scripted models on this control line, until the process ends."""
    models = ScriptedModels()
    # the protocol is named because asyncio turns Nagle's delay off only where it sees it
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    config = uvicorn.Config(
        models,
        http="httptools",
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=300,
    )
    serving = asyncio.create_task(_Server(config).serve(sockets=[listening]))
    answering = Answering({"open": models.open, "close": models.close}, lambda: os._exit(0))
    await answering.listen(control)
    answering.notify({"event": "ready", "port": listening.getsockname()[1]})
    await serving


def main() -> None:
    """`python -m bridges.scripted --control-fd N`."""
    control = socket.socket(fileno=int(sys.argv[sys.argv.index("--control-fd") + 1]))
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)  # a connection dropped by script is no news
    uvloop.run(serve(control))


if __name__ == "__main__":
    main()
