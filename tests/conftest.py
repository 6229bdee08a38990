"""What every test stands on: a DYNO_HOME of its own, and no API keys."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty DYNO_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("DYNO_HOME", str(folder))
    monkeypatch.delenv("DYNO_EVIDENCE", raising=False)
    return folder
