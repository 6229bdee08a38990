"""A client of the 1.x SDK, run in an interpreter that sees that SDK alone; prints what it got.

python -S old_client.py URL SLOW_URL
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from importlib.metadata import version

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError


async def use(url: str) -> dict[str, object]:
    async with streamablehttp_client(url) as (read, write, session_id):
        async with ClientSession(read, write) as session:
            greeting = await session.initialize()
            tools = (await session.list_tools()).tools
            await session.send_roots_list_changed()
            good = await session.call_tool("weather_get", {"city": "Paris é", "days": 2})
            bad = await session.call_tool("weather_get", {"city": 5})
            unknown = await session.call_tool("nope", {})
            many = await asyncio.gather(
                *(session.call_tool("weather_get", {"city": str(n)}) for n in range(20))
            )
            pong = await session.send_ping()
        return {
            "sdk": version("mcp"),
            "protocol": greeting.protocolVersion,
            "server": greeting.serverInfo.name,
            "session": session_id(),
            "tools": [tool.name for tool in tools],
            "good": [good.isError, good.content[0].text, good.structuredContent],
            "bad": [bad.isError, bad.content[0].text],
            "unknown": [unknown.isError, unknown.content[0].text],
            "many": [answer.isError for answer in many],
            "pong": pong.model_dump(exclude_none=True),
        }


async def abandon(url: str) -> str:
    """Give up on a call, then leave with others still in flight."""
    async with (
        streamablehttp_client(url) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        try:
            await session.call_tool("wait", {}, read_timeout_seconds=timedelta(seconds=0.3))
        except McpError as error:
            return str(error)
    return "it was answered"


async def main() -> None:
    print(json.dumps({**await use(sys.argv[1]), "abandoned": await abandon(sys.argv[2])}))


asyncio.run(main())
