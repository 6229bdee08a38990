"""One model call: from the harness's request, over the upstream, back, and into the journal.

What this promises, and why the code is in the order it is in:

- The request is journaled before it goes on, and the response before its last byte does (before
  `[DONE]` of a stream): whatever the harness does because of a reply comes after it in the record.
- A stream is passed on chunk by chunk. A reply in one piece is sent when it is whole; blank lines
  that an upstream sends meanwhile to keep the line open are passed at once.
- When the harness hangs up, the upstream is read to its end for a bounded time, because what was
  generated is billed. What was not read to the end is unmeasured, never 0.
- Failures of the upstream are told to the harness as they are, and noted for the attempt
  (`Failure`): whether they are the agent's or not is not decided here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp

from bridges.budgets import BYTES_PER_TOKEN
from bridges.journal import Journal
from bridges.metering import NOTHING, Usage, cost_of
from bridges.ratelimits import Slot, WaitClock, asks_to_come_back, pause_before_retry
from bridges.upstreams import NOT_REACHED, Failure, FailureClass, Upstream, failure_class
from bridges.wires import Prepared, Said
from bridges.wires.reading import too_deep
from bridges.wires.streams import Opening

Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
T = TypeVar("T")

_KEYS = {b"authorization", b"x-api-key", b"api-key"}
_DROPPED_FROM_REQUEST = _KEYS | {
    b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"te",
    b"trailer", b"upgrade", b"proxy-authorization", b"proxy-connection", b"expect",
    b"accept-encoding", b"cookie",
}  # fmt: skip
_DROPPED_FROM_REPLY = {
    "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive",
    "trailer", "upgrade", "proxy-authenticate", "date", "server", "set-cookie",
}  # fmt: skip
_AUTO_HEADERS = ("User-Agent", "Accept", "Content-Type", "Accept-Encoding")


class Call:
    """One request of a harness and what became of it.

    Attributes:
        sent: True while, and after, the upstream works on it: from then on it may be billed.
        usage: tokens, None when unmeasured; final once `done`.
        failure: set when the upstream failed it.
    """

    def __init__(
        self,
        upstream: Upstream,
        journal: Journal,
        clock: WaitClock,
        headers: Headers,
        body: bytes,
        requestor: str = "agent",
    ) -> None:
        self._up = upstream
        self._requestor = requestor
        self._journal = journal
        self._clock = clock
        self._headers = headers
        self._body = body
        self._prepared: Prepared = upstream.wire.prepare(body, upstream.model, upstream.parameters)
        self._began = time.monotonic()
        self._first_byte: float | None = None
        self._deadline: float | None = None
        self._queued = 0.0
        self._statuses: list[int] = []
        self._tries = 0
        self._passed: list[bytes] = []
        self._started = False
        self._recorded = False
        self._seq = 0
        self.client_gone = False
        self.sent = False
        self.usage: Usage | None = NOTHING
        self.cost: float | None = None
        self.failure: Failure | None = None

    @property
    def sent_bytes(self) -> int:
        """Size of the request body as the client sent it."""
        return len(self._body)

    @property
    def received_bytes(self) -> int:
        """Size of what was passed on to the client."""
        return sum(map(len, self._passed))

    @property
    def unreadable(self) -> bool:
        """True where an upstream might read a request in which no model could be forced."""
        return not self._prepared.edits and self._prepared.model is None and too_deep(self._body)

    def journal_request(self) -> None:
        """Write the request's row; before anything else happens to it."""
        edits = list(self._prepared.edits)
        if self._up.key is not None or any(k.lower() in _KEYS for k, _ in self._headers):
            edits.append("authorization")
        self._seq = self._journal.append(
            "model",
            "request",
            self._requestor,
            wire=self._up.wire.name,
            stream=self._prepared.stream,
            model=self._prepared.model,
            edits=edits,
            body=self._body,
        )

    async def answer(
        self,
        send: Send,
        status: int,
        body: dict[str, Any],
        *,
        error: str,
        budget: str | None = None,
    ) -> None:
        """Answer in the upstream's stead, and journal it."""
        self._passed = [json.dumps(body, separators=(",", ":")).encode()]
        self._record(status, Said(NOTHING if not self.sent else None, error=error), budget=budget)
        if not self._started:
            await _send_whole(send, status, "application/json", self._passed[0])

    async def run(self, send: Send, query: bytes) -> None:
        """Send it upstream, as often as that asks, and pass the reply on."""
        try:
            await self._exchange(send, query)
        except aiohttp.InvalidURL as error:
            await self._fail(send, 502, "upstream_unreachable", f"not an address: {error}")
        except NOT_REACHED as error:
            self.sent = False
            await self._fail(send, 502, "upstream_unreachable", _reason(error))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._fail(send, 502, "upstream_error", _reason(error))
        except asyncio.CancelledError:
            self.record_cut("cut off: the attempt was closed or the harness hung up")
            raise
        except Exception as error:  # a fault of ours: no excuse to leave the record open
            self._blame("upstream_error", f"the gateway failed: {_reason(error)}")
            self.record_cut(f"the gateway failed: {_reason(error)}")
            raise

    def record_cut(self, error: str) -> None:
        """Journal that nobody waits for the end any more; no-op when the row is written."""
        usage = None if self.sent else NOTHING
        self._record(self._statuses[-1] if self.sent and self._statuses else None,
                     Said(usage, error=error, complete=False))  # fmt: skip

    async def _exchange(self, send: Send, query: bytes) -> None:
        url = self._up.url + (f"?{query.decode('latin-1')}" if query else "")
        headers = self._upstream_headers()
        while True:
            slot = await self._turn()
            try:
                self.sent = True
                self._tries += 1
                async with self._up.session.post(
                    url,
                    data=self._prepared.body,
                    headers=headers,
                    skip_auto_headers=_AUTO_HEADERS,
                    allow_redirects=False,
                ) as reply:
                    self._statuses.append(reply.status)
                    pause = self._pause(reply)
                    if not asks_to_come_back(reply.status, reply.headers):
                        if await self._pass_on(send, reply, may_shed=pause is not None):
                            return
                    else:
                        shed = await reply.read()
                        if pause is None or self._up.wire.is_final(shed):
                            self.sent = False
                            if slot:
                                slot.tokens = 0
                            await self._pass_whole(send, reply, shed)
                            return
                    self.sent = False
                    if slot:
                        slot.tokens = 0
            finally:
                if slot:
                    slot.tokens = self.usage.total if self.usage and self._recorded else slot.tokens
                    slot.release()
            assert pause is not None
            await self._wait(asyncio.sleep(pause))

    def _pause(self, reply: aiohttp.ClientResponse) -> float | None:
        """Seconds to wait should this reply ask to come back; None once patience is at its end."""
        now = time.monotonic()
        self._deadline = self._deadline or now + self._up.patience
        pause = pause_before_retry(self._tries, reply.headers)
        return None if now + pause > self._deadline else pause

    async def _turn(self) -> Slot | None:
        limiter = self._up.limiter
        if limiter is None:
            return None
        tokens = len(self._prepared.body) // BYTES_PER_TOKEN
        if limiter.would_wait(tokens):
            return await self._wait(limiter.acquire(tokens))
        return await limiter.acquire(tokens)

    async def _wait(self, turn: Awaitable[T]) -> T:
        began = time.monotonic()
        with self._clock.waiting():
            try:
                return await turn
            finally:
                self._queued += time.monotonic() - began

    def _upstream_headers(self) -> list[tuple[str, str]]:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._headers
            if name.lower() not in _DROPPED_FROM_REQUEST
        ]
        headers.append(("Accept-Encoding", "identity"))
        if self._up.key is not None:
            headers += self._up.wire.authorise(self._up.key).items()
        return headers

    async def _pass_on(
        self, send: Send, reply: aiohttp.ClientResponse, *, may_shed: bool = False
    ) -> bool:
        """Pass a reply on; False where it was a stream that only asked to come back, and nothing was."""
        if reply.status < 300 and reply.content_type == "text/event-stream":
            return await self._pass_stream(send, reply, may_shed)
        if reply.status < 300:
            await self._pass_when_whole(send, reply)
        else:
            await self._pass_whole(send, reply, await reply.read())
        return True

    async def _pass_stream(self, send: Send, reply: aiohttp.ClientResponse, may_shed: bool) -> bool:
        reader = self._up.wire.reader(self._prepared.strip_usage)
        opening = Opening(self._up.wire, may_shed)
        try:
            async for came in reply.content.iter_any():
                self._first_byte = self._first_byte or time.monotonic()
                chunk = opening.feed(came)
                if opening.shed:
                    self._first_byte = None
                    self._statuses[-1] = opening.shed
                    return False
                if not chunk:
                    continue
                await self._start(send, reply)
                out = reader.feed(chunk)
                if out:
                    self._passed.append(out)
                if reader.ended:
                    self._record(reply.status, reader.said())
                if out:
                    await send({"type": "http.response.body", "body": out, "more_body": True})
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._start(send, reply)
            out = reader.feed(opening.feed(_unread(reply.content)) + opening.finish())
            if out:
                self._passed.append(out)
            said = reader.said()
            if (
                reader.ended
            ):  # all of the reply has come, only the line was not closed as it should be
                self._record(reply.status, said)
            else:
                broken = f"the stream broke: {_reason(error)}"
                self._blame("upstream_error", broken)
                self._record(
                    reply.status, Said(said.usage, said.tool_calls, broken, complete=False)
                )
            if out or reader.ended:
                more = not reader.ended
                await send({"type": "http.response.body", "body": out, "more_body": more})
            return True  # without an end, if it had none: the server closes the line, as the upstream did
        await self._start(send, reply)
        out = reader.feed(opening.finish()) + reader.finish()
        if out:
            self._passed.append(out)
        self._record(reply.status, reader.said())
        await send({"type": "http.response.body", "body": out, "more_body": False})
        return True

    async def _pass_when_whole(self, send: Send, reply: aiohttp.ClientResponse) -> None:
        body = bytearray()
        try:
            async for chunk in reply.content.iter_any():
                self._first_byte = self._first_byte or time.monotonic()
                if not body and not chunk.strip():
                    await self._start(send, reply)
                    self._passed.append(chunk)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                else:
                    body += chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not self._started and not body:
                raise
            await self._start(send, reply)
            self._passed.append(bytes(body))
            broken = f"the reply broke off: {_reason(error)}"
            self._blame("upstream_error", broken)
            self._record(reply.status, Said(None, error=broken, complete=False))
            await send({"type": "http.response.body", "body": bytes(body), "more_body": True})
            return
        await self._pass_whole(send, reply, bytes(body))

    async def _pass_whole(self, send: Send, reply: aiohttp.ClientResponse, body: bytes) -> None:
        self._first_byte = self._first_byte or time.monotonic()
        body = self._without_key(body)
        self._passed.append(body)
        self._record(
            reply.status,
            self._up.wire.read(reply.status, reply.content_type, b"".join(self._passed)),
        )
        await self._start(send, reply, length=len(body))
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _start(
        self, send: Send, reply: aiohttp.ClientResponse, length: int | None = None
    ) -> None:
        if self._started:
            return
        self._started = True
        headers = [
            (name.encode("latin-1").lower(), value.encode("latin-1", "replace"))
            for name, value in reply.headers.items()
            if name.lower() not in _DROPPED_FROM_REPLY
        ]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})

    async def _fail(self, send: Send, status: int, kind: FailureClass, detail: str) -> None:
        self._blame(kind, detail)
        if self._started:
            self._record(None, Said(None, error=detail, complete=False))
            return
        message = f"the model's endpoint failed: {detail}"
        await self.answer(send, status, self._up.wire.error(status, message, kind), error=detail)

    def _blame(self, kind: FailureClass, detail: str) -> None:
        self.failure = Failure(kind, self._without_key(detail.encode()).decode())

    def _without_key(self, text: bytes) -> bytes:
        """An upstream that quotes the key in its complaint must not hand it to anybody."""
        key = self._up.key
        return text.replace(key.encode(), b"[key]") if key else text

    def _record(self, status: int | None, said: Said, *, budget: str | None = None) -> None:
        """Write the response's row, once, and settle what the call used."""
        if self._recorded:
            return
        self._recorded = True
        now = time.monotonic()
        self.usage = said.usage
        self.cost = cost_of(said.usage, self._up.prices)
        if self.failure is None and budget is None and said.error and status is not None:
            kind = failure_class(status)
            if kind:
                self._blame(kind, f"{self._up.model}: {said.error}")
        self._journal.append(
            "model",
            "response",
            self._requestor,
            call=self._seq,
            status=status,
            ms=_ms(now - self._began),
            first_byte_ms=_ms(self._first_byte - self._began) if self._first_byte else None,
            queued_ms=_ms(self._queued),
            upstream_tries=self._tries,
            upstream_statuses=self._statuses,
            complete=said.complete and not self.client_gone,
            body=self._without_key(b"".join(self._passed)),
            tool_calls=said.tool_calls,
            usage=said.usage.as_dict() if said.usage else None,
            cost=self.cost,
            error=self._without_key(said.error.encode()) if said.error else None,
            budget=budget,
        )


async def _send_whole(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _unread(stream: aiohttp.StreamReader) -> bytes:
    """What arrived before the line broke and was not read yet: aiohttp itself gives it to nobody."""
    return b"".join(getattr(stream, "_buffer", ()))


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
