"""One attempt's access to its model: what it may spend, what it has, and how its last call ended.

The upstream is blamed for an attempt by one rule: the attempt's last model call was failed by the
upstream. A failure that a later call made good is no excuse, and one that nobody got past is none
of the agent's doing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bridges.budgets import Budget
from bridges.forwarding import Call
from bridges.journal import Journal
from bridges.metering import Meter
from bridges.ratelimits import WaitClock
from bridges.upstreams import Failure, Upstream


class Line:
    """One attempt's access to its model: what it may spend and what it has."""

    def __init__(
        self,
        upstream: Upstream,
        journal: Journal,
        limits: dict[str, Any],
        budget_error: dict[str, Any],
        tell: Callable[..., None],
        missing_key: str | None,
    ) -> None:
        self.upstream = upstream
        self.journal = journal
        self.budget = Budget(limits, upstream.prices)
        self.budget_error = budget_error
        self.meter = Meter(upstream.prices)
        self.clock = WaitClock(self._waits)
        self.missing_key = missing_key
        self.running: dict[asyncio.Task[None], Call] = {}
        self.first_contact_at: float | None = None
        self.last_activity_at: float | None = None
        self._tell = tell
        self._last_call = 0
        self._failure: Failure | None = None

    def touch(self) -> None:
        """Something came from, or went to, the harness."""
        self.last_activity_at = time.time()
        self.first_contact_at = self.first_contact_at or self.last_activity_at

    def refuses(self) -> str | None:
        """Count a call as started, or say which budget is spent; told to the flow once."""
        told = self.budget.spent
        which = self.budget.take_call()
        if which is None:
            self.meter.calls += 1
        elif told is None:
            self._tell({"event": "budget", "which": which})
        return which

    def settle(self, number: int, call: Call) -> None:
        """Count what call `number` used, and note whether the last call failed by the upstream."""
        self.meter.add(call.usage, call.cost)
        self.budget.count(call.usage, call.sent_bytes, call.received_bytes)
        if number >= self._last_call:
            self._last_call, self._failure = number, call.failure
        self.touch()

    def summary(self) -> dict[str, Any]:
        """The model's part of the close summary."""
        usage = self.meter.usage
        return {
            "model_calls": self.meter.calls,
            "usage": usage.as_dict() if usage else None,
            "cost": self.meter.cost,
            "budget": self.budget.spent,
            "waited_seconds": round(self.clock.seconds, 6),
            "upstream_error": self._failure.as_dict() if self._failure else None,
            "first_contact_at": self.first_contact_at,
            "last_activity_at": self.last_activity_at,
        }

    def _waits(self, waiting: bool) -> None:
        self._tell(
            {"event": "waiting", "waiting": waiting, "waited_seconds": round(self.clock.seconds, 6)}
        )
