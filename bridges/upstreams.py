"""Whom the gateway asks in an attempt's stead, and when that one is to blame.

A failure of the upstream makes an attempt an infrastructure error instead of the agent's failure, so
which failures are the upstream's is decided in one place, here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from bridges.ratelimits import RateLimiter
from bridges.wires import Wire

NOT_REACHED = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
)

FailureClass = Literal["upstream_unreachable", "upstream_auth", "upstream_error"]


@dataclass(frozen=True)
class Failure:
    """Why the upstream, and not the harness or its model, is to blame for a failed call."""

    kind: FailureClass
    detail: str

    def as_dict(self) -> dict[str, str]:
        """The close summary's form."""
        return {"class": self.kind, "detail": self.detail}


@dataclass(frozen=True)
class Upstream:
    """Where an attempt's model calls go.

    Attributes:
        url: the wire's full address, without query.
        key: the API key; None for an upstream without one.
        session: the client session to use.
        limiter: the model's rate limits; None for none.
        patience: seconds for which a shed request is repeated.
    """

    url: str
    wire: Wire
    model: str
    parameters: Mapping[str, Any]
    key: str | None
    prices: Mapping[str, Any] | None
    session: aiohttp.ClientSession
    limiter: RateLimiter | None
    patience: float


def failure_class(status: int) -> FailureClass | None:
    """The class of upstream failure that an erring reply is; None where the request is at fault.

    400, 413 and 422 say that the request is wrong (too long a context, an argument the model
    refuses): that is the harness's or its model's. All else is an endpoint that is not as the model
    file says, or does not work.
    """
    if status in (401, 403):
        return "upstream_auth"
    if status in (400, 413, 422):
        return None
    return "upstream_error"
