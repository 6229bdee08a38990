"""The model endpoint that a harness is handed; it forwards, meters, limits and journals.

Every attempt has a line of its own, `/m/<token>/v1/…`, that works while the attempt lives. Behind
it stands the one model of the attempt's configuration, whatever the harness asks for. The real API
key is read here, from the environment of the process that runs the gateway, and goes nowhere but
upstream.

Bytes pass unchanged but for a closed list of edits, each journaled: the model id, forced
parameters, authorisation, and `stream_options.include_usage` (whose event is taken out again where
the client did not ask for it). Compression is not passed on: the upstream is asked for plain bytes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bridges.forwarding import Call
from bridges.journal import Journal
from bridges.lines import Line
from bridges.ratelimits import RateLimiter
from bridges.scripted_upstream import ScriptedUpstream
from bridges.upstreams import Upstream
from bridges.wires import Wire
from bridges.wires.chat import Chat
from bridges.wires.messages import Messages
from bridges.wires.responses import Responses

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

WIRES: dict[str, Wire] = {wire.name: wire for wire in (Chat(), Responses(), Messages())}

PATIENCE = 600.0
"""Seconds for which one shed call (429, 529) is repeated before the harness is told."""
DRAIN = 30.0
"""Seconds for which a reply is read on, for its usage, after the harness hung up."""
CLOSE = 5.0
"""The same, once the attempt is closed."""
LOCAL_KEEPALIVE = 4.0
"""Seconds that a connection to this machine is kept: local model servers drop theirs after five, and
a request that meets the drop half-way is lost."""
LONGEST_REQUEST = 64 << 20
"""Bytes."""


class Gateway:
    """All lines of one host process; an ASGI application for the paths below `/m/`.

    Args:
        notify: takes events for the flow: `budget` once a line's budget refuses a call, `waiting`
            when a line begins (`waiting: true`) and ceases to wait for its turn, with the seconds
            waited so far, by which the attempt's working clock is stopped. Each names `attempt` and
            `try`.
        patience: seconds for which a shed call is repeated.
    """

    def __init__(
        self, notify: Callable[[dict[str, Any]], None], *, patience: float = PATIENCE
    ) -> None:
        self._notify = notify
        self._patience = patience
        self._lines: dict[str, Line] = {}
        self._limiters: dict[tuple[str, str], RateLimiter | None] = {}
        self._scripted = ScriptedUpstream()
        self._direct: aiohttp.ClientSession | None = None
        self._proxied: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Make ready to forward; in the event loop that will serve."""
        self._direct = _client_session(trust_env=False, keepalive=LOCAL_KEEPALIVE)
        self._proxied = _client_session(trust_env=True, keepalive=15)

    async def stop(self) -> None:
        """Close all lines and connections, and end the scripted models' process."""
        for token in list(self._lines):
            await self.close(token)
        for session in (self._direct, self._proxied):
            if session:
                await session.close()
        await asyncio.to_thread(self._scripted.stop)

    async def open(
        self,
        token: str,
        journal: Journal,
        model: dict[str, Any],
        limits: dict[str, Any],
        budget_error: dict[str, Any],
        attempt: str,
        try_number: int,
    ) -> None:
        """Give an attempt a line to its model at `/m/<token>/v1`.

        Args:
            token: unguessable; also the only key this line accepts from a harness that sends one.
            model: endpoint, model, name, wire, api_key_env, prices, parameters, rate_limits,
                scripted; `requestor` (`user`, `judge`) where it is not the agent's.
            limits: resolved; `model_calls`, `tokens`, `dollars` hold here.
            budget_error: `status` and `body` of the reply once one of them is spent.

        Raises:
            ValueError: a wire that is not spoken, or a limit in dollars without prices.
            RemoteError: a script that the scripted models refuse (a playbook with a mistake).
        """

        def tell(event: dict[str, Any]) -> None:
            self._notify({**event, "attempt": attempt, "try": try_number})

        variable = model.get("api_key_env")
        key = os.environ.get(variable) if variable else None
        upstream = await self._upstream(token, model, key, try_number)
        missing = variable if variable and not key else None
        beside = next((line for line in self._lines.values() if line.journal is journal), None)
        whose = model.get("requestor") or "agent"
        try:
            self._lines[token] = Line(
                upstream, journal, limits, budget_error, tell, missing, whose, beside
            )
        except ValueError:
            await self._scripted.forget(token)
            raise

    async def close(self, token: str) -> dict[str, Any]:
        """End an attempt's line; what is under way is read on for a moment, then cut off.

        Returns:
            model_calls, usage, cost, budget, waited_seconds, upstream_error, first_contact_at,
            last_activity_at; of a scripted model also its `ledger` (`requests` that reached it, and
            tokens by kind, by its own count), else None.

        Raises:
            KeyError: no such line.
        """
        line = self._lines.pop(token)
        for task, call in line.running.items():
            if not call.sent:
                task.cancel()
        if line.running:
            _, late = await asyncio.wait(list(line.running), timeout=CLOSE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1)
        ledger = await self._scripted.forget(token)
        return line.summary() | {"ledger": ledger}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request below `/m/`."""
        token, path = _parts(scope["path"])
        line = self._lines.get(token)
        if line is None:
            message = "no attempt is open at this address"
            spoken = next((w for w in WIRES.values() if path == f"v1/{w.path}"), WIRES["chat"])
            return await _reply(send, 404, spoken.error(404, message, "not_found"))
        line.touch()
        wire, method = line.upstream.wire, scope["method"]
        if path == f"v1/{wire.path}" and method == "POST":
            return await self._model_call(line, scope, receive, send)
        if path == "v1/models" and method == "GET":
            return await _reply(send, 200, wire.cards(line.upstream.model))
        if path == f"v1/models/{line.upstream.model}" and method == "GET":
            return await _reply(send, 200, wire.card(line.upstream.model))
        served = f"POST /v1/{wire.path} and GET /v1/models"
        message = f"{method} /{path} is not served here; served are {served}"
        return await _reply(send, 404, wire.error(404, message, "not_found"))

    async def _model_call(
        self, line: Line, scope: dict[str, Any], receive: Receive, send: Send
    ) -> None:
        up = line.upstream
        try:
            body = await _body(receive)
        except _TooLong:
            message = f"a request of more than {LONGEST_REQUEST} bytes"
            return await _reply(send, 413, up.wire.error(413, message, "request_too_large"))
        if body is None:
            return None
        call = Call(up, line.journal, line.clock, scope["headers"], body, line.requestor)
        call.journal_request()
        spent = line.refuses()
        if spent:
            reply = line.budget_error
            message = f"the budget of {spent} is spent"
            return await call.answer(
                send, reply["status"], reply["body"], error=message, budget=spent
            )
        number = line.meter.calls
        try:
            if line.missing_key:
                message = f"the environment variable {line.missing_key} is not set where dyno runs"
                error = up.wire.error(401, message, "upstream_auth")
                await call.answer(send, 401, error, error=message)
            elif call.unreadable:
                message = "the request is nested too deeply to be read"
                error = up.wire.error(400, message, "invalid_request_error")
                await call.answer(send, 400, error, error=message)
            else:
                await _run(line, call, receive, call.run(send, scope.get("query_string", b"")))
        finally:
            line.settle(number, call)

    async def _upstream(
        self, token: str, model: dict[str, Any], key: str | None, try_number: int
    ) -> Upstream:
        wire = WIRES.get(model.get("wire") or "chat")
        if wire is None:
            raise ValueError(
                f"the gateway does not speak the wire {model['wire']!r}; it speaks "
                + ", ".join(WIRES)
            )
        endpoint, name = model["endpoint"], model.get("model") or model["name"]
        known = (endpoint, name)
        if known not in self._limiters:
            self._limiters[known] = RateLimiter.for_model(model.get("rate_limits"))
        if endpoint.startswith("scripted:"):
            script = {**(model.get("scripted") or {}), "try": try_number, "model": name}
            script.setdefault("behaviour", endpoint.removeprefix("scripted:"))
            base = await self._scripted.open(token, script)
        else:
            base = endpoint.rstrip("/")
        session = self._direct if _is_loopback(base) else self._proxied
        if session is None:
            raise RuntimeError("the gateway was not started")
        return Upstream(
            url=f"{base}/{wire.path}",
            wire=wire,
            model=name,
            parameters=model.get("parameters") or {},
            key=key,
            prices=model.get("prices"),
            session=session,
            limiter=self._limiters[known],
            patience=self._patience,
        )


def _parts(path: str) -> tuple[str, str]:
    """`/m/<token>/rest` → token, rest; empty where missing."""
    parts = [*path.split("/", 3), "", ""]
    return parts[2], parts[3]


async def _run(line: Line, call: Call, receive: Receive, work: Any) -> None:
    """Run a call to its end, or for a bounded time after its harness hung up."""
    task: asyncio.Task[None] = asyncio.create_task(work)
    line.running[task] = call
    hang_up = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, hang_up), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            call.client_gone = True
            if call.sent:
                await asyncio.wait((task,), timeout=DRAIN)
        if task.done() and not task.cancelled():
            task.result()
    finally:
        hang_up.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        call.record_cut("cut off before it began")
        del line.running[task]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _TooLong(Exception):  # noqa: N818 - the condition
    """The request is longer than any model takes."""


async def _body(receive: Receive) -> bytes | None:
    """The request's body; None when the client went away before it was whole."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LONGEST_REQUEST:
            raise _TooLong
        more = message.get("more_body", False)
    return b"".join(parts)


async def _reply(send: Send, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


def _client_session(*, trust_env: bool, keepalive: float) -> aiohttp.ClientSession:
    """No total timeout: a long answer is no failure, ten silent minutes are."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=keepalive),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=600),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=trust_env,
        auto_decompress=True,
        read_bufsize=1 << 18,
    )


def _is_loopback(url: str) -> bool:
    """Whether the address is this machine's own, for which no proxy is asked."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
