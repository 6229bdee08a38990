"""The state store of one try: what a durable harness checkpoints to, and finds again after it was killed.

Claim: it lives as long as the try, not as long as a launch. A harness that is killed and started again
over the same HOME (`phases` in its file) finds what it had stored, and nothing that another attempt did.

It is one more MCP server, reached by a token of its own: it is not among the servers that an agent is
told of, so no model is offered its tools, and its calls are journaled with requestor `store` and counted
nowhere among the agent's. The protocol is the one agentd calls the checkpointer profile (its store of
kind `mcp`, read in agentd-core 1.21.1, src/store/mcp.rs), under that profile's own names:

    state.put     {key, seq, state}   → {ok: true, seq}, or {ok: false, latest} where `seq` is not newer
    state.get     {key, seq?}         → {state, seq}, or an error where there is no such record
    state.list    {prefix}            → {keys: [{key, seq}]}
    state.delete  {key}               → {ok: true}

`put` is a compare-and-set: two lives of a harness that both believe to be the only one cannot overwrite
each other. Only the newest record of a key is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bridges.environments import Answer
from suites.schema import Tool

SERVER = "store"
"""The name of its server, in URL and journal."""
REQUESTOR = "store"
"""Whose calls these are, in the journal."""

_KEY = {"type": "string", "minLength": 1}
_NUMBER = {"type": ["integer", "null"]}
_SHAPES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "state.put": (
        "Store a record, if `seq` is newer than the stored one's.",
        {"key": _KEY, "seq": {"type": "integer"}, "state": {}},
        ["key", "seq", "state"],
    ),
    "state.get": ("The newest record of a key.", {"key": _KEY, "seq": _NUMBER}, ["key"]),
    "state.list": ("Keys that begin with a prefix.", {"prefix": {"type": "string"}}, []),
    "state.delete": ("Forget a key.", {"key": _KEY}, ["key"]),
}


class Store:
    """The records of one try, behind an endpoint (`bridges/environments.py` says of what shape)."""

    judges_calls = True  # a checkpoint is long, and checking its schema would tell nothing of it

    def __init__(self) -> None:
        self.records: dict[str, tuple[int, Any]] = {}
        # The names have dots, which no wire to a model would carry: no model ever sees them.
        self.tools: Sequence[Tool] = tuple(
            Tool.model_construct(
                name=name,
                native_name=None,
                description=description,
                input_schema={"type": "object", "properties": properties, "required": required},
                result=None,
                run=None,
            )
            for name, (description, properties, required) in _SHAPES.items()
        )

    async def call(self, tool: Tool, arguments: str | None) -> Answer:
        """The answer to one call. Texts are never cut: half a record is no record."""
        given = json.loads(arguments or "{}")
        if tool.name not in _SHAPES:
            return Answer("unknown_tool", f"There is no tool {tool.name!r} in the state store.")
        missing = [name for name in _SHAPES[tool.name][2] if name not in given]
        if missing:
            return Answer("refused", f"{tool.name} needs {', '.join(missing)}")
        if tool.name == "state.list":
            return self._list(given.get("prefix") or "")
        key = given["key"]
        if not isinstance(key, str) or not isinstance(given.get("seq", 0), int | None):
            return Answer("refused", "a key is text, and `seq` a whole number")
        if tool.name == "state.put":
            return self._put(key, given["seq"], given["state"])
        if tool.name == "state.get":
            return self._get(key, given.get("seq"))
        self.records.pop(key, None)
        return _told({"ok": True})

    def _put(self, key: str, seq: int, state: Any) -> Answer:
        known = self.records.get(key)
        if known is not None and known[0] >= seq:
            return _told({"ok": False, "latest": known[0]})
        self.records[key] = seq, state
        return _told({"ok": True, "seq": seq})

    def _get(self, key: str, seq: int | None) -> Answer:
        known = self.records.get(key)
        if known is None or seq not in (None, known[0]):
            return Answer("tool_error", "no such key")
        return _told({"state": known[1], "seq": known[0]})

    def _list(self, prefix: str) -> Answer:
        found = [
            {"key": key, "seq": seq}
            for key, (seq, _) in sorted(self.records.items())
            if key.startswith(prefix)
        ]
        return _told({"keys": found})


def _told(value: dict[str, Any]) -> Answer:
    return Answer("ok", json.dumps(value, ensure_ascii=False, separators=(",", ":")))
