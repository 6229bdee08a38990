"""BFCL's possible answers as calls that can be made: gold for control models.

A possible answer gives each parameter a list of acceptable values; `""` in it means the parameter may
be left out, and a dictionary inside it holds such lists again. Gold is rendered as upstream's checker
wants it: the first value that is not empty for what must be given, nothing for what may be left out,
and source text for Java and JavaScript, in the form that upstream's converter reads back to the value.

There is more than one way to write some values, and here and there the first value in the list is one
that the checker does not take. `renderings` gives the ways in order of preference; the converter keeps
the first that the checker passes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Arguments = dict[str, Any]
GoldCall = tuple[str, Arguments]
"""Native name and arguments."""

MOST_RENDERINGS = 64
JAVA_ELEMENTS = {"integer": "int", "any": "Object"}
"""BFCL's names of array elements that are not Java's own."""


def renderings(
    possible_answer: Sequence[Mapping[str, Mapping[str, Any]]],
    functions: Sequence[Mapping[str, Any]],
    language: str,
) -> Iterator[list[GoldCall]]:
    """The gold calls of one entry, in every way worth trying, the preferred one first.

    Args:
        possible_answer: upstream's `ground_truth`: one `{function: {parameter: values}}` a call.
        functions: the entry's function documents.
        language: `python`, `java` or `javascript`.
    """
    documents = {document["name"]: document["parameters"] for document in functions}
    calls = [next(iter(call.items())) for call in possible_answer]
    ways = [
        [(name, arguments) for arguments in _ways(options, documents.get(name, {}), language)]
        for name, options in calls
    ]
    most = max(map(len, ways), default=1)
    for step in range(most):  # each call has its own ways; they need not be tried in every pairing
        yield [way[min(step, len(way) - 1)] for way in ways]


def _ways(
    options: Mapping[str, Any], document: Mapping[str, Any], language: str
) -> list[Arguments]:
    """Argument objects for one gold call."""
    required = document.get("required", [])
    properties = document.get("properties", {})
    names, values = [], []
    for name, acceptable in options.items():
        may_go = "" in acceptable if isinstance(acceptable, list) else False
        if may_go and name not in required:
            continue
        part = properties.get(name, {})
        written = [
            text
            for value in _in_order(acceptable)
            for text in (
                [_resolved(value)] if language == "python" else _written(value, part, language)
            )
        ]
        names.append(name)
        values.append(written or [[] if part.get("type") in {"array", "tuple"} else ""])
    found = itertools.islice(_products(values), MOST_RENDERINGS)
    return [dict(zip(names, chosen, strict=True)) for chosen in found]


def _products(values: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Every choice of one value each: all the first ones, then those that change one, then the rest."""
    first = tuple(options[0] for options in values)
    yield first
    for place, options in enumerate(values):
        for option in options[1:]:
            yield (*first[:place], option, *first[place + 1 :])
    for chosen in itertools.product(*values):
        if sum(a is not b for a, b in zip(chosen, first, strict=True)) > 1:
            yield chosen


def _in_order(acceptable: Any) -> list[Any]:
    """The acceptable values, the empty string last."""
    if not isinstance(acceptable, list):
        return [acceptable]
    return [value for value in acceptable if value != ""] + [v for v in acceptable if v == ""]


def _resolved(value: Any) -> Any:
    """An acceptable value as it is given: in a dictionary, the first value of each key's list.

    One level only, as upstream compares: a dictionary inside a dictionary is a value as it stands.
    """
    if isinstance(value, list):
        return [_resolved(item) if isinstance(item, dict) else item for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _in_order(options)[0] if isinstance(options, list) and options else options
        for key, options in value.items()
        if not (isinstance(options, list) and "" in options)
    }


# ---------------------------------------------------------------- Java and JavaScript


def _written(value: Any, part: Mapping[str, Any], language: str) -> list[str]:
    """Source text for a value, the natural form first."""
    kind = str(part.get("type", "any"))
    items = str(part.get("items", {}).get("type", "any"))
    resolved = _resolved(value)
    if isinstance(resolved, str):
        return [resolved]
    if language == "java":
        return list(_java(resolved, kind, items))
    return list(_javascript(resolved, kind))


def _java(value: Any, kind: str, items: str) -> Iterator[str]:
    if isinstance(value, dict):
        puts = " ".join(
            f"put({json.dumps(k)}, {_java_scalar(v, 'any')});" for k, v in value.items()
        )
        yield f"new HashMap<String, Object>() {{{{ {puts} }}}}" if puts else "new HashMap<>()"
    elif isinstance(value, list):
        # In an array upstream keeps the quotes of its elements as part of them, in a list it does not.
        for quoted in (True, False):
            inside = ", ".join(_java_scalar(item, items, quoted=quoted) for item in value)
            if kind == "ArrayList":
                yield f"new ArrayList<>(Arrays.asList({inside}))" if value else "new ArrayList<>()"
            else:
                yield f"new {JAVA_ELEMENTS.get(items, items)}[]{{{inside}}}"
    else:
        yield _java_scalar(value, kind)


def _java_scalar(value: Any, kind: str, *, quoted: bool = True) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if quoted else value
    if value is None:
        return "null"
    suffix = {"long": "L", "float": "f"}.get(kind, "")
    return f"{value}{suffix}"


def _javascript(value: Any, kind: str) -> Iterator[str]:
    if kind == "Bigint" and isinstance(value, int) and not isinstance(value, bool):
        yield f"{value}n"
    yield json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        # Upstream reads a quoted key and value; text that is an expression stands without quotes.
        inside = ", ".join(
            f"{key}: {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}"
            for key, item in value.items()
        )
        yield f"{{{inside}}}"
    elif isinstance(value, list):
        yield f"[{', '.join(i if isinstance(i, str) else json.dumps(i) for i in value)}]"


# ---------------------------------------------------------------- made-up arguments


def made_up(schema: Mapping[str, Any]) -> Any:
    """A value that fits a tool's schema: the first that is allowed, nothing that is optional.

    For a task that wants a call and does not care which, and for a call that should not be made.
    """
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("anyOf"):
        return made_up(schema["anyOf"][0])
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: made_up(properties.get(name, {})) for name in schema.get("required", [])}
    if kind == "array":
        return [made_up(schema.get("items", {}))] * max(1, schema.get("minItems", 1))
    plain: dict[Any, Any] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}
    return plain.get(kind, "example")


def accepted_values(acceptable: Any) -> Iterator[Any]:
    """Every single value that one parameter's list names, dictionaries with and without their options.

    A dictionary varies one key at a time: enough to see which of its parts a schema refuses. The empty
    string is such a value where text is expected: upstream then takes it for what it says.
    """
    listed = acceptable if isinstance(acceptable, list) else [acceptable]
    if "" in listed and isinstance(next((v for v in listed if v != ""), None), str):
        yield ""
    for value in listed:
        if isinstance(value, dict):
            yield from _dictionaries(value)
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            first = _resolved(value)
            yield first
            for place, item in enumerate(value):
                for variant in _dictionaries(item) if isinstance(item, dict) else ():
                    yield [*first[:place], variant, *first[place + 1 :]]
        elif value != "":
            yield value


def _dictionaries(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    first = _resolved(value)
    yield first
    for key, options in value.items():
        for option in options if isinstance(options, list) else ():
            if option != "":
                yield {**first, key: option}
