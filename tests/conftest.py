"""What every test stands on: a DYNO_HOME of its own, and no API keys.

Tests of real CLIs are marked `needs_harness("codex")`. They are skipped where the program is not found
(PATH, DYNO_HARNESS_PATH, or what `make harnesses` installed), unless DYNO_REQUIRE_HARNESSES names it (names
separated by spaces or commas): then they fail, so that a build that means to test it cannot be green without.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suites.errors import InputError
from suites.home import dyno_home

INSTALLED = dyno_home() / "harnesses"
"""Looked at before any test has a DYNO_HOME of its own."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or refuse to skip, a test of a real CLI that is not here."""
    from suites.loading import load_harness
    from tasks.configurations import Configured

    required = os.environ.get("DYNO_REQUIRE_HARNESSES", "").replace(",", " ").split()
    for marker in item.iter_markers("needs_harness"):
        [name] = marker.args
        try:
            Configured.of(load_harness(name))
        except InputError as error:
            if name in required:
                pytest.fail(f"DYNO_REQUIRE_HARNESSES names {name}: {error}", pytrace=False)
            pytest.skip(error.what)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DYNO_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("DYNO_HOME", str(folder))
    monkeypatch.delenv("DYNO_EVIDENCE", raising=False)
    return folder


@pytest.fixture
def harness_home(home: Path) -> Path:
    """An empty DYNO_HOME, but for the harnesses that are installed."""
    if INSTALLED.is_dir():
        (home / "harnesses").symlink_to(INSTALLED)
    return home
