"""The reference harness: a plain ReAct loop, the baseline that every other harness is compared with.

It shows the model every tool of every MCP server, runs the calls the model asks for, one after
another, tells it the results, and stops when it asks for no more. Nothing else: no planning, no
memory, no prompt of its own, no repair of what the model says beyond telling it what was wrong.

    reference.py --messages FILE --mcp-config FILE --model-url URL --model ID [--steps N]
                 [--state FILE [--message FILE]]

The key for the model is read from OPENAI_API_KEY. The last text of the model goes to stdout. With
`--state` all messages are kept in that file when the model is done; with `--message` too it goes on from
there, with what that file holds as the user's next message.

Exit codes: 0 done; 3 the model's endpoint refused the request; 4 it failed or was out of reach; 5 the
budget is spent; 6 a bridge was out of reach; 7 the step limit was reached before the model was done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import openai
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

DONE, REFUSED, MODEL_FAILED, BUDGET, BRIDGE_FAILED, STEP_LIMIT = 0, 3, 4, 5, 6, 7
PATIENCE = httpx2.Timeout(1200, connect=10)
"""A tool's or a model's own slowness is not ours to cut off: whoever started us has a deadline."""


class Bridges:
    """The MCP servers of the task, as one set of tools for the model."""

    def __init__(self) -> None:
        self.tools: list[dict[str, Any]] = []
        self._routes: dict[str, tuple[Client, str]] = {}
        self._clients: list[Client] = []

    async def connect(self, name: str, client: Client) -> None:
        """List a server's tools; one whose name is taken is offered as `server__tool`."""
        self._clients.append(client)
        cursor, more = None, True
        while more:
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                offered = f"{name}__{tool.name}" if tool.name in self._routes else tool.name
                self._routes[offered] = (client, tool.name)
                function = {
                    "name": offered,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                }
                self.tools.append({"type": "function", "function": function})
            cursor = page.next_cursor
            more = cursor is not None

    async def call(self, name: str, arguments: str) -> str:
        """Make one call as the model asked for it; what went wrong is a text for the model."""
        if name not in self._routes and not self._clients:
            return f"Error: there is no tool {name!r}; there are no tools."
        client, tool = self._routes.get(name) or (self._clients[0], name)
        try:
            given = json.loads(arguments or "{}")
        except ValueError as error:
            return f"Error: the arguments are not valid JSON: {error}"
        if not isinstance(given, dict):
            return "Error: the arguments must be a JSON object."
        try:
            return _text(await client.call_tool(tool, given))
        except MCPError as error:
            return f"Error: {error}"


async def converse(
    model: openai.AsyncOpenAI, model_id: str, messages: list[Any], bridges: Bridges, steps: int
) -> int:
    """The loop: ask, act, tell, until the model asks for nothing. Returns an exit code."""
    offered: dict[str, Any] = {"tools": bridges.tools} if bridges.tools else {}
    for _ in range(steps):
        completion = await model.chat.completions.create(
            model=model_id, messages=messages, **offered
        )
        if not getattr(completion, "choices", None):  # HTML comes back as a string
            raise ValueError("a reply without choices")
        message = completion.choices[0].message
        messages.append(message.to_dict(exclude_none=True))
        if not message.tool_calls:
            # a model may answer with half a surrogate pair, which no stream takes
            print((message.content or "").encode("utf-8", "replace").decode())
            return DONE
        for call in message.tool_calls:
            function = getattr(call, "function", None)
            result = await bridges.call(function.name, function.arguments) if function else "Error"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(f"stopped after {steps} steps", file=sys.stderr)
    return STEP_LIMIT


def begin(arguments: argparse.Namespace) -> list[Any]:
    """The messages to start from: the task's, or those of the last turn and what the user said since."""
    if not (arguments.state and arguments.message):
        return list(json.loads(Path(arguments.messages).read_text()))
    kept = list(json.loads(Path(arguments.state).read_text()))
    return [*kept, {"role": "user", "content": Path(arguments.message).read_text("utf-8")}]


async def run(arguments: argparse.Namespace) -> int:
    """Connect to bridges and model, and converse."""
    messages = begin(arguments)
    servers = json.loads(Path(arguments.mcp_config).read_text())["mcpServers"]
    urls = [arguments.model_url, *(server["url"] for server in servers.values())]
    async with AsyncExitStack() as stack:
        # no TLS is set up where no address needs it: it costs more than the rest of an attempt
        secure = any(url.startswith("https:") for url in urls)
        http = await stack.enter_async_context(httpx2.AsyncClient(verify=secure, timeout=PATIENCE))
        bridges = Bridges()
        try:
            for name, server in servers.items():
                client = Client(streamable_http_client(server["url"], http_client=http), cache=None)
                await bridges.connect(name, await stack.enter_async_context(client))
        except (MCPError, httpx2.HTTPError, OSError, ExceptionGroup) as error:
            print(f"a bridge is out of reach: {_cause(error)!r}", file=sys.stderr)
            return BRIDGE_FAILED
        model = openai.AsyncOpenAI(
            base_url=arguments.model_url,
            api_key=os.environ.get("OPENAI_API_KEY") or "none",
            http_client=http,
        )
        try:
            code = await converse(model, arguments.model, messages, bridges, arguments.steps)
        except openai.APIStatusError as error:
            print(f"the model's endpoint answered {error.status_code}: {error}", file=sys.stderr)
            return _meaning(error)
        except (openai.APIError, ValueError) as error:
            print(f"the model's endpoint failed: {error}", file=sys.stderr)
            return MODEL_FAILED
    if arguments.state and code == DONE:
        Path(arguments.state).write_text(json.dumps(messages))
    return code


def _meaning(error: openai.APIStatusError) -> int:
    if error.status_code == 402:
        return BUDGET
    return REFUSED if error.status_code in (400, 413, 422) else MODEL_FAILED


def _cause(error: Exception) -> Exception:
    """What happened first, inside the groups that task groups make of it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _text(result: CallToolResult) -> str:
    return "\n".join(c.text for c in result.content if isinstance(c, TextContent))


def main() -> None:
    """Read the command line, run, and leave at once: nothing is left to tidy up."""
    parser = argparse.ArgumentParser(description="dyno's reference harness")
    parser.add_argument("--messages", required=True, help="JSON list of {role, content}")
    parser.add_argument("--mcp-config", required=True, help='{"mcpServers": {name: {"url": …}}}')
    parser.add_argument("--model-url", required=True, help="base URL, …/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--steps", type=int, default=40, help="model calls at most")
    parser.add_argument("--state", help="where the messages are kept from turn to turn")
    parser.add_argument("--message", help="file with the user's next message: go on from --state")
    code = asyncio.run(run(parser.parse_args()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
