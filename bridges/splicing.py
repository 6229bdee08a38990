"""Change members of a JSON object and leave every other byte of it alone.

Parsing a request and writing it again would quietly rewrite numbers, escapes, spacing and duplicate
keys that nobody asked to change. Here the members that are not named keep their text, so "forwarded
byte for byte but for these edits" is true of what is inside them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")

REMOVE: Any = object()
"""As a new value: take the member out."""


@dataclass(frozen=True)
class Member:
    """One `"key": value` of the object; `text` is its source as it stood."""

    key: str
    value: Any
    text: str


def members(source: str) -> list[Member]:
    """The members of a JSON object in their order, duplicates too.

    Raises:
        ValueError: `source` is not one JSON object.
    """
    at = _skip(source, 0)
    if source[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _skip(source, at + 1)
    found: list[Member] = []
    closed = source[at : at + 1] == "}"
    while not closed:
        start = at
        key, at = _DECODER.raw_decode(source, at)
        at = _skip(source, at)
        if not isinstance(key, str) or source[at : at + 1] != ":":
            raise ValueError("a member without a name")
        value, end = _DECODER.raw_decode(source, _skip(source, at + 1))
        found.append(Member(key, value, source[start:end]))
        at = _skip(source, end)
        closed = source[at : at + 1] == "}"
        if not closed:
            if source[at : at + 1] != ",":
                raise ValueError("a member without an end")
            at = _skip(source, at + 1)
    if _skip(source, at + 1) != len(source):
        raise ValueError("something follows the object")
    return found


def with_changes(found: list[Member], changes: dict[str, Any]) -> str:
    """The object's text with some members set (in place, or at the end) or taken out (`REMOVE`)."""
    texts = []
    for member in found:
        if member.key not in changes:
            texts.append(member.text)
        elif changes[member.key] is not REMOVE:
            texts.append(_member(member.key, changes[member.key]))
    known = {member.key for member in found}
    texts += [_member(k, v) for k, v in changes.items() if k not in known and v is not REMOVE]
    return "{" + ",".join(texts) + "}"


def _member(key: str, value: Any) -> str:
    return f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"


def _skip(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    return match.end() if match else at
