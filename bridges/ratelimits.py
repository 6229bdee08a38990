"""Waiting for a turn: our own limits on a model, and the ones its upstream tells us of.

Our limits (`RateLimiter`) hold over all attempts of a sweep, in the order of arrival: at most so
many requests and tokens in any 60 seconds, so many at once. The upstream's 429, 529 and "503, come
back in …" are waited out by the gateway (`pause_before_retry`): some harnesses die of the first,
others repeat it for minutes, and neither says anything about the harness. A wait belongs to one
call and holds no slot, so a long `Retry-After` delays nobody else. The time is counted apart from
working time (`WaitClock`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

WINDOW = 60.0
"""Seconds that "a minute" of a rate limit is."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0


class Slot:
    """Leave to send one upstream request. Release it when the reply has been read.

    Attributes:
        tokens: what the request counts for; set it to the real figure before releasing.
    """

    def __init__(self, tokens: int, release: Callable[[], None]) -> None:
        self.at = 0.0
        self.tokens = tokens
        self._release = release

    def release(self) -> None:
        """Give the place among the concurrent requests back; the window keeps counting it."""
        self._release()


class RateLimiter:
    """The limits of one model, shared by all attempts.

    Args:
        requests_per_minute: in any 60 seconds.
        tokens_per_minute: input and output, in any 60 seconds. A request is counted at an estimate
            while it runs; one that alone exceeds the limit goes when nothing else is in the window.
        concurrency: requests in flight at once.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        concurrency: int | None = None,
    ) -> None:
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._places = asyncio.Semaphore(concurrency) if concurrency else None
        self._turn = asyncio.Lock()
        self._window: deque[Slot] = deque()

    @classmethod
    def for_model(cls, rate_limits: Mapping[str, Any] | None) -> RateLimiter | None:
        """A limiter for a model file's `rate_limits`; None where it sets none."""
        chosen = {k: v for k, v in (rate_limits or {}).items() if v is not None}
        return cls(**chosen) if chosen else None

    async def acquire(self, tokens: int) -> Slot:
        """Wait for a turn, first come, first served; `tokens` is the estimate for this request."""
        if self._places:
            await self._places.acquire()
        try:
            async with self._turn:
                while (pause := self._seconds_until_free(tokens)) > 0:
                    await asyncio.sleep(pause)
                slot = Slot(tokens, self._places.release if self._places else lambda: None)
                slot.at = time.monotonic()
                self._window.append(slot)
                return slot
        except BaseException:
            if self._places:
                self._places.release()
            raise

    def would_wait(self, tokens: int) -> bool:
        """Whether `acquire` would have to wait now."""
        busy = self._places is not None and self._places.locked()
        return busy or self._turn.locked() or self._seconds_until_free(tokens) > 0

    def _seconds_until_free(self, tokens: int) -> float:
        now = time.monotonic()
        while self._window and self._window[0].at <= now - WINDOW:
            self._window.popleft()
        if not self._window:
            return 0.0
        over_requests = self._requests is not None and len(self._window) + 1 > self._requests
        used = sum(slot.tokens for slot in self._window) if self._tokens is not None else 0
        over_tokens = self._tokens is not None and used + tokens > self._tokens
        if over_requests or over_tokens:
            return max(self._window[0].at + WINDOW - now, 0.001)
        return 0.0


class WaitClock:
    """How long an attempt has waited: the wall-clock during which at least one call did.

    Args:
        on_change: called with True when waiting begins and False when it ends.
    """

    def __init__(self, on_change: Callable[[bool], None] = lambda waiting: None) -> None:
        self._on_change = on_change
        self._waiting = 0
        self._since = 0.0
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """Waited so far, a wait under way included."""
        return self._seconds + (time.monotonic() - self._since if self._waiting else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The calls inside wait for their turn."""
        self._waiting += 1
        if self._waiting == 1:
            self._since = time.monotonic()
            self._on_change(True)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._seconds += time.monotonic() - self._since
                self._on_change(False)


def asks_to_come_back(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the upstream shed this request and wants it again later."""
    return status in (429, 529) or (status == 503 and retry_after(headers) is not None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the upstream asks to wait; None if it does not say (in a form known here)."""
    try:
        return max(float(headers["retry-after-ms"]) / 1000, 0.0)
    except (KeyError, ValueError):
        pass
    told = headers.get("retry-after")
    if told is None:
        return None
    try:
        return max(float(told), 0.0)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(told)
    except ValueError:
        return None
    return max((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time(), 0.0)


def pause_before_retry(tries: int, headers: Mapping[str, str]) -> float:
    """Seconds before the next try, after `tries` of them, never less than the upstream asked for.

    The jitter spreads attempts that were all turned away together, so that they do not return so.
    """
    asked = retry_after(headers)
    if asked is not None:
        return asked + random.uniform(0, min(1.0, 0.02 + asked / 4))
    return min(_FIRST_PAUSE * 2.0 ** (tries - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1.5)
