"""Who plays the user of a conversation: a model, a script, or what somebody said before.

All three are one thing to the conversation (bridges/conversation.py): they hear what the agent says,
and asked for their turn they speak, or call tools of their own and are asked again. They keep what they
have heard and said; the conversation carries out their calls, and decides when it is over.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from suites.schema import Tool

Ask = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""Sends a request's body to the user's model; gives status and body of the answer."""

PAUSES = (0.5, 1.5)
"""Seconds before a failed request to the user's model is made again. Requests that the endpoint sheds
(429) are repeated by the gateway, for far longer."""
SEEDS = 2**31
"""Seeds are sent below this: some endpoints take no more than 32 bits."""


class UserFailed(Exception):  # noqa: N818 - the condition
    """The user cannot go on: its model is not reached, or its answer not read. Never the agent's doing."""


@dataclass(frozen=True, slots=True)
class UserCall:
    """A tool call that the user wants made; `arguments` is JSON text, as its model wrote it."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of a user: what it says, or the calls that it makes first."""

    text: str = ""
    calls: tuple[UserCall, ...] = ()


class User(Protocol):
    """Whoever talks to the agent."""

    def hears(self, text: str) -> None:
        """The agent said this."""

    async def turn(self) -> Said:
        """What the user does next.

        Raises:
            UserFailed: it cannot say.
        """

    def learns(self, results: Sequence[str]) -> None:
        """What the calls of its last turn came to, in their order."""


class ScriptedUser:
    """A user by the book (`UserScript` in suites/schema.py says the rules).

    A tool that stands to be called twice is called as often as the agent's message names it.

    Args:
        opening: what it says first.
        calls: `{tool, arguments}`, in the order in which it makes them.
        stop: what it says to end the conversation.
        opened: True where the user has opened the conversation already, in what was said before it.
    """

    def __init__(
        self, opening: str, calls: Sequence[Mapping[str, Any]], stop: str, *, opened: bool = False
    ) -> None:
        self._opening = None if opened else opening
        self._calls = list(calls)
        self._stop = stop
        self._heard = ""
        self._made = 0
        self._done: list[str] = []

    def hears(self, text: str) -> None:
        """See `User`."""
        self._heard = text

    async def turn(self) -> Said:
        """See `User`."""
        if self._opening is not None:
            text, self._opening = self._opening, None
            return Said(text)
        calls = [] if self._done else self._named()
        if calls:
            self._done = [call["tool"] for call in calls]
            self._made += len(calls)
            return Said(calls=tuple(_written(call) for call in calls))
        if self._done:
            # The count makes each such message differ from the last: repeating itself is a fault.
            text = f"I have used {', then '.join(self._done)} (calls so far: {self._made})."
            self._done = []
            return Said(text)
        return Said(self._stop)

    def learns(self, results: Sequence[str]) -> None:
        """See `User`; a script takes results as they come."""

    def _named(self) -> list[Mapping[str, Any]]:
        named = Counter(re.findall(r"\w+", self._heard))
        taken = []
        while self._calls and named[self._calls[0]["tool"]] > 0:
            named[self._calls[0]["tool"]] -= 1
            taken.append(self._calls.pop(0))
        return taken


class ReplayedUser:
    """A user that says and does again what one said and did before, whatever the agent says.

    Args:
        messages: `{content}` or `{calls: [{tool, arguments}]}`, in order.
        stop: what it says once they are used up.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], stop: str) -> None:
        self._messages = list(messages)
        self._stop = stop

    def hears(self, text: str) -> None:
        """See `User`; nobody listens."""

    async def turn(self) -> Said:
        """See `User`."""
        if not self._messages:
            return Said(self._stop)
        message = self._messages.pop(0)
        calls = tuple(_written(call) for call in message.get("calls") or ())
        return Said(message.get("content") or "", calls)

    def learns(self, results: Sequence[str]) -> None:
        """See `User`; what came of it is not looked at."""


class ModelUser:
    """A model that plays the user, over the chat wire.

    It sees the conversation from its own side: its scenario as the system message, what the agent says
    as `user`, what it said and called itself as `assistant`. The agent's tool calls it does not see.

    Args:
        scenario: the system prompt, whole.
        tools: the user's own tools; none at all are offered where there are none.
        history: what was said and done before, in the benchmark's form (`message_history`).
        ask: sends a request.
        seed: sent along, unless the model's parameters say something of a seed; None: not sent.
    """

    def __init__(
        self,
        scenario: str,
        tools: Sequence[Tool],
        history: Sequence[Mapping[str, Any]],
        ask: Ask,
        seed: int | None = None,
    ) -> None:
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": scenario}]
        self._messages += [turned for turned in map(_turned, history) if turned is not None]
        self._ask = ask
        self._rest: dict[str, Any] = {}
        if tools:
            self._rest["tools"] = [_offered(tool) for tool in tools]
        if seed is not None:
            self._rest["seed"] = seed % SEEDS
        self._asked_for: list[str] = []

    def hears(self, text: str) -> None:
        """See `User`."""
        self._messages.append({"role": "user", "content": text})

    async def turn(self) -> Said:
        """See `User`; an empty answer is not kept, so that asking again is the same request."""
        message = await self._answer()
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        if not calls:
            if text.strip():
                self._messages.append({"role": "assistant", "content": text})
            return Said(text)
        made: list[dict[str, Any]] = []
        wanted: list[UserCall] = []
        for at, call in enumerate(calls):
            function = call.get("function") or {}
            name, arguments = str(function.get("name") or ""), function.get("arguments") or "{}"
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            identity = call.get("id") or f"call_{len(self._messages)}_{at}"
            made.append(
                {
                    "id": identity,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
            )
            wanted.append(UserCall(name, arguments))
        self._asked_for = [str(call["id"]) for call in made]
        self._messages.append({"role": "assistant", "content": text or None, "tool_calls": made})
        return Said(text, tuple(wanted))

    def learns(self, results: Sequence[str]) -> None:
        """See `User`."""
        self._messages += [
            {"role": "tool", "tool_call_id": identity, "content": result}
            for identity, result in zip(self._asked_for, results, strict=True)
        ]

    async def _answer(self) -> dict[str, Any]:
        """The model's message; failures of the endpoint are given two more chances."""
        body = json.dumps({"messages": self._messages, **self._rest}).encode()
        for pause in (*PAUSES, None):
            status, answer = await self._ask(body)
            try:
                return _message(status, answer)
            except UserFailed:
                if pause is None or status in (400, 401, 403, 413, 422):
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")


async def seated(
    spec: Mapping[str, Any],
    stop: str,
    history: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    line: Callable[[dict[str, Any]], Awaitable[Ask]],
) -> User:
    """The user that `open` was told of.

    Args:
        spec: `kind` and what that kind takes (`Host.open`).
        stop: what a user that reads from paper says to end the conversation.
        history: what was said and done before, in the benchmark's form.
        tools: the user's own.
        line: opens a line to a model.

    Raises:
        ValueError: there is no such kind.
    """
    kind = spec["kind"]
    if kind == "scripted":
        opened = not users_turn(history)
        return ScriptedUser(spec["opening"], spec["calls"], stop, opened=opened)
    if kind == "replay":
        return ReplayedUser(spec["messages"], stop)
    if kind != "model":
        raise ValueError(f"no user of the kind {kind!r}")
    model = spec["model"]
    seed = None if "seed" in (model.get("parameters") or {}) else spec.get("seed")
    return ModelUser(spec["scenario"], tools, history, await line(model), seed)


def users_turn(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user speaks next, after what was said and done before.

    Raises:
        ValueError: the history ends with a call that nobody answered.
    """
    if not history:
        return True
    last = history[-1]
    if last.get("tool_calls"):
        raise ValueError("the message history ends with a tool call that has no result")
    if last["role"] == "tool":
        return bool(last.get("requestor") == "user")
    return bool(last["role"] == "assistant")


def asking(gateway: Any, token: str) -> Ask:
    """Sends requests over a line of the gateway, from within its process.

    Args:
        gateway: the gateway, an ASGI application.
        token: of the line; known to nobody else.
    """

    async def ask(body: bytes) -> tuple[int, bytes]:
        given = False
        status, parts = 0, bytearray()

        async def receive() -> dict[str, Any]:
            nonlocal given
            if given:
                await asyncio.Event().wait()  # this client never hangs up
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "method": "POST",
            "path": f"/m/{token}/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"user-agent", b"dyno")],
        }
        await gateway(scope, receive, send)
        return status, bytes(parts)

    return ask


def _message(status: int, answer: bytes) -> dict[str, Any]:
    """The message of a chat completion.

    Raises:
        UserFailed: it is an error, or no chat completion.
    """
    if status != 200:
        told = answer[:300].decode("utf-8", "replace")
        raise UserFailed(f"the user's model answered with status {status}: {told}")
    try:
        message = json.loads(answer)["choices"][0]["message"]
        if not isinstance(message, dict):
            raise TypeError
    except (ValueError, LookupError, TypeError) as error:
        told = answer[:300].decode("utf-8", "replace")
        raise UserFailed(f"the user's model gave no message: {told or 'nothing'}") from error
    return message


def _turned(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """A message of a history as the user sees it; None where it does not."""
    role, calls = message["role"], message.get("tool_calls")
    if role == "tool":
        if message.get("requestor") != "user":
            return None
        return {
            "role": "tool",
            "tool_call_id": message["id"],
            "content": message.get("content") or "",
        }
    if role == "assistant":
        return None if calls else {"role": "user", "content": message.get("content") or ""}
    turned: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
    if calls:
        turned["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(call.get("arguments") or {}),
                },
            }
            for call in calls
        ]
    return turned


def _offered(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        },
    }


def _written(call: Mapping[str, Any]) -> UserCall:
    return UserCall(call["tool"], json.dumps(call.get("arguments") or {}))
