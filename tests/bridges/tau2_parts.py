"""Real τ² for tests of worlds: the domains' tasks and tools, calls in random order, and upstream's own
word on what they come to."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from bridges.tau2_package import PACKAGE, read_tasks
from suites.home import PROJECT

PINNED = ("26.3", "58c8bb42aa00094882188611ae2417798a4f0bde15f43f89f836d11c945d563c")
"""Version and hash of the wheel."""
SETUP = ("initialization_data", "initialization_actions", "message_history")
OFF = (
    "",
    "no such thing",
    -1,
    0,
    1e308,
    True,
    None,
    [],
    ["a", None],
    {},
    {"a": {"b": []}},
    "é\n'\"",
)
"""Arguments that no tool is made for."""


class Reference:
    """Upstream in a process apart (`tau2_reference.py`)."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "downloads" / f"{PACKAGE}-{PINNED[0]}"
        self._known: dict[str, dict[str, Any]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-B", str(Path(__file__).with_name("tau2_reference.py")), self.folder],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tasks(self, domain: str, file: str = "tasks") -> list[dict[str, Any]]:
        """A task file of a domain, as it stands there."""
        return read_tasks(self.folder / f"tau2/data/tau2/domains/{domain}/{file}.json")

    def spec(self, domain: str) -> dict[str, Any]:
        """The environment of a domain, as a suite states it."""
        named = {"kind": "tau2", "name": domain, "domain": domain, "package": PINNED[0]}
        return {**named, **self._ask({"tools": domain})}

    def comes_to(
        self, domain: str, setup: dict[str, Any] | None, calls: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """The answers to these calls and the hashes afterwards: `state`, and where they were made by
        `make_tool_call`, `made`."""
        asked = {"domain": domain, "setup": setup, "calls": calls}
        made = self._ask({**asked, "by": "make_tool_call"})
        return {**self._ask({**asked, "by": "get_response"}), "made": made["state"]}

    def begins(self, domain: str, setup: dict[str, Any] | None) -> dict[str, str | None]:
        """The hashes of a world before the first call."""
        asked = {"domain": domain, "setup": setup, "calls": [], "by": "get_response"}
        return self._ask(asked)["state"]

    def stop(self) -> None:
        self._process.communicate()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer; upstream is deterministic, so the same question is asked once."""
        line = json.dumps(question, sort_keys=True)
        if line not in self._known:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            self._known[line] = json.loads(self._process.stdout.readline())
        return self._known[line]


def setup_of(task: dict[str, Any]) -> dict[str, Any] | None:
    """What a suite states of a task's beginning."""
    initial = task.get("initial_state") or {}
    return {key: initial[key] for key in SETUP if initial.get(key) is not None} or None


def call(name: str, requestor: str = "assistant", **arguments: Any) -> dict[str, Any]:
    return {"requestor": requestor, "name": name, "arguments": arguments}


@cache
def gold(upstream: Reference, domain: str) -> list[dict[str, Any]]:
    """Every gold action of a domain's tasks, as calls, each once."""
    found: dict[str, dict[str, Any]] = {}
    for task in upstream.tasks(domain):
        for action in (task.get("evaluation_criteria") or {}).get("actions") or []:
            side = action.get("requestor", "assistant")
            made = {"requestor": side, "name": action["name"], "arguments": action["arguments"]}
            found.setdefault(json.dumps(made, sort_keys=True), made)
    return list(found.values())


def calls_in_any_order(
    upstream: Reference, domain: str, count: int, seed: int
) -> list[dict[str, Any]]:
    """Calls as no sensible agent makes them: right ones, and wrong ones of every kind."""
    chosen = random.Random(seed)
    spec = upstream.spec(domain)
    listed = [
        ({"tools": "assistant", "user_tools": "user"}[side], tool)
        for side in ("tools", "user_tools")
        for tool in spec[side]
    ]
    sides = ["assistant", "user"] if spec["user_tools"] else ["assistant"]
    calls = []
    for _ in range(count):
        made = json.loads(json.dumps(chosen.choice(gold(upstream, domain))))
        if chosen.random() < 0.5:
            side, tool = chosen.choice(listed)
            known = [each for each in gold(upstream, domain) if each["name"] == tool["name"]]
            arguments = dict(chosen.choice(known)["arguments"]) if known else {}
            for name in tool["input_schema"].get("properties", {}):
                if name not in arguments or chosen.random() < 0.2:
                    arguments[name] = chosen.choice(OFF)
            made = {"requestor": side, "name": tool["name"], "arguments": arguments}
        for spoil in chosen.sample(range(4), k=chosen.choice((0, 0, 0, 1, 2))):
            if spoil == 0 and made["arguments"]:
                made["arguments"].pop(chosen.choice(sorted(made["arguments"])))
            if spoil == 1:
                made["arguments"][chosen.choice(("requestor", "tool_name", "self", "more"))] = 1
            if spoil == 2:
                made["requestor"] = chosen.choice(sides)
            if spoil == 3 and chosen.random() < 0.3:
                made["name"] = chosen.choice(("nope", "", "use_tool", "db", "é" * 20))
        calls.append(made)
    return calls
