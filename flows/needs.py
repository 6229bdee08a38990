"""What a sweep needs that is not there yet, told without importing Prefect."""

from __future__ import annotations

from collections.abc import Iterable

from suites.loading_suites import list_suites


def missing_suites(suites: Iterable[str]) -> list[str]:
    """The suites among these that a converter makes and that are not there yet."""
    wanted = [name for name in suites if name.startswith("bfcl-")]
    known = list_suites() if wanted else {}
    return [name for name in wanted if name not in known]
