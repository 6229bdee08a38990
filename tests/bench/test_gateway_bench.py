"""What the gateway adds to a model call: target, under 3 ms at the median.

Client, gateway and upstream (the scripted oracle) are three processes, connections stay open; a call
through the gateway is followed by the same call straight to the upstream, and the difference of the
medians is what is reported.

    .venv/bin/python -m pytest tests/bench/test_gateway_bench.py --benchmark-enable -s
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bridges.scripted_upstream import ScriptedUpstream
from suites.home import PROJECT

TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}}
    for n in range(20)
]
MESSAGES = [{"role": "user", "content": "What is the weather in Paris? " * 20}]


@dataclass
class Endpoint:
    """A keep-alive connection to a chat-completions endpoint."""

    url: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._line = http.client.HTTPConnection(str(parts.hostname), parts.port)
        self._path = f"{parts.path}/chat/completions"

    def call(self, stream: bool = False) -> float:
        """Seconds for one call, to its last byte."""
        body = json.dumps(
            {
                "model": "m",
                "messages": MESSAGES,
                "tools": TOOLS,
                "stream": stream,
                "stream_options": {"include_usage": True},
            }
        )
        began = time.perf_counter()
        self._line.request("POST", self._path, body, {"content-type": "application/json"})
        reply = self._line.getresponse()
        data = reply.read()
        took = time.perf_counter() - began
        assert reply.status == 200
        assert b"tool_3" in data
        return took


@pytest.fixture
def endpoints(tmp_path: Path) -> Iterator[tuple[Endpoint, Endpoint]]:
    """The same scripted oracle, straight and through a gateway."""
    scripted = ScriptedUpstream()
    calls = [{"tool": f"tool_{n}", "arguments": {"city": "Paris", "days": n}} for n in (3, 4)]
    script = {"behaviour": "oracle", "seed": 1, "oracle": {"calls": calls}}
    straight = asyncio.run(scripted.open("token", script))
    command = [
        sys.executable,
        str(Path(__file__).parent / "gateway_process.py"),
        straight,
        str(tmp_path),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(PROJECT)}
    )
    assert process.stdin
    assert process.stdout
    port = int(process.stdout.readline())
    try:
        yield Endpoint(straight), Endpoint(f"http://127.0.0.1:{port}/m/token/v1")
    finally:
        process.stdin.close()
        process.wait(10)
        scripted.stop()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_added_latency(benchmark, endpoints, stream: bool) -> None:
    straight, through = endpoints
    for endpoint in endpoints:
        for _ in range(20):
            endpoint.call(stream)
    pairs: list[tuple[float, float]] = []
    rounds = 400 if benchmark.enabled else 20

    def pair() -> None:
        pairs.append((straight.call(stream), through.call(stream)))

    benchmark.pedantic(pair, rounds=rounds if benchmark.enabled else 1, iterations=1)
    while len(pairs) < rounds:
        pair()
    added = statistics.median(t for _, t in pairs) - statistics.median(s for s, _ in pairs)
    late = sorted(t - s for s, t in pairs)[int(len(pairs) * 0.99) - 1]
    benchmark.extra_info |= {"added_p50_ms": added * 1000, "added_p99_ms": late * 1000}
    print(
        f"\n{'stream' if stream else 'whole'}: gateway adds p50 {added * 1e3:.2f} ms, p99 {late * 1e3:.2f} ms"
    )
    assert added < 0.020, "the target is 3 ms; far above it, something is wrong and not just slow"
