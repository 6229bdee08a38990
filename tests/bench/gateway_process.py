"""A gateway in a process of its own, as in a sweep, for latency figures that share no interpreter."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvicorn
import uvloop

from bridges.gateway import Gateway
from bridges.journal import Journal


async def serve(upstream: str, folder: Path, wire: str) -> None:
    """Serve one line, `/m/token/v1`, until stdin ends; prints the port."""
    gateway = Gateway(lambda event: None)
    await gateway.start()
    model = {"endpoint": upstream, "model": "m", "name": "m", "wire": wire, "prices": None}
    await gateway.open("token", Journal(folder, 1), model, {}, {}, "key", 1)
    config = uvicorn.Config(gateway, port=0, lifespan="off", log_level="critical", access_log=False)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await task
    await gateway.stop()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
