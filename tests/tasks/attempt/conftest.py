"""Attempts run for real: a host, a launcher, an MCP bridge over HTTP, a scripted model, a harness process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from suites.loading import Located
from suites.schema import Harness, Sweep
from tasks.attempt.job import Workshop
from tasks.attempt.policy import InfrastructureError
from tasks.planning import make_plan
from tasks.plans import Plan
from tasks.running import PLANS, close_workshop, run_planned, workshop
from warehouse.evidence import Bundle, Evidence


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One DYNO_HOME for all of these tests, so that they share a host and launchers."""
    return tmp_path_factory.mktemp("attempts")


@pytest.fixture(scope="session")
def shared_shop(shared_home: Path) -> Iterator[Workshop]:
    """The workshop of these tests; its host and launchers end with the session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(shared_home))
        shop = workshop()
    yield shop
    close_workshop()


@pytest.fixture
def shop(
    shared_shop: Workshop, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workshop]:
    """The shared workshop, with DYNO_HOME set to where its evidence lies; not stopping."""
    monkeypatch.setenv("DYNO_HOME", str(shared_home))
    yield shared_shop
    shared_shop.stopping.clear()


class Bench:
    """Plans and runs small sweeps of `hello-tools` in this process, without Prefect."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.evidence: Evidence = shop.evidence

    def plan(self, harness: Harness | str, **changes: Any) -> Plan:
        """A written plan; by default one task, the oracle, one repeat."""
        values: dict[str, Any] = {
            "name": "test",
            "suites": ["hello-tools"],
            "harnesses": [harness],
            "models": ["oracle"],
            "only": "weather",
        } | changes
        made = make_plan(Sweep.model_validate(values))
        made.write(self.evidence)
        PLANS[made.sweep_id] = made
        return made

    def run(self, harness: Harness | str, **changes: Any) -> Bundle:
        """The last try's bundle of the plan's first attempt, whether it has a result or not."""
        made = self.plan(harness, **changes)
        key = next(iter(made.by_key))
        try:
            run_planned(made.sweep_id, key)
        except InfrastructureError:
            pass
        bundle = self.evidence.bundle(self.evidence.tries(key)[-1])
        assert bundle is not None
        return bundle

    def run_all(self, plan: Plan, threads: int = 4) -> list[str]:
        """Each attempt's ending, or its error class."""

        def one(key: str) -> str:
            try:
                return run_planned(plan.sweep_id, key)["ending"]
            except InfrastructureError as error:
                return error.error_class

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, plan.by_key))


@pytest.fixture
def bench(shop: Workshop) -> Bench:
    """See `Bench`."""
    return Bench(shop)


@pytest.fixture
def shell() -> Callable[..., Harness]:
    """A harness made of one line of sh; the bridge is the command `tool`."""

    def make(script: str, **changes: Any) -> Harness:
        values = {
            "name": "line",
            "command": ["sh", "-c", script],
            "speaks": ["shell", "mcp"],
            "version": "1",
        } | changes
        return Harness.model_validate(values)

    return make


__all__ = ["Bench", "Located"]
