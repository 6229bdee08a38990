"""Real parts for the host's tests: a host process, attempts in it, and a client of bare requests."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bridges.channel import Channel
from suites.home import PROJECT

WEATHER = {
    "name": "weather_get",
    "native_name": "weather.get",
    "description": "The weather somewhere.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
}
ANYTHING = {"type": "object"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def coded(*functions: str, file: str = "code.py") -> list[dict[str, Any]]:
    """Tools that run the functions of one file, each under its own name."""
    return [{"name": name, "input_schema": ANYTHING, "run": f"{file}:{name}"} for name in functions]


class RunningHost:
    """A host process, held by its control line as a flow would."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._numbers = itertools.count(1)
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bridges.host", "--control-fd", str(theirs.fileno())],
                cwd=PROJECT,
                env={**os.environ, **(env or {})},
                pass_fds=(theirs.fileno(),),
            )
        self.channel = Channel(ours, on_event=self.events.put)
        self.ready = self.events.get(timeout=60)
        self.port: int = self.ready["port"]

    def open(
        self,
        *tools: dict[str, Any],
        result: str | None = "sunny",
        root: Path | None = None,
        environments: list[dict[str, Any]] | None = None,
        model: dict[str, Any] | None = None,
        setup: dict[str, Any] | None = None,
        conversation: dict[str, Any] | None = None,
        **limits: Any,
    ) -> Opened:
        """An attempt with one `functions` environment of these tools, or with `environments`."""
        key = f"attempt{next(self._numbers)}"
        folder = self.folder / key
        folder.mkdir()
        declared = {"name": "functions", "kind": "functions", "tools": tools, "result": result}
        given = [{**declared, "root": str(root) if root else None}]
        answer = self.channel.call(
            "open",
            timeout=30,
            attempt=key,
            folder=str(folder),
            environments=given if environments is None else environments,
            limits={"tool_seconds": 10, **limits},
            budget_error={"status": 402, "body": {"error": "spent"}},
            model=model,
            setup=setup,
            conversation=conversation,
            **{"try": 1},
        )
        return Opened(self, key, folder, answer)

    def stats(self) -> dict[str, Any]:
        return self.channel.call("stats", timeout=30)

    def stop(self) -> None:
        self.channel.close()
        self.process.wait(10)


@dataclass(frozen=True)
class Opened:
    """One open attempt."""

    host: RunningHost
    key: str
    folder: Path
    answer: dict[str, Any]

    @property
    def url(self) -> str:
        return self.answer["servers"][0]["url"]

    @property
    def user_url(self) -> str:
        return self.answer["user_servers"][0]["url"]

    def client(self) -> Bare:
        return Bare(self.url)

    def state(self) -> dict[str, Any]:
        """The hashes of its world's databases."""
        return self.host.channel.call("state", timeout=60, attempt=self.key, **{"try": 1})

    def say(self, text: str) -> dict[str, Any]:
        return self.host.channel.call("say", timeout=60, attempt=self.key, text=text, **{"try": 1})

    def close(self, reason: str | None = None) -> dict[str, Any]:
        return self.host.channel.call(
            "close", timeout=30, attempt=self.key, reason=reason, **{"try": 1}
        )

    def rows(self, event: str | None = None, file: str = "bridge") -> list[dict[str, Any]]:
        """The rows of one of the record's files so far, those of one event."""
        path = self.folder / f"{file}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines]
        return [row for row in rows if event in (None, row["event"])]


class Bare:
    """A keep-alive connection that sends what it is told, byte for byte."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=60)

    def send(
        self, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST"
    ) -> tuple[int, bytes]:
        """Status and body of the answer to one request."""
        self.connection.request(method, self.path, body, self._headers(headers or {}))
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def call(self, name: str, arguments: str = "{}") -> dict[str, Any]:
        """The result of a tools/call whose arguments are this very text (`isError`, `text`)."""
        params = f'"name":{json.dumps(name)},"arguments":{arguments},"_meta":{json.dumps(META)}'
        return self._result("tools/call", params, {"mcp-name": name})

    def tools(self) -> list[dict[str, Any]]:
        """What tools/list answers."""
        return self._result("tools/list", f'"_meta":{json.dumps(META)}', {})["tools"]

    def _result(self, method: str, params: str, headers: dict[str, str]) -> dict[str, Any]:
        body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}'
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        status, answer = self.send(body.encode("utf-8", "surrogateescape"), headers)
        reply = json.loads(answer)
        assert status == 200, reply
        result = reply["result"]
        if "content" in result:
            (block,) = result["content"]
            assert block["type"] == "text"
            result["text"] = block["text"]
        return result

    @staticmethod
    def _headers(more: Mapping[str, str]) -> dict[str, str]:
        kind = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return {**kind, **more}
