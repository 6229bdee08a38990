"""What model calls used and what that cost, or NULL; never 0 for what was not measured.

A cost that silently leaves a call out makes the configuration with the most broken calls look the
cheapest. So one unmeasured call makes the attempt's usage and cost unknown, and one token of a kind
that has no price makes its cost unknown.

Tokens are split so that no kind contains another, but for `reasoning`, which is a part of `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, or of several together."""

    input: int = 0
    """Uncached input."""
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    """All that was generated, reasoning included."""
    reasoning: int = 0
    """The part of `output` that was reasoning; 0 where the upstream does not tell."""

    @property
    def total(self) -> int:
        """Input of every kind plus output."""
        return self.input + self.cache_read + self.cache_write + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )

    def as_dict(self) -> dict[str, int]:
        """The journal's form."""
        return asdict(self)


NOTHING = Usage()
"""Measured: no token was used (an error reply, a call that was never sent)."""


def cost_of(usage: Usage | None, prices: Mapping[str, Any] | None) -> float | None:
    """US dollars for `usage` at `prices` (per million tokens); None: not measured or not priced.

    A kind of token needs a price only where tokens of that kind were used.
    """
    if usage is None or prices is None:
        return None
    dollars = 0.0
    for kind in ("input", "cache_read", "cache_write", "output"):
        tokens = getattr(usage, kind)
        if tokens:
            price = prices.get(kind)
            if price is None:
                return None
            dollars += tokens * price
    return dollars / 1_000_000


class Meter:
    """The sum over an attempt's model calls.

    Attributes:
        calls: model calls that were let through (a call that the gateway retried is one).
        usage: tokens, or None once a call's were not measured.
        cost: US dollars, or None once a call was not measured or not priced.
    """

    def __init__(self, prices: Mapping[str, Any] | None) -> None:
        self.calls = 0
        self.usage: Usage | None = NOTHING
        self.cost: float | None = None if prices is None else 0.0

    def add(self, usage: Usage | None, cost: float | None) -> None:
        """Count what one finished call used; None is "unknown" and stays so."""
        self.usage = None if self.usage is None or usage is None else self.usage + usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost
