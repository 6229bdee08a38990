"""What answers behind an endpoint: the kinds of environment, and what a call to one comes to.

An endpoint (`server.py`) lists, judges and journals; an environment only answers calls that are
accepted. Where upstream has its own word on unknown names and wrong arguments, the environment
judges them itself (`judges_calls`). A new kind is a module beside `functions.py` and `tau2.py` with
a class of this shape, and a line in `host.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from suites.schema import Tool

Status = Literal["ok", "refused", "unknown_tool", "tool_error", "timeout", "crashed", "cancelled"]
"""What a call came to: answered; arguments that do not fit; no such tool; the environment's own
error; its worker hung, or died; the client went away or the attempt was closed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to: `text` as the agent reads it, `cut` bytes of it left out."""

    status: Status
    text: str
    cut: int = 0

    @property
    def is_error(self) -> bool:
        """What the agent is told; a cancelled call is told nothing."""
        return self.status not in ("ok", "cancelled")


class Environment(Protocol):
    """What a kind of environment does for its endpoint."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools it offers, as they are listed."""

    @property
    def judges_calls(self) -> bool:
        """True where it answers calls of any name with any object as arguments; schemas are only
        listed."""

    async def call(self, tool: Tool, arguments: str | None) -> Answer:
        """Answer a call whose arguments (raw JSON text) fit the tool's schema.

        One that judges calls gets every object, and for a name it never listed a tool of that name.
        """
