"""A host process shared by the tests of one module; attempts are what tests make their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from host_parts import RunningHost


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    running = RunningHost(tmp_path_factory.mktemp("host"))
    yield running
    running.stop()


@pytest.fixture
def own_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """For tests that kill it, or look at what it knows."""
    running = RunningHost(
        tmp_path_factory.mktemp("own"), env={"VENDOR_API_KEY": "sk-not-to-be-seen"}
    )
    yield running
    running.stop()
