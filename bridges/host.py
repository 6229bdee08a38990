"""The host: one process that routes, journals and times out all that agents touch in a sweep.

    flow ──control line──► host ──► /t/<token>/<server>/mcp   tools of an attempt (server.py)
                             └────► /m/<token>/v1/…           its model (gateway.py)

Claim: an attempt's paths exist from `open` to `close` and are known to nobody else; what one
attempt does leaves the others alone. Attempts come and go while others run. The host holds the API
keys, so it runs no code of a suite and is nobody's parent but the zygote's and the scripted
models'. When its flow is gone, whatever ended it, the host ends at once, and with it every process
it started.

Started as `python -m bridges.host --control-fd N`. On the control line (bridges/channel.py): event
`ready` {port, contract}; verbs `prepare`, `open`, `say`, `alarm`, `state`, `close`, `stats` (`Host` says what
each takes and gives);
events of the gateway (`budget`, `waiting`), and `calls` (see `Host.alarm`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvicorn
import uvloop
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Receive, Scope, Send

from bridges.answering import Answering, Verb
from bridges.attempts import Attempt
from bridges.conversation import Conversation, RespondToUser
from bridges.conversation_tool import SERVER
from bridges.functions import FunctionTools
from bridges.journal import CONTRACT, Journal
from bridges.server import Alarm, Endpoint, Tally, refuse
from bridges.store import REQUESTOR, Store
from bridges.store import SERVER as STORE
from bridges.tau2 import Door, Worlds
from bridges.users import Ask, asking, seated
from bridges.workers import Worker, Zygote
from suites.schema import DEFAULT_LIMITS, Environment, Functions, Tau2World

if TYPE_CHECKING:
    from bridges.gateway import Gateway

IDLE_CONNECTION_SECONDS = 3600
"""How long a client's connection may rest between two calls; a model may think for long."""
_PR_SET_DUMPABLE = 4

_environment: TypeAdapter[Functions | Tau2World] = TypeAdapter(Environment)


class Host:
    """All open attempts, the ASGI application that serves them, and the verbs that change them.

    Args:
        port: where it is served (127.0.0.1), for the URLs it gives out.
        notify: takes events for the flow.
    """

    def __init__(self, port: int, notify: Callable[[dict[str, Any]], None]) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._notify = notify
        self._zygote = Zygote()
        self._worlds = Worlds()
        self._gateway: Gateway | None = None
        self._gateway_start = asyncio.Lock()
        self._open: dict[tuple[str, int], Attempt] = {}
        self._by_token: dict[str, tuple[Attempt, dict[str, Endpoint]]] = {}
        self._requests = 0

    # ------------------------------------------------------------ verbs

    async def prepare(self, environments: list[dict[str, Any]]) -> None:
        """Begin to load what attempts with these environments need before their first call.

        Waits for nothing; what cannot be loaded is told by the `open` that needs it.
        """
        specs = [_environment.validate_python(environment) for environment in environments]
        self._worlds.prepare(spec for spec in specs if isinstance(spec, Tau2World))

    async def open(
        self,
        attempt: str,
        folder: str,
        environments: list[dict[str, Any]],
        limits: dict[str, Any],
        budget_error: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        setup: dict[str, Any] | None = None,
        conversation: dict[str, Any] | None = None,
        store: bool = False,
        **other: Any,
    ) -> dict[str, Any]:
        """Serve an attempt's tools and model, and let its user speak where it speaks first.

        Args:
            attempt: the attempt key.
            folder: the try's folder, absolute; it must exist and hold no record yet.
            environments: as in `suites/schema.py`.
            limits: resolved; `tool_seconds` is used here, the rest by the gateway.
            budget_error: `{status, body}` that the gateway answers with once a budget is spent.
            model: see the gateway; None where the harness brings its own.
            setup: the state that a world begins in, as its kind reads it.
            conversation: where the agent talks to a user: `way` (`tool`, `turns`, `resume`),
                `messages` (said before), `stops`, `max_steps`, `max_errors`, and `user`, which is
                `{kind: scripted, opening, calls}`, `{kind: replay, messages}` or
                `{kind: model, scenario, model, seed}` (`model` as the agent's).
            store: whether the harness is given a state store (bridges/store.py).
            other: `try`, the try's number from 1.

        Returns:
            `{servers: [{name, url}], user_servers: [{name, url}], model_url: url | None,
            model_token: token}`; `user_servers` is for whoever plays the user from outside. With a
            store also `store_url`, and with a
            conversation also `conversation: {messages, ended, turn}`: what the agent has to know of
            it so far as chat messages, why it is over already (else None), and how often the user
            has spoken. As long as the user's model takes for that, so long does this.

        Raises:
            WorldFailed: the world cannot be made, and why.
            ValueError: what is given makes no sense.
        """
        number = int(other.pop("try"))
        if other:
            raise TypeError(f"open takes no {', '.join(sorted(other))}")
        key = (attempt, number)
        if key in self._open:
            raise ValueError(f"try {number} of {attempt} is open already")
        specs = [_environment.validate_python(environment) for environment in environments]
        token = secrets.token_urlsafe(24)
        opened = self._open[key] = Attempt(token, Journal(Path(folder), number))
        try:
            for spec in specs:
                if isinstance(spec, Tau2World):
                    await self._add_world(opened, spec, setup, limits)
                else:
                    await self._add_endpoint(opened, spec, limits, conversation is not None)
            if model is not None:
                await self._add_model(opened, token, key, model, limits, budget_error or {})
                opened.has_model = True
            if store:
                await self._add_store(opened)
            if conversation is not None:
                await self._add_conversation(opened, key, conversation, setup or {})
            if self._open.get(key) is not opened:
                raise ConnectionAbortedError(f"try {number} of {attempt} was closed meanwhile")
        except BaseException:
            if self._open.get(key) is opened:
                del self._open[key]
            await self._end(opened)
            raise
        self._by_token[token] = opened, opened.endpoints
        self._by_token[opened.user_token] = opened, opened.user_endpoints
        self._by_token[opened.store_token] = opened, opened.store_endpoints
        stores = self._urls(opened.store_token, opened.store_endpoints)
        return {
            "servers": self._urls(token, opened.endpoints),
            "user_servers": self._urls(opened.user_token, opened.user_endpoints),
            "model_url": f"{self._base}/m/{token}/v1" if model is not None else None,
            "model_token": token,
            **({"store_url": stores[0]["url"]} if stores else {}),
            **({"conversation": opened.conversation.told()} if opened.conversation else {}),
        }

    async def say(self, attempt: str, text: str, **other: Any) -> dict[str, Any]:
        """The agent says something to its user, and its turn is over.

        Args:
            attempt: the attempt key.
            text: what it says; nothing ends the conversation (`agent_error`).
            other: `try`.

        Returns:
            `{messages, reply, ended, turn}`: the transcript, what the user answered (None where it
            did not), why the conversation is over (else None), how often the user has spoken. Takes
            as long as the user does.

        Raises:
            LookupError: no such attempt is open, or it is no conversation.
            ValueError: its agent speaks by a tool.
        """
        number = int(other["try"])
        opened = self._open.get((attempt, number))
        if opened is None or opened.conversation is None:
            raise LookupError(f"try {number} of {attempt} is not open, or no conversation")
        if opened.conversation.by_tool:
            raise ValueError("this agent speaks to its user by a tool")
        opened.tally.touch()
        reply = await opened.conversation.say(text)
        return {**opened.conversation.told(), "reply": reply}

    async def alarm(self, attempt: str, calls: int | None, **other: Any) -> None:
        """Have an event `calls` {attempt, try, number} sent once the agent has had so many answers.

        From then on no call of the agent is let in that comes before this is said again: nothing is
        executed between the last answer and the end of a harness that is killed for it.

        Args:
            attempt: the attempt key.
            calls: how many answered tool calls from now on; None takes the alarm away.
            other: `try`, and `number`, which the event tells again.

        Raises:
            LookupError: no such attempt is open.
        """
        number, launch = int(other["try"]), other.get("number")
        opened = self._open.get((attempt, number))
        if opened is None:
            raise LookupError(f"try {number} of {attempt} is not open")
        event = {"event": "calls", "attempt": attempt, "try": number, "number": launch}
        opened.tally.alarm = Alarm(calls, lambda: self._notify(event)) if calls else None

    async def close(
        self, attempt: str, reason: str | None = None, detail: str = "", **other: Any
    ) -> dict[str, Any]:
        """Take an attempt's paths away, cancel what runs, complete its record, and sum up.

        Args:
            attempt: the attempt key.
            reason: how its conversation ended, where it has not ended by itself (`agent_stop`,
                `agent_error`, `max_steps`, `timeout`); None leaves it without an end.
            detail: that in words.
            other: `try`.

        Returns:
            `first_contact_at`, `last_activity_at`, `listed`, `tool_calls`, `tool_errors`, the
            gateway's part (`NO_MODEL` names it), `dropped`: True where the record has holes, and
            `environment_lost`: why a world ceased to be the attempt's, or None. Of a conversation
            also `conversation` {ended, detail, blame, steps, errors, turns,
            user_seconds: how long the agent waited for its user} and, where a model
            played the user, `user` {model_calls, usage, cost, upstream_error, waited_seconds}; both
            None where there was none. All else is about the agent alone.
        """
        number = int(other["try"])
        closed = self._open.pop((attempt, number), None)
        if closed is None:
            raise LookupError(f"try {number} of {attempt} is not open")
        return await self._end(closed, reason, detail)

    async def state(self, attempt: str, **other: Any) -> dict[str, Any]:
        """The hashes of an open attempt's world (`World.state`), for tests and drivers from outside.

        Not kept at each close: the grader comes to them from the record anyway, and for airline they
        take as long as a scripted attempt's whole conversation.
        """
        opened = self._open[attempt, int(other["try"])]
        if opened.world is None:
            raise LookupError(f"{attempt} has no world")
        return dict(await opened.world.state())

    async def stats(self) -> dict[str, Any]:
        """What the host carries: open attempts, workers, requests so far, resident memory."""
        return {
            "open": len(self._open),
            "workers": self._zygote.living + self._worlds.living,
            "requests": self._requests,
            "rss_bytes": _resident_bytes(),
            "cpu_seconds": round(time.process_time(), 3),
        }

    # ------------------------------------------------------------ what they do

    async def _add_endpoint(
        self, attempt: Attempt, spec: Functions, limits: dict[str, Any], talks: bool
    ) -> None:
        seconds = _tool_seconds(limits)
        worker = Worker(self._zygote)
        environment = FunctionTools(spec, worker, seconds)
        users = talks and spec.audience == "user"
        tally = attempt.user_tally if users else attempt.tally
        endpoint = Endpoint(
            spec.name, environment, worker, attempt.journal, tally, spec.audience, seconds
        )
        (attempt.user_endpoints if users else attempt.endpoints)[spec.name] = endpoint
        await endpoint.start()
        environment.warm()

    async def _add_world(
        self,
        attempt: Attempt,
        spec: Tau2World,
        setup: dict[str, Any] | None,
        limits: dict[str, Any],
    ) -> None:
        if attempt.world is not None:
            raise ValueError("an attempt has one world")
        seconds = _tool_seconds(limits)
        world = attempt.world = await self._worlds.world(spec, setup, seconds)
        attempt.endpoints[spec.name] = agents = Endpoint(
            spec.name,
            Door(world, "assistant", spec.tools),
            None,
            attempt.journal,
            attempt.tally,
            "agent",
            seconds,
        )
        await agents.start()
        if spec.user_tools:
            attempt.user_endpoints[spec.name] = users = Endpoint(
                spec.name,
                Door(world, "user", spec.user_tools),
                None,
                attempt.journal,
                attempt.user_tally,
                "user",
                seconds,
            )
            await users.start()

    async def _add_store(self, attempt: Attempt) -> None:
        endpoint = Endpoint(STORE, Store(), None, attempt.journal, Tally(), REQUESTOR)
        attempt.store_endpoints[STORE] = endpoint
        await endpoint.start()

    async def _add_conversation(
        self,
        attempt: Attempt,
        key: tuple[str, int],
        terms: dict[str, Any],
        setup: dict[str, Any],
    ) -> None:
        """Seat the user, let it speak where it speaks first, and give the agent a way to answer."""
        history = setup.get("message_history") or terms["messages"]
        doors = list(attempt.user_endpoints.values()) or [self._no_door(attempt)]
        tools = [tool for door in doors for tool in door.tools]

        async def line(model: dict[str, Any]) -> Ask:
            token = secrets.token_urlsafe(24)
            await self._add_model(attempt, token, key, {**model, "requestor": "user"}, {}, {})
            attempt.user_line = token
            return asking(self._gateway, token)

        user = await seated(terms["user"], terms["stops"][0], history, tools, line)
        if self._open.get(key) is not attempt:
            raise ConnectionAbortedError("the attempt was closed before its user was there")
        talk = attempt.conversation = Conversation(
            terms, history, attempt.journal, user, attempt.endpoints.values(), doors
        )
        if talk.by_tool:
            if SERVER in attempt.endpoints:
                raise ValueError(f"no environment of a conversation may be named {SERVER!r}")
            speaking = Endpoint(
                SERVER, RespondToUser(talk), Worker(self._zygote), attempt.journal, attempt.tally
            )
            attempt.endpoints[SERVER] = speaking
            talk.join(speaking)
            await speaking.start()
        await talk.begin()

    def _no_door(self, attempt: Attempt) -> Endpoint:
        """Where the calls of a user go that has no tools: each is journaled, and refused."""
        nothing = FunctionTools(Functions(name="none"), Worker(self._zygote), 1.0)
        return Endpoint("none", nothing, None, attempt.journal, attempt.user_tally, "user")

    async def _add_model(
        self,
        attempt: Attempt,
        token: str,
        key: tuple[str, int],
        model: dict[str, Any],
        limits: dict[str, Any],
        budget_error: dict[str, Any],
    ) -> None:
        async with self._gateway_start:
            if self._gateway is None:
                from bridges.gateway import Gateway  # its HTTP client is not needed by all sweeps

                gateway = Gateway(self._notify)
                await gateway.start()
                self._gateway = gateway
        await self._gateway.open(
            token, attempt.journal, model, limits, budget_error, key[0], key[1]
        )

    async def _end(
        self, attempt: Attempt, reason: str | None = None, detail: str = ""
    ) -> dict[str, Any]:
        self._by_token.pop(attempt.token, None)
        self._by_token.pop(attempt.user_token, None)
        self._by_token.pop(attempt.store_token, None)
        return await attempt.end(self._gateway, reason, detail)

    # ------------------------------------------------------------ HTTP

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one HTTP request by its token; 404 to whoever does not know one."""
        if scope["type"] != "http":
            return
        self._requests += 1
        parts = scope["path"].rstrip("/").split("/")
        known = self._by_token.get(parts[2]) if len(parts) > 3 else None
        if known is not None:
            attempt, endpoints = known
            by_agent = endpoints is attempt.endpoints
            if parts[1] == "m" and by_agent and attempt.has_model and self._gateway is not None:
                await cast(ASGIApp, self._gateway)(scope, receive, send)
                return
            if parts[1] == "t" and len(parts) == 5 and parts[4] == "mcp":
                endpoint = endpoints.get(parts[3])
                if endpoint is not None:
                    await endpoint(scope, receive, send)
                    return
        await refuse(send, 404, "There is nothing here.")

    def _urls(self, token: str, endpoints: dict[str, Endpoint]) -> list[dict[str, str]]:
        return [{"name": name, "url": f"{self._base}/t/{token}/{name}/mcp"} for name in endpoints]


# ---------------------------------------------------------------- the process


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: this process ends with its control line."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(control: socket.socket) -> None:
    """Be the host on this control line, until the process ends."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    port: int = listening.getsockname()[1]
    host = Host(port, lambda event: line.notify(event))
    verbs: dict[str, Verb] = {
        "prepare": host.prepare,
        "open": host.open,
        "say": host.say,
        "alarm": host.alarm,
        "state": host.state,
        "close": host.close,
        "stats": host.stats,
    }
    # Not a tidy shutdown: rows are in the kernel's hands as they are written, and each child
    # process ends by the end of its own line.
    line = Answering(verbs, on_end=lambda: os._exit(0))
    config = uvicorn.Config(
        host,
        http="httptools",
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
    )
    serving = asyncio.create_task(_Server(config).serve(sockets=[listening]))
    await line.listen(control)
    gc.collect()
    gc.freeze()  # what is imported stays; later collections need not walk it
    line.notify({"event": "ready", "port": port, "contract": CONTRACT})
    await serving


def _keep_to_itself() -> None:
    """Ctrl-C is the flow's; the keys in this environment are not for other processes to read."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _tool_seconds(limits: dict[str, Any]) -> float:
    return limits.get("tool_seconds") or DEFAULT_LIMITS.tool_seconds or 60.0


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


def main() -> None:
    """`python -m bridges.host --control-fd N`."""
    parser = argparse.ArgumentParser(prog="bridges.host")
    parser.add_argument("--control-fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().control_fd)
    control.set_inheritable(False)
    _keep_to_itself()
    _allow_many_files()
    logging.basicConfig(level=logging.WARNING, format="host: %(name)s: %(message)s")
    for chatty in ("mcp", "uvicorn", "asyncio", "aiohttp"):  # what a client sent is not news
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    uvloop.run(serve(control))


if __name__ == "__main__":
    main()
