"""What an agent sent as a tool's arguments: kept byte-true, judged against the tool's schema.

A grader must see what the model wrote: `1.0` is not `1`, a key given twice was given twice, and an
integer of thirty digits has thirty. A parsed value has lost all that, so `read` finds the span of
`params.arguments` in the request's own text and keeps it as it stands. The MCP library downstream
is handed `{}` in its place: it need not parse the arguments again, and has no part in refusing
them.

`Checker` judges the value. Checking is bounded: what could take long (a regular expression, a
reference, thousands of items) is marked `costly`, and is then done in a worker that can be killed,
never in the process that serves everybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from jsonschema.exceptions import ValidationError
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry

from suites.canonical import canonical_json

MANY = 256
"""Commas in a JSON text from which on checking it is not done in the serving process."""
LONG = 65_536
"""Characters of a JSON text from which on the same holds."""
SHOWN = 3
"""How many of the problems of one call are told."""


class NotJSON(ValueError):  # noqa: N818 - the condition
    """The request's body is not one JSON value in UTF-8."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that is JSON, and yet more than can be taken in; says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    """One JSON-RPC message as it came.

    Attributes:
        method: `tools/call` and so on; None where the body is no single message.
        arguments: the raw JSON text of `params.arguments` of a `tools/call`; None where absent.
        value: that text parsed, or `Unreadable`; None where absent or `null`.
        body: the message for the MCP library: the same bytes but for the arguments, now `{}`.
    """

    method: str | None
    arguments: str | None
    value: Any
    body: bytes


# ---------------------------------------------------------------- the span


def read(body: bytes) -> Sent:
    """Find the arguments in a request's body.

    Raises:
        NotJSON: the body is not UTF-8, or not JSON.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise NotJSON(f"the body is not UTF-8 (byte {error.start})") from None
    start = _blank(text, 0)
    if not text.startswith("{", start):
        return Sent(None, None, None, body)
    members, end = _members(text, start, "params")
    if _blank(text, end) != len(text):
        raise NotJSON(f"the body goes on after its JSON object (character {end})")
    method = members["method"].value if "method" in members else None
    if not isinstance(method, str):
        return Sent(None, None, None, body)
    params = members["params"].value if "params" in members else None
    if method != "tools/call" or not isinstance(params, _Members) or "arguments" not in params:
        return Sent(method, None, None, body)
    span = params["arguments"]
    cleared = f"{text[: span.start]}{{}}{text[span.end :]}".encode()
    return Sent(method, text[span.start : span.end], span.value, cleared)


def sent_by_hand(arguments: str) -> Sent:
    """A `tools/call` with these arguments (JSON text) that no request brought."""
    try:
        value, end = _value(arguments, _blank(arguments, 0))
        if _blank(arguments, end) != len(arguments):
            raise NotJSON(f"they go on after their JSON value (character {end})")
    except NotJSON as error:
        value = Unreadable(f"they are not JSON: {error}")
    return Sent("tools/call", arguments, value, b"")


class _Span(NamedTuple):
    start: int
    end: int
    value: Any


class _Members(dict[str, _Span]):
    """An object's members by name; of a name given twice the last holds, as JSON readers do."""


def _members(text: str, at: int, inside: str | None) -> tuple[_Members, int]:
    """The members of the object at `at`, and where it ends; member `inside` is taken apart too."""
    found = _Members()
    at = _blank(text, at + 1)
    if text.startswith("}", at):
        return found, at + 1
    while True:
        if not text.startswith('"', at):
            raise NotJSON(f"a key was expected at character {at}")
        key, at = _value(text, at)
        at = _blank(text, at)
        if not text.startswith(":", at):
            raise NotJSON(f"a colon was expected at character {at}")
        start = _blank(text, at + 1)
        if key == inside and text.startswith("{", start):
            value, at = _members(text, start, None)
        else:
            value, at = _value(text, start)
        found[key] = _Span(start, at, value)
        at = _blank(text, at)
        if text.startswith("}", at):
            return found, at + 1
        if not text.startswith(",", at):
            raise NotJSON(f"a comma was expected at character {at}")
        at = _blank(text, at + 1)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_blanks = re.compile(r"[ \t\n\r]*")
_marks = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_scalar = re.compile(r"-?[A-Za-z0-9.+-]+")


def _blank(text: str, at: int) -> int:
    """Where the white space at `at` ends."""
    found = _blanks.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at `at` (`Unreadable` where Python cannot hold it) and where it ends."""
    try:
        return _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise NotJSON(f"{error.msg} (character {error.pos})") from None
    except RecursionError:
        return Unreadable("they are nested too deeply"), _leap(text, at)
    except ValueError as error:  # NaN, or an integer of more digits than Python converts
        reason = "they hold a number of too many digits" if "digits" in str(error) else str(error)
        return Unreadable(reason), _leap(text, at)


def _leap(text: str, at: int) -> int:
    """Where the value at `at` ends, found without taking it in: by the brackets outside strings."""
    if text[at] not in "[{":
        found = _scalar.match(text, at)
        return found.end() if found else at
    depth = 0
    for mark in _marks.finditer(text, at):
        if mark[0] in "[{":
            depth += 1
        elif mark[0] in "]}":
            depth -= 1
            if depth == 0:
                return mark.end()
    raise NotJSON("a bracket is not closed")


# ---------------------------------------------------------------- the schema


class Checker:
    """Judges arguments against one JSON Schema. Made once for each distinct schema, by `checker`.

    Attributes:
        costly: True where checking may take long whatever the arguments' size.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        kind = validator_for(schema, default=Draft202012Validator)
        # A registry of its own: the default one would fetch a reference from the network.
        self._validator = kind(schema, registry=Registry())
        self.costly = any(not _COSTLY.isdisjoint(part) for part in _subschemas(schema))

    def must_leave(self, text: str) -> bool:
        """True where arguments of this JSON text are to be checked in a worker process."""
        return self.costly or len(text) > LONG or text.count(",") > MANY

    def problem(self, value: Any) -> str | None:
        """What does not fit, a line a problem, each naming its path; None where all fits."""
        try:
            errors = list(islice(self._validator.iter_errors(value), SHOWN))
        except RecursionError:
            return "arguments: they are nested too deeply"
        except Exception as error:  # a schema or a number that the library cannot work with
            return f"arguments: they cannot be checked ({type(error).__name__}: {error})"
        return "\n".join(_told(error) for error in errors) or None


@lru_cache(maxsize=1024)
def _checker(canonical: bytes) -> Checker:
    return Checker(json.loads(canonical))


def checker(schema: dict[str, Any]) -> Checker:
    """The checker of this schema; attempts that share a schema share it."""
    return _checker(canonical_json(schema))


def shape_problem(sent: Sent) -> str | None:
    """Why the arguments are no object, as `Checker.problem` would say it; None if they are one."""
    if isinstance(sent.value, Unreadable):
        return f"arguments: {sent.value.reason}"
    if sent.value is None or isinstance(sent.value, dict):
        return None
    return f"arguments: an object is needed, not {_KINDS.get(type(sent.value), 'this')}"


_KINDS = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}

_COSTLY = frozenset(
    {
        "pattern",
        "patternProperties",
        "uniqueItems",
        "contains",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_DATA = ("enum", "const", "default", "examples", "required")


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema, itself too; a property called `pattern` is not the keyword."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            yield part
            for key, value in part.items():
                if key in _NAMED and isinstance(value, dict):
                    left.extend(value.values())
                elif key not in _DATA:
                    left.append(value)


def _told(error: ValidationError) -> str:
    path = "arguments"
    for step in error.absolute_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return f"{_short(path, 200)}: {_short(error.message, 300)}"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"
