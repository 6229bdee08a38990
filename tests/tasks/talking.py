"""A small suite of conversations over declared tools, for tests of what is planned and what is lived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SCENARIO = "You want to know the weather in Oslo. Say ###STOP### when you know it."
OPENING = "What is the weather in Oslo?"
POLICY = "You are a weather desk."
TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    "result": "12 degrees",
}


def task(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A task in which a user asks for the weather; the gold is one call."""
    values: dict[str, Any] = {
        "id": f"talk-{number}",
        "messages": [{"role": "assistant", "content": "Hi! How can I help you today?"}],
        "policy": POLICY,
        "environments": [{"name": "weather", "tools": [TOOL]}],
        "user": {"scenario": SCENARIO, "script": {"opening": OPENING}},
        "grade": {
            "grader": "checks",
            "spec": {"checks": [{"kind": "stdout_contains", "text": "12 degrees"}]},
        },
        "oracle": {
            "calls": [{"tool": "get_weather", "arguments": {"city": "Oslo"}}],
            "answer": "It is 12 degrees.",
        },
    }
    return values | changes


def write_suite(folder: Path, *tasks: dict[str, Any], name: str = "talking") -> str:
    """The path of a suite of these tasks (none: one)."""
    suite = {
        "name": name,
        "version": "1",
        "benchmark": "talk",
        "dataset": {"source": "made", "version": "1"},
        "tasks": list(tasks) or [task()],
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(suite))
    return str(path)
