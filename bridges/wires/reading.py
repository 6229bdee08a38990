"""What all wires read alike: JSON that may be none, counts that may be false, forced members.

Nothing here knows where a wire puts its usage or how it words an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridges.splicing import REMOVE, Member, members, with_changes
from bridges.wires import Prepared

MOST_TOKENS = 10**12
"""A count past this is no measurement."""
_SHOWN = 300
"""Characters of a strange reply that its error quotes."""


@dataclass(frozen=True)
class Request:
    """A request that is a JSON object: what it asks, and what of it is to be changed."""

    found: list[Member]
    asked: dict[str, Any]
    changes: dict[str, Any]
    edits: tuple[str, ...]

    def prepared(self, body: bytes, *, strip_usage: bool = False) -> Prepared:
        """Ready to go upstream; `body` is what the client sent."""
        model = self.asked.get("model")
        return Prepared(
            body=with_changes(self.found, self.changes).encode() if self.changes else body,
            edits=self.edits,
            model=model if isinstance(model, str) else None,
            stream=self.asked.get("stream") is True,
            strip_usage=strip_usage,
        )


def forced(body: bytes, model: str, parameters: Mapping[str, Any]) -> Request | None:
    """The request with model id and parameters as they must be; None where it is no JSON object.

    A parameter of None takes the member out (for models that refuse one that a harness sends). One with
    dots in its name is inside an object (`reasoning.effort`), whose other members stay.
    """
    try:
        found = members(body.decode())
    except (ValueError, RecursionError):
        return None
    asked = {member.key: member.value for member in found}
    changes: dict[str, Any] = {}
    edits: list[str] = []
    if asked.get("model") != model:
        changes["model"] = model
        edits.append("model")
    for name, value in parameters.items():
        top, _, inner = name.partition(".")
        there = changes.get(top, asked.get(top, REMOVE))
        wanted = _inside(there, inner.split("."), value) if inner else value
        if wanted is None:
            wanted = REMOVE
        if there is REMOVE and wanted is REMOVE:
            continue
        if there is REMOVE or wanted is REMOVE or there != wanted:
            changes[top] = wanted
            edits.append(f"parameters.{name}")
    return Request(found, asked, changes, tuple(edits))


def _inside(there: Any, path: list[str], value: Any) -> Any:
    """An object with one value inside it set, or taken out; `REMOVE` where nothing is to be made."""
    held = dict(there) if isinstance(there, dict) else {}
    name, rest = path[0], path[1:]
    wanted = _inside(held.get(name, REMOVE), rest, value) if rest else value
    if wanted is None or wanted is REMOVE:
        if there is REMOVE or name not in held:
            return there
        del held[name]
        return held
    return {**held, name: wanted}


def parsed(body: bytes) -> Any:
    """The JSON value; None for what is none, or is nested too deep to read."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def too_deep(body: bytes) -> bool:
    """True for JSON that is nested deeper than it can be read."""
    try:
        json.loads(body)
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


def message(document: Mapping[str, Any], body: bytes) -> str:
    """The words of an error, or the beginning of what came in its place."""
    error = document.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    return told[:_SHOWN] if isinstance(told, str) and told else quoted(body)


def quoted(body: bytes) -> str:
    """The beginning of a strange reply."""
    return body[:_SHOWN].decode(errors="backslashreplace")


def strangeness(status: int, content_type: str, body: bytes, value: Any) -> str | None:
    """What is wrong with a reply of a good status, on every wire; None where it is an object."""
    if not body.strip():
        return f"status {status} with an empty body"
    if not isinstance(value, dict):
        kind = content_type or "no content type"
        return f"status {status} with {kind}, not JSON: {quoted(body)}"
    if value.get("error"):
        return f"status {status} with an error inside: {message(value, body)}"
    return None


def count(value: Any) -> int | None:
    """A token count as told; None where none is told.

    Raises:
        ValueError: what is told cannot be a count (negative, not finite, absurdly large), so that the
            whole account is not to be believed.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MOST_TOKENS:  # NaN is refused too: it compares false
        raise ValueError(f"{value} is no count of tokens")
    return int(value)


def first(told: Mapping[str, Any], *paths: str) -> int:
    """The first of these counts that is given, 0 if none is (ValueError as `count`)."""
    for path in paths:
        value: Any = told
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        found = count(value)
        if found is not None:
            return found
    return 0
