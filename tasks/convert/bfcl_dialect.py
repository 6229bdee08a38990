"""BFCL's function documents as tools with valid JSON Schema.

BFCL writes types of its own (`dict`, `float`, `tuple`, `any`, and Java's and JavaScript's names), and
its documents contradict themselves here and there: an `enum` of strings under a boolean, a default
outside its type. Two rules decide what an agent is shown:

- A bridge must not refuse what upstream's checker would accept as right. Upstream compares strings
  without case, spaces and most punctuation, so a string's `enum` is advice: one of these, or another
  string. A stated default is a legal value, whatever its type. And a tool takes parameters it does not
  list (`additionalProperties` stays open): the leaderboard counts an unexpected parameter as a failure,
  so it is for the grader to say, where a refusal would let the agent try again.
- An agent is told what upstream tells a model: the type in the schema, the language in the
  function's description, and of Java and JavaScript parameters that they are source text.

Where gold contradicts even this, the one parameter is opened to any value (`open_to`), without saying
which value is wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator

from suites.schema import Tool

LONGEST_NAME = 64
LANGUAGES = {"python": "Python 3", "java": "Java 8", "javascript": "JavaScript"}

PLAIN_TYPES = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "dict": "object",
}
KEPT = ("minItems", "maxItems", "minimum", "maximum", "format")
"""JSON Schema's own keywords that BFCL uses, with its meaning."""
DROPPED = {"optional"}
"""Says again what `required` says."""

Schema = dict[str, Any]


class UnknownDialect(Exception):  # noqa: N818 - the condition
    """A function document with something this module has no translation for."""


def tools_of(functions: Iterable[Mapping[str, Any]], language: str) -> tuple[Tool, ...]:
    """The tools of one entry.

    Args:
        functions: the entry's function documents.
        language: `python`, `java` or `javascript`.

    Raises:
        UnknownDialect: a document that cannot be translated.
    """
    documents = list(functions)
    names = wire_names(document["name"] for document in documents)
    return tuple(
        Tool(
            name=names[document["name"]],
            native_name=document["name"] if names[document["name"]] != document["name"] else None,
            description=f"{document['description']} (Written for {LANGUAGES[language]}.)",
            input_schema=_parameters(document["parameters"], language),
        )
        for document in documents
    )


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Native name to a name that every wire takes, none of them twice.

    Raises:
        UnknownDialect: two functions of one entry share a native name.
    """
    natives = list(names)
    if len(set(natives)) != len(natives):
        raise UnknownDialect(f"two functions share a name: {sorted(natives)}")
    legal = {name: re.sub(r"[^A-Za-z0-9_]", "_", name)[:LONGEST_NAME] for name in natives}
    chosen = {name: name for name in natives if legal[name] == name}
    for name in natives:
        if name in chosen:
            continue
        candidate, number = legal[name], 1
        while candidate in chosen.values():
            number += 1
            suffix = f"_{number}"
            candidate = legal[name][: LONGEST_NAME - len(suffix)] + suffix
        chosen[name] = candidate
    return chosen


def _parameters(parameters: Mapping[str, Any], language: str) -> Schema:
    translate = _value if language == "python" else _source_text(language)
    properties = {name: translate(part) for name, part in parameters["properties"].items()}
    required = [name for name in parameters["required"] if name in properties]
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(dict.fromkeys(required))
    return schema


# ---------------------------------------------------------------- Python: values


def _value(part: Mapping[str, Any]) -> Schema:
    """A parameter, or a part of one."""
    choices = _choices(part)
    schema: Schema = {}
    if "description" in part:
        schema["description"] = part["description"]
    if len(choices) == 1:
        schema |= choices[0]
    else:
        schema["anyOf"] = choices
    if "default" in part:
        schema["default"] = part["default"]
    return schema


def _choices(part: Mapping[str, Any]) -> list[Schema]:
    """What the value may be: its type, what its `enum` adds to or says of it, its default."""
    kind = part.get("type")
    if kind == "any":
        return [{"type": "string"}, {}]  # upstream shows models a string and accepts what gold has
    if kind not in PLAIN_TYPES:
        raise UnknownDialect(f"the type {kind!r}")
    plain: Schema = {"type": PLAIN_TYPES[kind]}
    if "items" in part:
        items = dict(part["items"])
        if "enum" in part and PLAIN_TYPES[kind] == "array":  # written one level too high
            items.setdefault("enum", part["enum"])
        plain["items"] = _value(items)
    if "properties" in part:
        plain["properties"] = {name: _value(sub) for name, sub in part["properties"].items()}
    if isinstance(part.get("required"), list) and part["required"]:
        plain["required"] = list(part["required"])
    plain |= {key: part[key] for key in KEPT if key in part}
    choices = _with_enum(plain, part.get("enum"))
    if "default" in part and not any(_fits(part["default"], choice) for choice in choices):
        default = part["default"]
        choices.append({"type": "null"} if default is None else {"const": default})
    return choices


def _with_enum(plain: Schema, enum: list[Any] | None) -> list[Schema]:
    if enum is None or plain["type"] in {"array", "object"}:
        return [plain]
    listed: Schema = {"enum": [value for n, value in enumerate(enum) if value not in enum[:n]]}
    if plain["type"] != "string" and all(_fits(value, plain) for value in enum):
        return [{**plain, **listed}]
    return [listed, plain] if plain["type"] == "string" else [plain, listed]


def _fits(value: Any, schema: Schema) -> bool:
    if isinstance(value, str) and schema.get("type") == "string":
        return True  # most of them, and no string is kept short or patterned in this dialect
    return bool(Draft202012Validator(schema).is_valid(value))


# ---------------------------------------------------------------- Java, JavaScript: source text


def _source_text(language: str) -> Any:
    """A translator for parameters that upstream reads as source text of that language."""
    spoken = LANGUAGES[language].split()[0]

    def translate(part: Mapping[str, Any]) -> Schema:
        kind = part.get("type")
        what = f"any {spoken} value" if kind == "any" else f"a {spoken} {kind} value"
        words = [part.get("description", ""), f"Give the source text of {what}."]
        if "items" in part:
            words.append(f"Its elements are of type {part['items'].get('type', 'any')}.")
        if "properties" in part:
            words.append(f"Its entries: {json.dumps(part['properties'], ensure_ascii=False)}.")
        if "enum" in part:
            words.append(f"One of: {json.dumps(part['enum'], ensure_ascii=False)}.")
        schema: Schema = {"type": "string", "description": " ".join(filter(None, words))}
        if isinstance(part.get("default"), str):
            schema["default"] = part["default"]
        elif "default" in part:
            schema["default"] = json.dumps(part["default"], ensure_ascii=False)
        return schema

    return translate


# ---------------------------------------------------------------- gold against schema


def open_to(tool: Tool, arguments: Iterable[Mapping[str, Any]]) -> tuple[Tool, tuple[str, ...]]:
    """The tool, opened where right arguments do not fit, and the parameters that were opened.

    Args:
        tool: as translated from its document.
        arguments: argument objects that upstream's checker accepts.
    """
    schema = tool.input_schema
    properties = dict(schema["properties"])
    opened: list[str] = []
    for given in arguments:
        for name, value in given.items():
            if name in properties and name not in opened and not _fits(value, properties[name]):
                properties[name] = _opened(properties[name])
                opened.append(name)
    if not opened:
        return tool, ()
    return tool.model_copy(update={"input_schema": {**schema, "properties": properties}}), tuple(
        opened
    )


def _opened(schema: Schema) -> Schema:
    """The schema as advice: this, or anything."""
    outer: Schema = {key: schema[key] for key in ("description", "default") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in outer}
    choices = inner["anyOf"] if set(inner) == {"anyOf"} else [inner]
    return {**outer, "anyOf": [*choices, {}]}
