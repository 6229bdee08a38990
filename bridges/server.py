"""The MCP endpoint of one attempt's environment: what an agent's client connects to.

Claim: every client speaks to it, old or new, and every `tools/list` and `tools/call` is journaled
as it came, in order, before it is answered. One URL serves both MCP eras: each request stands for
itself (no session, no stream to hold open), so a client that never says goodbye leaves nothing
behind. A client that goes away has its call cancelled, and journaled so.

Results are one text block and nothing else: command lines render structured content each in its own
way, and agents must see the same. A mistake of the agent (a tool that is not there, arguments that
do not fit) comes back as a tool result marked `isError`, which models learn from; a protocol error
many harnesses would treat as their own failure.

The library's manager (`StreamableHTTPSessionManager`) is made once an endpoint, not once a host:
should one of its requests bring it down, no other attempt hears of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp_types import Tool as ListedTool
from starlette.types import Message, Receive, Scope, Send

from bridges.arguments import NotJSON, Sent, checker, read, sent_by_hand, shape_problem
from bridges.environments import Answer, Environment
from bridges.journal import CONTRACT, Journal
from bridges.texts import fit
from bridges.workers import Worker, WorkerCrashed, WorkerTimeout
from suites.schema import Tool

log = logging.getLogger("dyno.bridge")

BODY_BYTES = 1_048_576
"""Longest request body; a longer one is answered with 413 and not read to its end."""
CHECK_SECONDS = 10.0
"""How long arguments may take to check in a worker before they count as refused."""
DRAIN_SECONDS = 2.0
"""How long closing waits for cancelled calls to be journaled by themselves."""

_SECURITY = TransportSecuritySettings(
    allowed_hosts=["127.0.0.1:*", "localhost:*"], allowed_origins=[]
)


class Alarm:
    """Tells once when so many calls have been answered, and lets no further call in.

    What comes after the last call is held at the door, before it is journaled, until its client goes
    away: it never reaches an environment, so where a harness is killed on purpose nothing of it is in
    doubt but what it knew. Calls that come once the attempt has another alarm, or none, know nothing
    of this one.

    Args:
        calls: how many answers from now on.
        ring: called once they were given.
    """

    def __init__(self, calls: int, ring: Callable[[], None]) -> None:
        self._left = calls
        self._ring = ring

    async def door(self) -> None:
        """Never comes back once the last call has been answered; it can only be cancelled."""
        if self._left <= 0:
            await asyncio.Event().wait()

    def answered(self) -> None:
        """Count one."""
        self._left -= 1
        if self._left == 0:
            self._ring()


@dataclass
class Tally:
    """What one attempt's clients did, over all its endpoints. Times are Unix seconds."""

    first_contact_at: float | None = None
    last_activity_at: float | None = None
    tool_calls: int = 0
    tool_errors: int = 0
    alarm: Alarm | None = None
    """Set where a launch is to be cut short after so many calls."""

    def touch(self) -> None:
        """Note that the attempt is alive."""
        self.last_activity_at = time.time()
        if self.first_contact_at is None:
            self.first_contact_at = self.last_activity_at


class Endpoint:
    """One environment of one attempt as an ASGI application, from `start` to `close`.

    Args:
        name: the server's name, as in its URL.
        environment: what answers.
        worker: where arguments are checked that take long to check, closed with the endpoint; None
            where the environment judges calls.
        journal: the try's record.
        tally: the attempt's counts.
        requestor: whose calls these are (`agent`, `user`).
        seconds: longest single call.

    Attributes:
        listed: True once its tools were listed.
        refusal: set where the doors are closed: what every further call is told instead of an answer.
        watch: told of each call once it is journaled what it came to: requestor, the call's `seq`,
            tool, arguments (JSON text), answer.
    """

    def __init__(
        self,
        name: str,
        environment: Environment,
        worker: Worker | None,
        journal: Journal,
        tally: Tally,
        requestor: str = "agent",
        seconds: float = 60.0,
    ) -> None:
        self.name = name
        self.listed = False
        self.refusal: str | None = None
        self.watch: Callable[[str, int, str, str | None, Answer], None] | None = None
        self._environment = environment
        self._worker = worker
        self._journal = journal
        self._tally = tally
        self._requestor = requestor
        self._seconds = min(seconds, CHECK_SECONDS)
        self._by_name = {
            known: tool
            for tool in environment.tools
            for known in (tool.native_name or tool.name, tool.name)
        }
        self._listing: ListToolsResult | None = None
        self._open: dict[int, float] = {}
        self._requests: set[anyio.CancelScope] = set()
        self._drained = asyncio.Event()
        self._closing = asyncio.Event()
        self._server: Server[Any] = Server(
            name,
            version=str(CONTRACT),
            on_list_tools=self._list,
            on_call_tool=self._call,
            get_tool_input_schema=lambda _: None,  # arguments are judged here, not in headers
        )
        self._server.middleware.clear()
        self._manager: StreamableHTTPSessionManager | None = None
        self._managing: asyncio.Task[None] | None = None

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools it offers."""
        return self._environment.tools

    @property
    def names(self) -> Collection[str]:
        """The names that its tools answer to."""
        return self._by_name.keys()

    @property
    def has_tools(self) -> bool:
        """False where there is nothing to list."""
        return bool(self._by_name)

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Be ready for requests."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._managing = asyncio.create_task(self._manage(ready))
        await ready

    async def close(self) -> None:
        """Cancel what runs, journal it as cancelled, and let go of the worker. Never hangs."""
        self._closing.set()
        for request in self._requests:
            request.cancel()
        if self._managing is not None:
            await asyncio.wait([self._managing], timeout=DRAIN_SECONDS)
        if self._open:
            try:
                await asyncio.wait_for(self._drained.wait(), DRAIN_SECONDS)
            except TimeoutError:
                pass
        for call in list(self._open):
            self._finish(call, Answer("cancelled", ""))
        if self._worker is not None:
            await self._worker.close()

    async def _manage(self, ready: asyncio.Future[None]) -> None:
        """Keep a manager running; the library ends one for good when a request breaks it."""
        while not self._closing.is_set():
            manager = StreamableHTTPSessionManager(
                self._server,
                stateless=True,
                json_response=True,
                security_settings=_SECURITY,
                max_request_body_size=2 * BODY_BYTES,
            )
            try:
                async with manager.run():
                    self._manager = manager
                    if not ready.done():
                        ready.set_result(None)
                    await self._closing.wait()
            except Exception as error:
                if not ready.done():
                    ready.set_exception(error)
                    return
                log.exception("the MCP manager of %s broke; another takes its place", self.name)

    # ------------------------------------------------------------ HTTP

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        self._tally.touch()
        if scope["method"] != "POST":
            allow = [(b"allow", b"POST")]
            await refuse(send, 405, "Only POST is served: each request stands for itself.", allow)
            return
        body = await _body(receive)
        if body is None:
            return
        if len(body) > BODY_BYTES:
            await refuse(send, 413, f"The request's body is longer than {BODY_BYTES} bytes.")
            return
        try:
            sent = read(body)
        except NotJSON as error:
            await refuse(send, 400, f"Parse error: {error}", code=-32700)
            return
        await self._serve({**scope, "dyno.sent": sent}, sent.body, receive, send)
        self._tally.touch()

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Hand a request whose body has been read to the library; cancel it if its client goes."""
        gone = asyncio.Event()
        given = started = False

        async def replay() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            request.cancel()

        assert self._manager is not None
        with anyio.CancelScope() as request:
            self._requests.add(request)
            watching = asyncio.create_task(watch())
            try:
                await self._manager.handle_request(scope, replay, answer)
            finally:
                watching.cancel()
                self._requests.discard(request)
        if self._closing.is_set() and not started and not gone.is_set():
            await refuse(send, 404, "This attempt is over.")

    # ------------------------------------------------------------ MCP

    async def _list(
        self, context: ServerRequestContext[Any], _: PaginatedRequestParams | None
    ) -> ListToolsResult:
        began = time.perf_counter()
        if self._listing is None:
            self._listing = ListToolsResult(
                tools=[
                    ListedTool(
                        name=tool.name,
                        description=tool.description,
                        input_schema=tool.input_schema,
                    )
                    for tool in self._environment.tools
                ]
            )
        self.listed = True
        self._journal.append(
            "bridge",
            "list",
            self._requestor,
            server=self.name,
            tools=[tool.name for tool in self._environment.tools],
            protocol=context.protocol_version,
            ms=_since(began),
        )
        return self._listing

    async def _call(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        sent: Sent = context.request.scope["dyno.sent"]  # type: ignore[union-attr]
        answer = await self.call(params.name, sent)
        content = TextContent(type="text", text=answer.text)
        return CallToolResult(content=[content], is_error=answer.is_error)

    async def call(self, name: str, sent: Sent) -> Answer:
        """Journal a call, answer it, journal the answer."""
        if self._tally.alarm is not None:
            await self._tally.alarm.door()
        tool = self._by_name.get(name)
        call = self._journal.append(
            "bridge",
            "call",
            self._requestor,
            server=self.name,
            tool=name,
            native=(tool.native_name or tool.name) if tool else None,
            arguments=sent.arguments,
        )
        self._tally.tool_calls += 1
        self._open[call] = time.perf_counter()
        try:
            answer = await self._answer(tool, name, sent)
        except asyncio.CancelledError:
            self._finish(call, Answer("cancelled", ""))
            raise
        except Exception as error:
            log.exception("%s: a call of %s failed in the host", self.name, name)
            answer = Answer("tool_error", f"The tool failed: {type(error).__name__}.")
        self._finish(call, answer)
        if self.watch is not None:
            self.watch(self._requestor, call, name, sent.arguments, answer)
        return answer

    async def perform(self, name: str, arguments: str) -> Answer:
        """The same for a call that comes from within the host (a simulated user's).

        Args:
            name: the tool's name, known or not.
            arguments: the JSON text of its arguments; text that is no JSON is journaled, and refused.
        """
        return await self.call(name, sent_by_hand(arguments))

    async def _answer(self, tool: Tool | None, name: str, sent: Sent) -> Answer:
        # Nothing is awaited before an environment that judges calls has its turn: a world carries
        # out calls in the order in which they are journaled, whoever made them.
        if self.refusal is not None:
            return Answer("refused", *fit(self.refusal))
        if tool is None and self._environment.judges_calls:
            tool = Tool.model_construct(name=name, input_schema={})
        if tool is None:
            known = ", ".join(tool.name for tool in self._environment.tools) or "none"
            told = f"There is no tool {name!r}. The tools here: {known}."
            return Answer("unknown_tool", *fit(told))
        problem = shape_problem(sent)
        if problem is None and not self._environment.judges_calls:
            problem = await self._misfit(tool, sent)
        if problem is not None:
            told = f"The arguments do not fit the schema of {tool.name}:\n{problem}"
            return Answer("refused", *fit(told))
        return await self._environment.call(tool, sent.arguments)

    async def _misfit(self, tool: Tool, sent: Sent) -> str | None:
        """What does not fit the tool's schema; worked out in the worker where it may take long."""
        check = checker(tool.input_schema)
        text = sent.arguments or "{}"
        if not check.must_leave(text):
            return check.problem(sent.value or {})
        assert self._worker is not None
        request = {"check": tool.input_schema, "arguments": text}
        try:
            reply = await self._worker.ask(request, self._seconds)
        except WorkerTimeout:
            return f"arguments: they could not be checked within {self._seconds:g} seconds"
        except WorkerCrashed:
            return "arguments: they could not be checked"
        problem: str | None = reply["problem"]
        return problem

    def _finish(self, call: int, answer: Answer) -> None:
        """Journal what a call came to, once."""
        began = self._open.pop(call, None)
        if began is None:
            return
        self._tally.tool_errors += answer.is_error
        self._journal.append(
            "bridge",
            "result",
            self._requestor,
            call=call,
            status=answer.status,
            is_error=answer.is_error,
            text=answer.text,
            cut=answer.cut,
            ms=_since(began),
        )
        if not self._open:
            self._drained.set()
        if self._tally.alarm is not None and answer.status != "cancelled":
            self._tally.alarm.answered()


async def refuse(
    send: Send,
    status: int,
    message: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    code: int = -32600,
) -> None:
    """Answer a request that nobody serves, as JSON-RPC says errors."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    body = json.dumps(error).encode()
    length = str(len(body)).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", length), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes | None:
    """The request's body, up to one piece beyond `BODY_BYTES`; None where the client went away."""
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts += message.get("body", b"")
        if not message.get("more_body", False) or len(parts) > BODY_BYTES:
            return bytes(parts)


def _since(began: float) -> float:
    """Milliseconds since `began` (perf_counter), to the microsecond."""
    return round((time.perf_counter() - began) * 1000, 3)
