"""One conversation: who speaks, what was said, how long it may go on, and how it ended.

The rules are those of the benchmark's own orchestrator, so that a conversation is cut off where that
would cut it off:

- what was said before it (the history, else the task's opening messages) decides who speaks first;
- a user that calls tools is asked again until it speaks;
- a step is a message with text, a tool call, or a call's result, by either side; an error is a call
  that failed, by either side; what was said and done before does not count;
- the limits are looked at after each message and each result, and come before a user's goodbye.

The agent speaks through `say`: the flow does for a harness that runs once a turn, and the tool
`respond_to_user` for one that runs once (`RespondToUser`). The agent's calls go to its endpoints as
ever; each tells the conversation what it came to (`called`). Once it is over, all of its endpoints
refuse what is asked of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bridges.conversation_tool import SPEAK, TOOL
from bridges.environments import Answer
from bridges.journal import Journal
from bridges.server import Endpoint
from bridges.texts import fit
from bridges.users import User, UserCall, UserFailed, users_turn
from suites.schema import Tool

log = logging.getLogger("dyno.conversation")

Blame = Literal["user", "agent"]
WITHOUT_ACTION = 10
"""A conversation that was cut off after so many of the agent's messages without a call of a tool of its
own, or so many calls of the user's on end, is the user's fault: it would not let go."""
REPEATS = 3
"""A user that says the same thing so often in a row is broken."""

STOP_SECONDS = 2.0
"""How long a user that is cut off is waited for."""
_OVER = "The conversation is over: nothing more can be said or done."


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: the benchmark's word for it, ours, and whose fault it was, if anybody's."""

    reason: str
    detail: str
    blame: Blame | None


class Conversation:
    """The state of one conversation.

    Args:
        terms: what `open` was given (`way`, `messages`, `stops`, `max_steps`, `max_errors`).
        history: what both said and did before, in the benchmark's form; `messages` are its texts.
        journal: the try's record.
        user: who plays the user.
        agents: the agent's endpoints.
        users: the user's; one of them at least.

    Attributes:
        by_tool: True where the agent speaks by a tool, and not by what it says last.
        end: how it ended; None while it goes on.
        transcript: what the agent has seen of it, as chat messages: texts of both, and its own calls.
        turns: how often the user has spoken, in its history too.
        user_seconds: how long the agent has waited for it.

    Raises:
        ValueError: a history that ends with a call nobody answered.
    """

    def __init__(
        self,
        terms: Mapping[str, Any],
        history: Sequence[Mapping[str, Any]],
        journal: Journal,
        user: User,
        agents: Iterable[Endpoint],
        users: Sequence[Endpoint],
    ) -> None:
        self.user = user
        self.by_tool: bool = terms["way"] == "tool"
        self.end: End | None = None
        self.transcript = [shown for shown in map(_shown, history) if shown is not None]
        self.turns = sum(_is_text(message, "user") for message in history)
        self.steps = 0
        self.errors = 0
        self._agent_errors = 0
        self._calls_on_end = 0
        self.user_seconds = 0.0
        self._users_turn = users_turn(history)
        self._stops: tuple[str, ...] = tuple(terms["stops"])
        self._max_steps: int = terms["max_steps"]
        self._max_errors: int = terms["max_errors"]
        self._journal = journal
        self._users = users
        self._endpoints = [*agents, *users]
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[str | None] | None = None
        self._latest: tuple[str, str | None] = ("", None)
        self._unheard = False
        self._last_said = ""
        self._said_again = 0
        self._without_action = 0
        for endpoint in self._endpoints:
            endpoint.watch = self.called
        journal.turn = 0
        for message in terms["messages"]:
            journal.turn += message["role"] == "user"
            self._write(message["role"], message["content"], opening=True)
        journal.turn = self.turns
        last = history[-1] if history else None
        if last is not None and _is_text(last, "user") and self._says_goodbye(last["content"]):
            self._finish("user_stop", "the user ended it before it began")

    def join(self, endpoint: Endpoint) -> None:
        """One more endpoint of the agent's: its calls count, and are refused once it is over."""
        self._endpoints.append(endpoint)
        endpoint.watch = self.called
        if self.end is not None:
            endpoint.refusal = _OVER

    # ------------------------------------------------------------ what happens

    async def begin(self) -> None:
        """Let the user speak first, where it is its turn.

        Raises:
            ConnectionAbortedError: the attempt was closed meanwhile.
        """
        if self._users_turn and self.end is None:
            await self._lock.acquire()
            self._running = asyncio.create_task(self._exchange(None))
            await asyncio.wait([self._running])
            if self._running.cancelled():
                raise ConnectionAbortedError("the attempt was closed before the user had spoken")

    async def say(self, text: str) -> str | None:
        """The agent says something; gives what the user answers, or None once it is over.

        A caller that goes away does not stop the user's turn. The answer that it missed is given to a
        caller that says the same again, and to any other before the answer to what that says.
        """
        await self._lock.acquire()
        missed, self._unheard = (self._latest if self._unheard else None), False
        if self.end is not None or (missed and missed[0] == text):
            self._lock.release()
            return missed[1] if missed and self.end is None else None
        running = self._running = asyncio.create_task(self._exchange(text))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            self._unheard = True
            raise
        reply = None if running.cancelled() else running.result()
        if reply is not None and missed and missed[1]:
            reply = f"{missed[1]}\n\n{reply}"
        return reply

    def called(
        self, requestor: str, seq: int, tool: str, arguments: str | None, answer: Answer
    ) -> None:
        """A call has come to this; told by the endpoints."""
        if self.end is not None or answer.status == "cancelled":
            return
        speaking = self.by_tool and requestor == "agent" and tool == SPEAK
        if speaking and answer.status == "ok":
            return  # it was a message, and has been counted as one
        if requestor == "agent" and not speaking:
            self._without_action = 0
            self.transcript += _call_and_result(f"call-{seq}", tool, arguments or "{}", answer.text)
        self._calls_on_end = self._calls_on_end + 1 if requestor == "user" else 0
        self.steps += 2
        self.errors += answer.is_error
        self._agent_errors += answer.is_error and requestor == "agent"
        self._look_at_limits()

    async def stop(self) -> None:
        """Cut off what is under way. Never hangs."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait([self._running], timeout=STOP_SECONDS)

    def close(self, reason: str | None, detail: str) -> None:
        """Write down the end where there was none; a reason of None is none."""
        if self.end is None and reason is not None:
            agents = reason in ("agent_error", "max_steps")
            self._finish(reason, detail, "agent" if agents else None)

    def told(self) -> dict[str, Any]:
        """What the flow is told of it."""
        ended = self.end.reason if self.end else None
        return {"messages": self.transcript, "ended": ended, "turn": self.turns}

    def summary(self) -> dict[str, Any]:
        """Its part of the close summary."""
        end = asdict(self.end) if self.end else {"reason": None, "detail": "", "blame": None}
        end["ended"] = end.pop("reason")
        counts = {"steps": self.steps, "errors": self.errors, "turns": self.turns}
        return {**end, **counts, "user_seconds": round(self.user_seconds, 3)}

    # ------------------------------------------------------------ one exchange

    async def _exchange(self, text: str | None) -> str | None:
        """What the agent says (None: nothing, it begins), and all that the user does about it."""
        reply, since = None, time.monotonic()
        try:
            if text is not None:
                self._agent_says(text)
            reply = await self._user_turn()
        except UserFailed as error:
            self._finish("user_error", str(error), "user")
        except Exception as error:
            log.exception("a conversation failed in the host")
            self._finish("user_error", f"the host failed: {type(error).__name__}", "user")
        finally:
            self._latest = (text or "", reply)
            if text is not None:
                self.user_seconds += time.monotonic() - since
            self._lock.release()
        return reply

    def _agent_says(self, text: str) -> None:
        if not text.strip():
            self._finish("agent_error", "the agent said nothing", "agent")
            return
        self.transcript.append({"role": "assistant", "content": text})
        self._write("assistant", text)
        self.user.hears(text)
        self.steps += 1
        self._without_action += 1
        self._calls_on_end = 0
        self._look_at_limits()

    async def _user_turn(self) -> str | None:
        silent = False
        while self.end is None:
            said = await self.user.turn()
            if self.end is not None:  # by a call that the agent made while the user thought
                break
            if said.calls:
                self.user.learns([(await self._call(call)).text for call in said.calls])
            elif said.text.strip():
                return self._user_says(said.text)
            elif silent:
                self._finish("user_error", "the user said nothing, twice", "user")
            else:
                silent = True
        return None

    def _user_says(self, text: str) -> str:
        self.turns += 1
        self._journal.turn = self.turns
        self.transcript.append({"role": "user", "content": text})
        self._write("user", text)
        self.steps += 1
        self._said_again = self._said_again + 1 if text == self._last_said else 1
        self._last_said = text
        self._look_at_limits()
        if self.end is None and self._says_goodbye(text):
            self._finish("user_stop", "the user ended the conversation")
        elif self.end is None and self._said_again >= REPEATS:
            self._finish("user_error", f"the user said the same {REPEATS} times in a row", "user")
        return text

    async def _call(self, call: UserCall) -> Answer:
        door = next((d for d in self._users if call.tool in d.names), self._users[0])
        return await door.perform(call.tool, call.arguments)

    def _says_goodbye(self, text: str) -> bool:
        return any(stop in text for stop in self._stops)

    # ------------------------------------------------------------ the end

    def _look_at_limits(self) -> None:
        if self.errors >= self._max_errors:
            users = f"{self.errors} tool calls failed, all of them the user's"
            told = users if not self._agent_errors else f"{self.errors} tool calls failed"
            self._finish("too_many_errors", told, None if self._agent_errors else "user")
        elif self.steps >= self._max_steps:
            idle = max(self._without_action, self._calls_on_end) >= WITHOUT_ACTION
            self._finish("max_steps", f"{self.steps} steps were made", "user" if idle else "agent")

    def _finish(self, reason: str, detail: str, blame: Blame | None = None) -> None:
        if self.end is not None:
            return
        self.end = End(reason, detail, blame)
        self._journal.append("conversation", "end", _WHOSE[blame], **asdict(self.end))
        for endpoint in self._endpoints:
            endpoint.refusal = _OVER

    def _write(self, role: str, content: str, *, opening: bool = False) -> None:
        requestor = "user" if role == "user" else "agent"
        self._journal.append(
            "conversation", "message", requestor, role=role, content=content, opening=opening
        )


_WHOSE: dict[Blame | None, str] = {"user": "user", "agent": "agent", None: "agent"}


class RespondToUser:
    """The environment of one tool through which an agent speaks to its user. It has no time limit: a
    user may take long, and the attempt's own deadline holds."""

    judges_calls = False
    tools = (Tool.model_validate(TOOL),)

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    async def call(self, tool: Tool, arguments: str | None) -> Answer:
        """What the user answers, or that the conversation is over."""
        message = json.loads(arguments or "{}")["message"]
        if not message.strip():
            return Answer("tool_error", "The message is empty: say something to the user.")
        reply = await self._conversation.say(message)
        end = self._conversation.end
        if end is not None:
            who = "The user has ended the conversation" if end.reason == "user_stop" else _ENDED
            return Answer("ok", f"{who}. Nothing more can be said or done; stop here.")
        if reply is None:  # the attempt was closed while the user thought
            return Answer("cancelled", "")
        return Answer("ok", *fit(reply))


_ENDED = "The conversation has ended"


def _is_text(message: Mapping[str, Any], role: str) -> bool:
    return message["role"] == role and not message.get("tool_calls")


def _shown(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """A message of a history as the agent sees it, as a chat message; None where it does not."""
    role, calls = message["role"], message.get("tool_calls")
    if role == "tool":
        if message.get("requestor") == "user":
            return None
        content = message.get("content") or ""
        return {"role": "tool", "tool_call_id": message["id"], "content": content}
    if role == "user":
        return None if calls else {"role": "user", "content": message.get("content") or ""}
    shown: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
    if calls:
        shown["tool_calls"] = [
            _tool_call(call["id"], call["name"], json.dumps(call.get("arguments") or {}))
            for call in calls
        ]
    return shown


def _call_and_result(identity: str, tool: str, arguments: str, result: str) -> list[dict[str, Any]]:
    call = _tool_call(identity, tool, arguments)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "content": result},
    ]


def _tool_call(identity: str, tool: str, arguments: str) -> dict[str, Any]:
    return {
        "id": identity,
        "type": "function",
        "function": {"name": tool, "arguments": arguments},
    }
