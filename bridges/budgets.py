"""What an attempt may still spend on its model: calls, tokens, dollars.

Checked before each call: a call is let through while nothing is spent, and finishes even if it
overshoots. So `model_calls` is exact, and tokens and dollars may be exceeded by the calls in
flight. A call whose usage could not be measured is counted at an estimate here (and only here: the
meter says unknown), or else an upstream that reports no usage would have no budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bridges.metering import Usage, cost_of

Which = Literal["model_calls", "tokens", "dollars"]

BYTES_PER_TOKEN = 4
"""For estimates only; English and JSON lie between 3 and 5 with today's tokenizers."""


def estimated(sent_bytes: int, received_bytes: int) -> Usage:
    """Usage guessed from sizes, for a call that reported none."""
    return Usage(
        input=-(-sent_bytes // BYTES_PER_TOKEN), output=-(-received_bytes // BYTES_PER_TOKEN)
    )


class Budget:
    """The budget of one attempt.

    Args:
        limits: resolved limits; `model_calls`, `tokens` and `dollars` are read, None is no limit.
        prices: of the model, dollars per million tokens.

    Attributes:
        spent: which limit first refused a call; None while none has.

    Raises:
        ValueError: a limit in dollars on a model without prices, which could never hold.
    """

    def __init__(self, limits: Mapping[str, Any], prices: Mapping[str, Any] | None) -> None:
        self._prices = prices
        self._limits: dict[Which, float | None] = {
            "model_calls": limits.get("model_calls"),
            "tokens": limits.get("tokens"),
            "dollars": limits.get("dollars"),
        }
        if self._limits["dollars"] is not None and prices is None:
            raise ValueError("limits.dollars cannot hold: the model has no prices")
        self._used: dict[Which, float] = {"model_calls": 0, "tokens": 0, "dollars": 0.0}
        self.spent: Which | None = None

    def take_call(self) -> Which | None:
        """Count one call as started, or say which limit refuses it."""
        for which, limit in self._limits.items():
            if limit is not None and self._used[which] >= limit:
                self.spent = self.spent or which
                return which
        self._used["model_calls"] += 1
        return None

    def count(self, usage: Usage | None, sent_bytes: int, received_bytes: int) -> None:
        """Count what a finished call used, by its sizes where it was not measured."""
        usage = usage if usage is not None else estimated(sent_bytes, received_bytes)
        self._used["tokens"] += usage.total
        cost = cost_of(usage, self._prices)
        if cost is None and self._prices is not None:
            dearest = max(p for k, p in self._prices.items() if k != "date" and p is not None)
            cost = usage.total * dearest / 1_000_000
        self._used["dollars"] += cost or 0.0
