"""Evidence into the warehouse, where DYNO_HOME says both are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suites.home import dyno_home, evidence_root
from warehouse.load import LoadReport
from warehouse.load import load as load_into


def load(
    *,
    rebuild: bool = False,
    home: Path | None = None,
    evidence: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> LoadReport:
    """Bring the published warehouse up to date with the evidence.

    Args:
        rebuild: make it anew, from bundles alone.
        home: the DYNO_HOME whose warehouse it is; the current one if None.
        evidence: the evidence root; the current one if None.
        say: told what takes long, one line at a time.

    Raises:
        InputError: see `warehouse.load.load`.
    """
    home = home or dyno_home()
    return load_into(
        evidence or evidence_root(),
        home / "shards",
        home / "warehouse.duckdb",
        rebuild=rebuild,
        say=say,
    )
