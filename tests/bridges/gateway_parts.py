"""Real parts for the gateway's tests: an HTTP server in a thread, an upstream that can be strange."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from bridges.gateway import Gateway
from bridges.journal import Journal


class Served:
    """An ASGI application on a loopback port, in an event loop of its own thread."""

    def __init__(self, app: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(2048)  # so that nobody who asks before the thread serves is turned away
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._server.serve(sockets=[self._socket]))


@dataclass
class Reply:
    """What the strange upstream does with a request: chunks, each sent apart, then an end or none."""

    chunks: list[bytes] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    cut: bool = False
    pause: float = 0.0
    """Before each chunk but the first."""
    gate: threading.Semaphore | None = None
    """Each chunk but the first waits for it."""

    @classmethod
    def json(cls, value: Any, status: int = 200, **headers: str) -> Reply:
        return cls(
            [json.dumps(value).encode()],
            status,
            {
                "content-type": "application/json",
                **{k.replace("_", "-"): v for k, v in headers.items()},
            },
        )

    @classmethod
    def events(cls, *events: Any, done: bool = True, cut: bool = False) -> Reply:
        chunks = [f"data: {json.dumps(e)}\n\n".encode() for e in events]
        if done:
            chunks.append(b"data: [DONE]\n\n")
        return cls(chunks, headers={"content-type": "text/event-stream"}, cut=cut)


class Upstream:
    """Answers with `replies` in turn, the last one again and again; keeps what it was sent."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.served = Served(self)
        self.url = f"http://127.0.0.1:{self.served.port}/v1"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        self.paths.append(scope["path"] + "?" + scope["query_string"].decode())
        self.headers.append({k.decode().lower(): v.decode() for k, v in scope["headers"]})
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            await self._send(send, reply)
        finally:
            self.in_flight -= 1

    def stop(self) -> None:
        self.served.stop()

    async def _send(self, send: Any, reply: Reply) -> None:
        headers = [(k.encode(), v.encode()) for k, v in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        for number, chunk in enumerate(reply.chunks):
            if number and reply.pause:
                await asyncio.sleep(reply.pause)
            if number and reply.gate:
                await asyncio.to_thread(reply.gate.acquire, timeout=30)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if not reply.cut:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass
class Line:
    """An open line of the gateway under test."""

    url: str
    folder: Path
    close: Callable[[], dict[str, Any]]

    def rows(self, event: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "model.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
        return [row for row in rows if event in (None, row["event"])]


class Mounted:
    """A gateway mounted in a server, as the host mounts it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.gateway = Gateway(self.events.append, **settings)
        self.served = Served(self.gateway)
        self._folder = folder
        self._count = 0
        self.served.run(self.gateway.start())

    def open(self, model: dict[str, Any], limits: dict[str, Any] | None = None) -> Line:
        self._count += 1
        token, folder = f"token-{self._count}", self._folder / f"try-{self._count}"
        folder.mkdir(parents=True)
        budget_error = {"status": 402, "body": {"error": {"code": "budget_exceeded"}}}
        journal = Journal(folder, 1)
        self.served.run(
            self.gateway.open(
                token, journal, model, limits or {}, budget_error, f"key-{self._count}", 1
            )
        )

        def close() -> dict[str, Any]:
            summary = self.served.run(self.gateway.close(token))
            journal.close()
            return summary

        return Line(f"http://127.0.0.1:{self.served.port}/m/{token}/v1", folder, close)

    def stop(self) -> None:
        self.served.run(self.gateway.stop())
        self.served.stop()


@contextmanager
def mounted(folder: Path, **settings: Any) -> Iterator[Mounted]:
    gateway = Mounted(folder, **settings)
    try:
        yield gateway
    finally:
        gateway.stop()


PRICES = {"date": "2026-11-01", "input": 1.0, "cache_read": 0.1, "cache_write": 1.25, "output": 4.0}


def model(endpoint: str, **fields: Any) -> dict[str, Any]:
    """A model as the host hands it to the gateway."""
    return {
        "endpoint": endpoint, "model": "model-1", "name": "vendor/model-1", "wire": "chat",
        "api_key_env": None, "prices": PRICES, "parameters": {}, "rate_limits": {}, "scripted": None,
        **fields,
    }  # fmt: skip


def answer(
    text: str = "Hello.", usage: dict[str, Any] | None = None, **message: Any
) -> dict[str, Any]:
    """A chat completion."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": "stop",
    }
    document: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [choice],
    }
    return document | ({"usage": usage} if usage else {})


USAGE = {
    "prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020,
    "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens_details": {"reasoning_tokens": 5},
}  # fmt: skip
COUNTED = {"input": 600, "cache_read": 400, "cache_write": 0, "output": 20, "reasoning": 5}
COST = (600 * 1.0 + 400 * 0.1 + 20 * 4.0) / 1e6


def request(stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A chat request."""
    messages = [{"role": "user", "content": "Say hello."}]
    return {
        "model": "model-1",
        "messages": messages,
        **({"stream": True} if stream else {}),
        **fields,
    }


def post(
    line: Line, body: Any, path: str = "/chat/completions", **headers: str
) -> tuple[int, bytes]:
    """Status and body of one request; `body` is JSON, or bytes to send as they are."""
    status, data, _ = post_with_headers(line, body, path, **headers)
    return status, data


def post_with_headers(
    line: Line, body: Any, path: str = "/chat/completions", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = connect(line)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", urlsplit(line.url).path + path, data, _headers(headers))
    reply = connection.getresponse()
    try:
        return reply.status, reply.read(), {k.lower(): v for k, v in reply.getheaders()}
    finally:
        connection.close()


def get(line: Line, path: str) -> tuple[int, Any]:
    connection = connect(line)
    connection.request("GET", urlsplit(line.url).path + path)
    reply = connection.getresponse()
    data = json.loads(reply.read())
    connection.close()
    return reply.status, data


def connect(line: Line) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(line.url).netloc, timeout=60)


def start(line: Line, body: Any, path: str = "/chat/completions") -> http.client.HTTPConnection:
    """Send a request and do not wait for its answer."""
    connection = connect(line)
    path = urlsplit(line.url).path + path
    connection.request("POST", path, json.dumps(body).encode(), _headers({}))
    return connection


def _headers(more: dict[str, str]) -> dict[str, str]:
    return {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in more.items()}}


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait for a condition; its first true value (AssertionError when it never is)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError("waited in vain")
