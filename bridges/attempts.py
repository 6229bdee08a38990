"""One open try, as the host holds it, and what it comes to when it is closed."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridges.conversation import Conversation
from bridges.journal import Journal
from bridges.server import Endpoint, Tally
from bridges.tau2 import World

if TYPE_CHECKING:
    from bridges.gateway import Gateway

log = logging.getLogger("dyno.host")

GATEWAY_CLOSE_SECONDS = 15.0
"""How long closing waits for the gateway to settle an attempt's last model calls."""
NO_MODEL: dict[str, Any] = {
    "model_calls": 0,
    "usage": None,
    "cost": None,
    "budget": None,
    "waited_seconds": 0.0,
    "upstream_error": None,
    "ledger": None,
}
"""The model's part of a summary where the gateway had none."""
USERS_PART = ("model_calls", "usage", "cost", "upstream_error", "waited_seconds")
"""What a summary tells of the line of a user that is a model."""


@dataclass
class Attempt:
    """One open try: its token, its record, the endpoints that serve it, and who talks to its agent.

    The user's endpoints are reached by a token of their own, which no agent is told, and counted
    apart: whether the agent listed its tools, and how often it erred, is about the agent's alone.
    """

    token: str
    journal: Journal
    tally: Tally = field(default_factory=Tally)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    user_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    user_tally: Tally = field(default_factory=Tally)
    user_endpoints: dict[str, Endpoint] = field(default_factory=dict)
    store_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    store_endpoints: dict[str, Endpoint] = field(default_factory=dict)
    """The state store of a durable harness: reached by a token of its own, counted nowhere."""
    world: World | None = None
    has_model: bool = False
    conversation: Conversation | None = None
    user_line: str | None = None
    """Token of the gateway's line to the user's model; asked from within, routed to nobody."""

    _ending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def listed(self) -> bool:
        """True where every server that has tools had them listed."""
        return all(
            endpoint.listed or not endpoint.has_tools for endpoint in self.endpoints.values()
        )

    async def end(self, gateway: Gateway | None, reason: str | None, detail: str) -> dict[str, Any]:
        """Cancel what runs, complete the record, and sum up; the paths are gone already.

        An attempt that is closed while it is being opened is ended twice, one after the other: the
        second time for what was added meanwhile.

        Args:
            gateway: has the attempt's lines; None where there was never one.
            reason, detail: how its conversation ended, if it has not by itself.

        Returns:
            The close summary (`Host.close` says what it holds).
        """
        async with self._ending:
            return await self._end(gateway, reason, detail)

    async def _end(
        self, gateway: Gateway | None, reason: str | None, detail: str
    ) -> dict[str, Any]:
        talk = self.conversation
        if talk is not None:
            await talk.stop()
        served = (self.endpoints, self.user_endpoints, self.store_endpoints)
        endpoints = [endpoint for some in served for endpoint in some.values()]
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints), return_exceptions=True)
        if talk is not None:
            talk.close(reason, detail)
        if self.world is not None:
            await self.world.close()
        users_line, self.user_line = self.user_line, None
        has_model, self.has_model = self.has_model, False
        user = None
        if users_line is not None:
            settled = await self._settle(gateway, users_line)
            user = {name: settled.get(name) for name in USERS_PART}
        model = NO_MODEL | (await self._settle(gateway, self.token) if has_model else {})
        if user is not None:
            # an agent with a model of its own has no line that could tell of the waits for the user
            model["waited_seconds"] = max(model["waited_seconds"], user["waited_seconds"] or 0.0)
        self.journal.close()
        tally = self.tally
        firsts = [tally.first_contact_at, model.pop("first_contact_at", None)]
        lasts = [tally.last_activity_at, model.pop("last_activity_at", None)]
        return {
            "first_contact_at": min((at for at in firsts if at is not None), default=None),
            "last_activity_at": max((at for at in lasts if at is not None), default=None),
            "listed": self.listed,
            "tool_calls": tally.tool_calls,
            "tool_errors": tally.tool_errors,
            **model,
            "dropped": self.journal.dropped,
            "environment_lost": self.world.lost if self.world is not None else None,
            "conversation": talk.summary() if talk is not None else None,
            "user": user,
        }

    async def _settle(self, gateway: Gateway | None, line: str) -> dict[str, Any]:
        """Close a line of the gateway; what it used, or {} where that cannot be told."""
        try:
            assert gateway is not None
            return await asyncio.wait_for(gateway.close(line), GATEWAY_CLOSE_SECONDS)
        except Exception:
            log.exception("the gateway did not settle an attempt; its record counts as cut")
            self.journal.dropped = True
            return {}
