"""What went over a try's bridges and gateway, a row a call, and what its conversation said, a row a text.

A call and its answer are two rows of a journal and one of the warehouse. Long texts are kept by their
beginning; the bundle has the rest.
"""

from __future__ import annotations

from typing import Any

from warehouse.columns import head, number, text, truth, when, whole

Row = dict[str, Any]

TEXT_KEPT = 2_000
"""Characters of a call's result that the warehouse keeps; the bundle has the rest."""
ARGUMENTS_KEPT = 20_000
"""Characters of a call's arguments that the warehouse keeps."""
MESSAGE_KEPT = 20_000
"""Characters of a message that the warehouse keeps."""

USAGE = {
    "input": "input_uncached",
    "cache_read": "cache_read",
    "cache_write": "cache_write",
    "output": "output",
    "reasoning": "reasoning",
}
"""The journal's name of each kind of token, and the column's."""


class Mark:
    """Which try (None: a judge's record) the rows are of; makes one row from a call and its answer."""

    def __init__(self, key: str, number: int | None, bundle_hash: str | None) -> None:
        self.key = key
        self.number = number
        self.bundle_hash = bundle_hash

    def tool_call(self, call: Row, result: Row | None) -> Row:
        """A row of `tool_calls`."""
        answer = result or {}
        return {
            **self._common(call, "call"),
            "server": text(call.get("server")),
            "tool": text(call.get("tool")),
            "native": text(call.get("native")),
            "arguments": head(call.get("arguments"), ARGUMENTS_KEPT),
            "result_seq": whole(answer.get("seq")),
            "status": text(answer["status"], required=True) if result else "unfinished",
            "is_error": truth(answer.get("is_error")),
            "ms": number(answer.get("ms")),
            "text": head(answer.get("text"), TEXT_KEPT),
            "cut": whole(answer.get("cut")),
        }

    def message(self, row: Row) -> Row:
        """A row of `messages`."""
        told = self._common(row, "message")
        told["said_at"] = told.pop("called_at")
        return {
            **told,
            "role": text(row["role"], required=True),
            "opening": truth(row.get("opening")) or False,
            "content": head(row.get("content"), MESSAGE_KEPT),
        }

    def model_call(self, request: Row, response: Row | None) -> Row:
        """A row of `model_calls`."""
        answer = response or {}
        usage = answer.get("usage") or {}
        return {
            **self._common(request, "request"),
            "judge": None,
            "wire": text(request.get("wire")),
            "stream": truth(request.get("stream")),
            "model": text(request.get("model")),
            "edits": [str(edit) for edit in request.get("edits") or []],
            "response_seq": whole(answer.get("seq")),
            "status": _status(response),
            "http_status": whole(answer.get("status")),
            **{name: number(answer.get(name)) for name in ("ms", "first_byte_ms", "queued_ms")},
            "upstream_tries": whole(answer.get("upstream_tries")),
            "tool_calls": whole(answer.get("tool_calls")),
            **{column: whole(usage.get(name)) for name, column in USAGE.items()},
            "cost": number(answer.get("cost")),
            "budget": text(answer.get("budget")),
            "error": head(answer.get("error"), TEXT_KEPT),
        }

    def _common(self, row: Row, event: str) -> Row:
        if row["event"] != event:
            raise ValueError(f"row {row['seq']} is no {event}")
        return {
            "attempt_key": self.key,
            "try": self.number,
            "seq": whole(row["seq"]),
            "bundle_hash": self.bundle_hash,
            "turn": whole(row.get("turn")),
            "requestor": text(row.get("requestor")) or "agent",
            "called_at": when(row.get("at")),
        }


def _status(response: Row | None) -> str:
    """One word for how a model call went."""
    if response is None:
        return "unfinished"
    if response.get("budget"):
        return "budget"
    if not response.get("complete", True):
        return "incomplete"
    http = whole(response.get("status"))
    return "ok" if http is not None and http < 400 and not response.get("error") else "error"
