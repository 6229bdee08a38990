"""Code behind a tool of hello-tools.yaml: it runs in a worker process, once for each call.

A tool's function takes the call's arguments by name and returns what the agent is told: text, or a
value that becomes JSON. An exception comes back to the agent as a tool error.
"""

from __future__ import annotations

ABSOLUTE_ZERO = -273.15


def to_fahrenheit(celsius: float) -> str:
    """The temperature in degrees Fahrenheit, one decimal."""
    if celsius < ABSOLUTE_ZERO:
        raise ValueError(f"{celsius} °C is below absolute zero")
    return f"{celsius * 9 / 5 + 32:.1f}"
