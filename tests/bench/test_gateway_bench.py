"""What the gateway adds to a model call, on every wire: target, under 3 ms at the median.

Client, gateway and upstream (the scripted oracle) are three processes, connections stay open. A session of
200 calls is played, whose messages grow by a tool call and its result with each of them; a call through
the gateway is followed by the same call straight to the upstream. Reported are the difference of the
medians, and the 99th percentile of the differences, to the last byte and to the first; and the CPU time
of the gateway, which other work on the machine does not change.

    .venv/bin/python -m pytest tests/bench/test_gateway_bench.py --benchmark-enable -s
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bridges.gateway import WIRES
from bridges.scripted_upstream import ScriptedUpstream
from suites.home import PROJECT

CALLS = 200
PROMPT = "What is the weather in Paris? " * 20
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
NAMES = [f"tool_{n}" for n in range(20)]

Took = tuple[float, float]
"""Seconds to the first byte and to the last."""


def _chat(turns: int) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    for n in range(turns):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "tool_1", "arguments": "{}"},
        }
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": "Sunny, 21 degrees."})
    tools = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in NAMES]
    return {"messages": messages, "tools": tools, "stream_options": {"include_usage": True}}


def _responses(turns: int) -> dict[str, Any]:
    items: list[Any] = [{"role": "user", "content": PROMPT}]
    for n in range(turns):
        call = {"type": "function_call", "call_id": f"c{n}", "name": "tool_1", "arguments": "{}"}
        items.append(call)
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": "Sunny."})
    tools = [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES]
    return {"input": items, "tools": tools}


def _messages(turns: int) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    for n in range(turns):
        use = {"type": "tool_use", "id": f"c{n}", "name": "tool_1", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": "Sunny, 21 degrees."}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [result]})
    tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    return {"messages": messages, "tools": tools, "max_tokens": 999}


REQUESTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}


@dataclass
class Endpoint:
    """A keep-alive connection to a model's endpoint."""

    url: str
    path: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._line = http.client.HTTPConnection(str(parts.hostname), parts.port)
        self._path = f"{parts.path}/{self.path}"

    def call(self, body: bytes) -> Took:
        """Make one call."""
        began = time.perf_counter()
        self._line.request("POST", self._path, body, {"content-type": "application/json"})
        reply = self._line.getresponse()
        head = reply.read(1)
        first = time.perf_counter() - began
        data = head + reply.read()
        took = time.perf_counter() - began
        assert reply.status == 200
        assert b"tool_3" in data
        return first, took


@contextmanager
def endpoints(folder: Path, wire: str) -> Iterator[tuple[Endpoint, Endpoint, int]]:
    """The same scripted oracle, straight and through a gateway, and the gateway's process."""
    scripted = ScriptedUpstream()
    gold = [{"tool": "tool_3", "arguments": {"city": "Paris", "days": n}} for n in range(CALLS)]
    script = {"behaviour": "oracle", "seed": 1, "oracle": {"calls": gold}}
    straight = asyncio.run(scripted.open("token", script))
    command = [
        sys.executable, str(Path(__file__).parent / "gateway_process.py"), straight, str(folder), wire,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(PROJECT)}
    )
    assert process.stdin
    assert process.stdout
    port = int(process.stdout.readline())
    path = WIRES[wire].path
    try:
        through = Endpoint(f"http://127.0.0.1:{port}/m/token/v1", path)
        yield Endpoint(straight, path), through, process.pid
    finally:
        process.stdin.close()
        process.wait(10)
        scripted.stop()


def _cpu_seconds(pid: int) -> float:
    """What a process has used of the CPU, which a busy machine does not change; 0 where not told."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", REQUESTS)
def test_added_latency(benchmark, tmp_path: Path, wire: str, stream: bool) -> None:
    calls = CALLS if benchmark.enabled else 20
    # one call a response, as of a harness that makes one at a time
    alone: dict[str, Any] = {"parallel_tool_calls": False}
    if wire == "messages":
        alone = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    bodies = [
        json.dumps({"model": "m", **REQUESTS[wire](turn), **alone, "stream": stream}).encode()
        for turn in range(calls)
    ]
    pairs: list[tuple[Took, Took]] = []
    with endpoints(tmp_path, wire) as (straight, through, pid):
        for endpoint in (straight, through):
            for _ in range(20):
                endpoint.call(bodies[3])

        def session() -> None:
            for body in bodies:
                pairs.append((straight.call(body), through.call(body)))

        before = _cpu_seconds(pid)
        benchmark.pedantic(session, rounds=1, iterations=1)
        told = {"cpu_ms": (_cpu_seconds(pid) - before) * 1000 / calls}
    for at, name in enumerate(("first_byte", "added")):
        differences = sorted(t[at] - s[at] for s, t in pairs)
        medians = [
            statistics.median(took[at] for took in side) for side in zip(*pairs, strict=True)
        ]
        told[f"{name}_p50_ms"] = (medians[1] - medians[0]) * 1000
        told[f"{name}_p99_ms"] = differences[int(len(differences) * 0.99) - 1] * 1000
    benchmark.extra_info |= told
    print(
        f"\n{wire}, {'stream' if stream else 'whole'}, {calls} calls: gateway adds "
        f"p50 {told['added_p50_ms']:.2f} ms, p99 {told['added_p99_ms']:.2f} ms "
        f"(to the first byte {told['first_byte_p50_ms']:.2f}, {told['first_byte_p99_ms']:.2f}), {told['cpu_ms']:.2f} ms of CPU"
    )
    assert told["added_p50_ms"] < 20, "the target is 3 ms; far above it, something is wrong"
