"""What a column takes: a value of the right kind or None, and never something that only looks like it.

One wrong value in a file of a hundred thousand rows makes DuckDB refuse them all, so a value is looked at
where its record can still be named. Each function gives None for None and raises TypeError for a value of
another kind.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any


def text(value: Any, required: bool = False) -> str | None:
    """A text; with `required`, None is refused too."""
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def head(value: Any, kept: int) -> str | None:
    """The first `kept` characters of a text."""
    found = text(value)
    return found if found is None else found[:kept]


def whole(value: Any, bits: int = 63) -> int | None:
    """A whole number of at most so many bits; 2.0 is one, True is none."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value.bit_length() > bits:
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def number(value: Any) -> float | None:
    """A finite number."""
    if value is None:
        return None
    if not is_number(value):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)


def is_number(value: Any) -> bool:
    """True for a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def truth(value: Any) -> bool | None:
    """True or False."""
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{value!r:.40} is neither true nor false")


def when(seconds: Any) -> str | None:
    """UTC as DuckDB reads a timestamp; None for a moment no calendar holds."""
    found = number(seconds)
    if found is None:
        return None
    try:
        return datetime.fromtimestamp(found, UTC).replace(tzinfo=None).isoformat(" ")
    except (ValueError, OverflowError, OSError):
        return None
