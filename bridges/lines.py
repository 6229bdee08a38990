"""One attempt's access to its model: what it may spend, what it has, and how its last call ended.

The upstream is blamed for an attempt by one rule: the attempt's last model call was failed by the
upstream. A failure that a later call made good is no excuse, and one that nobody got past is none
of the agent's doing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bridges.budgets import Budget
from bridges.forwarding import Call
from bridges.journal import Journal
from bridges.metering import Meter
from bridges.ratelimits import WaitClock
from bridges.upstreams import Failure, Upstream


class Line:
    """One attempt's access to its model: what it may spend and what it has.

    An attempt whose user is a model has two, each metered by itself; `requestor` says whose it is, and
    `beside` is the line that the attempt has already.
    """

    def __init__(
        self,
        upstream: Upstream,
        journal: Journal,
        limits: dict[str, Any],
        budget_error: dict[str, Any],
        tell: Callable[..., None],
        missing_key: str | None,
        requestor: str = "agent",
        beside: Line | None = None,
    ) -> None:
        self.upstream = upstream
        self.journal = journal
        self.budget = Budget(limits, upstream.prices)
        self.budget_error = budget_error
        self.meter = Meter(upstream.prices)
        self.requestor = requestor
        self.clock = WaitClock(self._waits)
        self.attempts_clock: WaitClock = (
            beside.attempts_clock if beside else WaitClock(self._attempt_waits)
        )
        """Runs while any line of the attempt waits: what the working clock is stopped for."""
        self.missing_key = missing_key
        self.running: dict[asyncio.Task[None], Call] = {}
        self.first_contact_at: float | None = None
        self.last_activity_at: float | None = None
        self._tell = tell
        self._last_call = 0
        self._failure: Failure | None = None
        self._held = ExitStack()

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
            "waited_seconds": self.waited_seconds,
            "upstream_error": self._failure.as_dict() if self._failure else None,
            "first_contact_at": self.first_contact_at,
            "last_activity_at": self.last_activity_at,
        }

    @property
    def waited_seconds(self) -> float:
        """The agent's: how long the attempt's working clock stood; another's: how long it waited."""
        clock = self.attempts_clock if self.requestor == "agent" else self.clock
        return round(clock.seconds, 6)

    def _waits(self, waiting: bool) -> None:
        if waiting:
            self._held.enter_context(self.attempts_clock.waiting())
        else:
            self._held.close()

    def _attempt_waits(self, waiting: bool) -> None:
        seconds = round(self.attempts_clock.seconds, 6)
        self._tell({"event": "waiting", "waiting": waiting, "waited_seconds": seconds})
