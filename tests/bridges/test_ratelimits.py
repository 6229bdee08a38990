"""Turns are given in order, within the limits, and the time they take is counted apart."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from bridges import ratelimits
from bridges.ratelimits import (
    RateLimiter,
    WaitClock,
    asks_to_come_back,
    pause_before_retry,
    retry_after,
)


@pytest.fixture
def short_minute(monkeypatch: pytest.MonkeyPatch) -> float:
    """A minute of 0.3 seconds."""
    monkeypatch.setattr(ratelimits, "WINDOW", 0.3)
    return 0.3


def test_requests_in_any_window_stay_within_the_limit(short_minute: float) -> None:
    async def run() -> list[float]:
        limiter = RateLimiter(requests_per_minute=3)

        async def one() -> float:
            slot = await limiter.acquire(1)
            slot.release()
            return slot.at

        return sorted(await asyncio.gather(*(one() for _ in range(8))))

    at = asyncio.run(run())
    for first, fourth in zip(at, at[3:], strict=False):
        assert fourth - first >= short_minute * 0.95


def test_turns_come_in_the_order_of_arrival(short_minute: float) -> None:
    async def run() -> list[int]:
        limiter, order = RateLimiter(requests_per_minute=2, concurrency=1), []

        async def one(number: int) -> None:
            slot = await limiter.acquire(1)
            order.append(number)
            await asyncio.sleep(0.01)
            slot.release()

        await asyncio.gather(*(one(number) for number in range(6)))
        return order

    assert asyncio.run(run()) == list(range(6))


def test_tokens_are_counted_at_their_real_figure_once_known() -> None:
    async def run() -> tuple[bool, bool]:
        limiter = RateLimiter(tokens_per_minute=100)
        slot = await limiter.acquire(90)
        full = limiter.would_wait(50)
        slot.tokens = 20
        slot.release()
        return full, limiter.would_wait(50)

    assert asyncio.run(run()) == (True, False)


def test_a_request_larger_than_the_limit_goes_alone(short_minute: float) -> None:
    async def run() -> None:
        limiter = RateLimiter(tokens_per_minute=100)
        await asyncio.wait_for(limiter.acquire(5_000), 1)
        await asyncio.wait_for(limiter.acquire(10), 2)

    asyncio.run(run())


def test_a_waiter_that_gives_up_keeps_nobody_else_from_going() -> None:
    async def run() -> None:
        limiter = RateLimiter(concurrency=1)
        slot = await limiter.acquire(1)
        waiting = asyncio.create_task(limiter.acquire(1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        slot.release()
        await asyncio.wait_for(limiter.acquire(1), 1)

    asyncio.run(run())


def test_waits_of_several_calls_at_once_count_once() -> None:
    heard: list[bool] = []

    async def run() -> float:
        clock = WaitClock(heard.append)

        async def wait() -> None:
            with clock.waiting():
                await asyncio.sleep(0.2)

        await asyncio.gather(*(wait() for _ in range(5)))
        return clock.seconds

    assert 0.19 <= asyncio.run(run()) < 0.9
    assert heard == [True, False]


def test_a_model_file_without_limits_has_no_limiter() -> None:
    assert RateLimiter.for_model({"requests_per_minute": None, "concurrency": None}) is None
    assert RateLimiter.for_model(None) is None


def test_retry_after_is_read_in_all_its_forms() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": "3"}) == 3.0
    assert retry_after({"retry-after": "0.5", "retry-after-ms": "70"}) == 0.07
    assert 25 < (retry_after({"retry-after": soon}) or 0) <= 30
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after": "-5"}) == 0.0
    assert retry_after({}) is None


def test_a_pause_is_never_shorter_than_asked_and_grows_where_nothing_is_said() -> None:
    assert all(pause_before_retry(1, {"retry-after": "2"}) >= 2 for _ in range(50))
    assert all(pause_before_retry(1, {}) <= 0.75 for _ in range(50))
    assert all(8 <= pause_before_retry(6, {}) <= 24 for _ in range(50))
    assert pause_before_retry(60, {}) <= 90


@pytest.mark.parametrize(
    ("status", "headers", "again"),
    [
        (429, {}, True),
        (529, {}, True),
        (503, {"retry-after": "1"}, True),
        (503, {}, False),
        (500, {"retry-after": "1"}, False),
        (200, {}, False),
    ],
)
def test_only_a_shed_request_is_repeated(status: int, headers: dict, again: bool) -> None:
    assert asks_to_come_back(status, headers) is again
