"""What OpenAI's two wires have in common: the key, the form of errors, the list of models."""

from __future__ import annotations

from typing import Any

from bridges.wires.reading import parsed

_FINAL_CODES = {"insufficient_quota", "billing_hard_limit_reached"}
_SHED = {
    "rate_limit_exceeded": 429, "429": 429, "server_is_overloaded": 529, "slow_down": 529, "529": 529,
}  # fmt: skip
"""Codes of an error that asks to come back, and the status that it stands for."""


class OpenAI:
    """The part of a wire that chat-completions and responses share."""

    def authorise(self, key: str) -> dict[str, str]:
        """The key as a bearer."""
        return {"Authorization": f"Bearer {key}"}

    def is_final(self, body: bytes) -> bool:
        """True for a 429 that means "no credit left"."""
        return bool(_codes(body) & _FINAL_CODES)

    def shed_by(self, data: bytes) -> int | None:
        """An error for want of room: chat's `{"error": …}`, or the event `error` of responses."""
        return next((_SHED[code] for code in _codes(data) if code in _SHED), None)

    def error(self, status: int, message: str, code: str) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def card(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models/ID` says of the line's model."""
        return {"id": model, "object": "model", "created": 0, "owned_by": "dyno"}

    def cards(self, model: str) -> dict[str, Any]:
        """What `GET /v1/models` says."""
        return {"object": "list", "data": [self.card(model)]}


def _codes(body: bytes) -> set[str]:
    """By what an error is known: its code and type; empty for what is none."""
    value = parsed(body)
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(value, dict) and not error and value.get("type") == "error":
        error = value
    if not isinstance(error, dict):
        return set()
    told = (error.get("code"), error.get("type"))
    return {str(word) for word in told if isinstance(word, str | int)}
