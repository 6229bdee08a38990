"""What a schema found wrong with a file, in words for the person who wrote it.

Claim: one mistake at a time, with the file, the line, the key from the top, what stands there and what
would be right. A schema's own report names types and unions that no file has.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from suites.errors import InputError

SHOWN = 80
"""Characters of a found value that a message quotes."""

Keys = Sequence[str | int]
"""A key's path from the top of a file: names, and numbers in lists."""


def key_path(path: Keys) -> str:
    """`("tasks", 2, "grade")` as it is said: `tasks[2].grade`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def read_yaml(path: Path) -> tuple[Any, str]:
    """A YAML file's value and its text.

    Raises:
        InputError: it cannot be read, is not YAML, or gives a key twice (the first would be lost).
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8 ({error.reason})"
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error
    try:
        return yaml.load(text, Loader=_Strict), text
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"not valid YAML: {error.problem}", where=f"{path}{line}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"not valid YAML: {error}", where=str(path)) from error


def place(path: Path, text: str, keys: Keys) -> str:
    """`file:line: key.path`; the line where YAML text has that key (its nearest parent, if missing)."""
    line = _line(text, keys)
    where = f"{path}:{line}" if line else str(path)
    return f"{where}: {key_path(keys)}" if keys else where


def explain(
    error: ValidationError, model: type[BaseModel]
) -> tuple[list[str | int], str, str | None]:
    """The first mistake a schema found: its key's path, what is wrong, and what would be right."""
    found_wrong = error.errors()
    # A misspelt key is reported before the key that it leaves missing: it is the one to mend.
    first = next((e for e in found_wrong if e["type"] == "extra_forbidden"), found_wrong[0])
    path = list(first["loc"])
    kind, found = first["type"], _short(first.get("input"))
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), sorted(_keys(model)), n=1)
        return path, "is not a key here", f"did you mean `{near[0]}`?" if near else None
    if kind == "missing":
        return path, "is missing", None
    if kind == "union_tag_invalid":
        context = first["ctx"]
        tags = f"one of {context['expected_tags']}"
        return path, f"{context['tag']!r} is not a known {_bare(context['discriminator'])}", tags
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "value_error" and isinstance(first.get("input"), dict):
        return path, message, None
    return path, f"{message}; found {found}", None


def refuse(
    error: ValidationError, model: type[BaseModel], path: Path, text: str, above: Keys = ()
) -> InputError:
    """The InputError for a YAML file whose value (or the part under `above`) is not a `model`."""
    keys, what, mend = explain(error, model)
    return InputError(what, where=place(path, text, [*above, *keys]), mend=mend)


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to a misspelt one, as a question; None if none is near."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean `{near[0]}`?" if near else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _bare(text: str) -> str:
    return text.strip("'\"")


def _keys(model: type[BaseModel]) -> set[str]:
    """Every key of a model and of the models inside it."""
    found: set[str] = set()
    seen: set[Any] = set()
    todo: list[Any] = [model]
    while todo:
        part = todo.pop()
        if isinstance(part, type) and issubclass(part, BaseModel):
            if part not in seen:
                seen.add(part)
                found |= set(part.model_fields)
                todo += [field.annotation for field in part.model_fields.values()]
        else:
            todo += getattr(part, "__args__", ())
    return found


class _Strict(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """YAML that refuses a key given twice."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    seen: set[str] = set()
    for key, _value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key `{key.value}` is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
    return dict(loader.construct_pairs(node, deep=True))


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _line(text: str, keys: Keys) -> int | None:
    """The 1-based line at which YAML text has a key, or its nearest parent."""
    try:
        node = yaml.compose(text, Loader=_Strict)
    except yaml.YAMLError:
        return None
    line = None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
        else:
            break
    return line
