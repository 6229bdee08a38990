"""Clients of a host in a process of their own: bare requests over open connections.

    python calls_process.py SECONDS RATE URL TOOL [URL TOOL …]

One client an URL. RATE is calls a second and client, evenly spread; 0: each calls again at once.
Prints the latencies in milliseconds, a JSON array.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import uvloop

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(url: str, tool: str) -> bytes:
    """The bytes of one tools/call."""
    parts = urlsplit(url)
    params = {"name": tool, "arguments": {"city": "Paris"}, "_meta": META}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(call).encode()
    head = [
        f"POST {parts.path} HTTP/1.1",
        f"host: {parts.netloc}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: tools/call",
        f"mcp-name: {tool}",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def client(url: str, tool: str, start: float, seconds: float, rate: float) -> list[float]:
    """The latencies of one client's calls."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    data, times = request(url, tool), []
    due = start
    while due < start + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        ended = time.perf_counter()
        times.append((ended - began) * 1000)
        due = due + 1 / rate if rate else ended
    writer.close()
    return times


async def main() -> None:
    seconds, rate = float(sys.argv[1]), float(sys.argv[2])
    targets = list(zip(sys.argv[3::2], sys.argv[4::2], strict=True))
    start = time.perf_counter() + 0.2
    shift = 1 / rate / len(targets) if rate else 0.0
    runs = [
        client(url, tool, start + number * shift, seconds, rate)
        for number, (url, tool) in enumerate(targets)
    ]
    print(json.dumps([latency for times in await asyncio.gather(*runs) for latency in times]))


uvloop.run(main())
