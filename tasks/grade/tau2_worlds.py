"""The worlds that upstream's evaluator replays in, without parsing or hashing what nobody touched.

Claim: an environment made here answers as one made from the files does, its database hash is equal to
another's exactly if upstream's would be, and nothing that happens in it reaches the next one.

How: a domain's databases are parsed once a process and never changed after. A world gets a copy of them
(`tau2_copies.py`) that copies a record when somebody reaches for it, so the cost of a replay is that of
the records it touches. What nobody touched is known by identity and only the rest is compared; what then
counts as a difference is upstream's own text of the record (`model_dump` by the database's class,
`json.dumps` with sorted keys), of which its hash is made.

One thing of upstream's leaks within a process: toolkits keep models as attributes of their class, and
an initialization action changes one for good. They are put back before each attempt.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel

from bridges.tau2_package import Tau2
from bridges.tau2_world import steady_ids
from tasks.grade.tau2_copies import ABSENT, Absent, Many, Mould, mould_of

Changes = dict[tuple[str, str], tuple[Any, Any]]
"""(field, key) of each record that differs from pristine → (as it is, as it was); a field that is no
dictionary has the key "". `ABSENT` where there is or was none."""


class Worlds:
    """A domain's environments, over databases parsed once.

    Args:
        tau2: upstream.
        domain: upstream's name.
    """

    def __init__(self, tau2: Tau2, domain: str) -> None:
        self._tau2 = tau2
        self._domain = domain
        self._databases = tau2.databases(domain)
        self._moulds = {name: mould_of(db) or Mould(db) for name, db in self._databases.items()}
        pristine = tau2.pristine(domain)
        _read_once(tau2.module(f"domains.{domain}.environment"))
        self._kept = [
            (owner, name, mould)
            for toolkit in (pristine.tools, pristine.user_tools)
            for owner in type(toolkit).__mro__
            for name, value in vars(owner).items()
            if isinstance(value, BaseModel | list | dict | set) and not name.startswith("__")
            if (mould := mould_of(copy.deepcopy(value))) is not None
        ]

    def begin(self) -> None:
        """Forget what the attempt before left in upstream's classes."""
        for owner, name, mould in self._kept:
            setattr(owner, name, mould.cast())

    def make(self, **arguments: Any) -> World:
        """A new environment in its pristine state, with upstream's arguments."""
        steady_ids()
        databases = {name: mould.cast() for name, mould in self._moulds.items()}
        environment = self._tau2.environment(self._domain, **databases, **arguments)
        return World(environment, self._databases, self._moulds)


def _read_once(module: Any) -> None:
    """Let upstream's constructor of a domain read its policy's files once a process, as its databases."""
    load_file = getattr(module, "load_file", None)
    if load_file is None or hasattr(load_file, "texts"):
        return
    texts: dict[str, str] = {}

    def remembered(path: Any, **arguments: Any) -> Any:
        known = texts.get(str(path)) if not arguments else None
        if known is not None:
            return known
        value = load_file(path, **arguments)
        if type(value) is str and not arguments:  # what cannot change may be given to everybody
            texts[str(path)] = value
        return value

    remembered.texts = texts  # type: ignore[attr-defined]
    module.load_file = remembered


class World:
    """An environment and what changed in it.

    Attributes:
        environment: upstream's; its toolkits' `get_db_hash` are ours.
        changes: side (`assistant`, `user`) → what had changed when its hash was last asked for.
    """

    def __init__(
        self, environment: Any, databases: dict[str, Any], moulds: dict[str, Mould]
    ) -> None:
        self.environment = environment
        self.changes: dict[str, Changes] = {}
        sides = (("assistant", "tools", "db"), ("user", "user_tools", "user_db"))
        for side, attribute, name in sides:
            toolkit = getattr(environment, attribute)
            if toolkit is not None and name in databases:
                toolkit.get_db_hash = self._hasher(
                    side, toolkit, databases[name], moulds[name].parts()
                )

    def _hasher(
        self, side: str, toolkit: Any, pristine: BaseModel, moulds: dict[str, Mould]
    ) -> Any:
        def get_db_hash() -> str:
            self.changes[side] = changes_of(toolkit.db, pristine, moulds)
            return fingerprint(self.changes[side])

        return get_db_hash


# ---------------------------------------------------------------- differences


def changes_of(
    database: BaseModel, pristine: BaseModel, moulds: Mapping[str, Mould] | None = None
) -> Changes:
    """The records of a database whose text, as upstream hashes it, is not the pristine one's.

    Args:
        moulds: of its fields, that the database was cast of.
    """
    suspects: dict[str, list[Any] | None] = {}
    for field, before in pristine.__dict__.items():
        now = database.__dict__[field]
        mould = moulds.get(field) if moulds else None
        if mould is not None and mould.untouched(now):
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            asked = mould.suspects(now) if isinstance(mould, Many) else [*now, *before]
            keys = [k for k in dict.fromkeys(asked) if not _same(_at(now, k), _at(before, k))]
            if keys:
                suspects[field] = keys
        elif not _same(now, before):
            suspects[field] = None
    if not suspects:
        return {}
    now_told, before_told = _told(database, suspects), _told(pristine, suspects)
    found: Changes = {}
    for field, suspected in suspects.items():
        if suspected is None:
            _keep(found, (field, ""), now_told[field], before_told[field])
            continue
        for key in suspected:
            now = now_told[field].get(key, ABSENT)
            _keep(found, (field, str(key)), now, before_told[field].get(key, ABSENT))
    return found


def fingerprint(changes: Changes) -> str:
    """A hash of a database by what changed in it; equal to another's of the domain iff they are equal."""
    rows = sorted((*place, _text(now)) for place, (now, _) in changes.items())
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def differences(ours: Changes, gold: Changes) -> list[str]:
    """What is otherwise in our world than in gold's, a line for each value."""
    lines: list[str] = []
    for place in sorted(ours.keys() | gold.keys()):
        known = ours.get(place) or gold[place]
        mine = ours[place][0] if place in ours else known[1]
        theirs = gold[place][0] if place in gold else known[1]
        lines += _differences(".".join(filter(None, place)), mine, theirs)
    return lines


def _differences(path: str, ours: Any, gold: Any) -> Iterator[str]:
    if _same(ours, gold):
        return
    if isinstance(ours, dict) and isinstance(gold, dict):
        for key in sorted(ours.keys() | gold.keys(), key=str):
            mine, theirs = ours.get(key, ABSENT), gold.get(key, ABSENT)
            yield from _differences(f"{path}.{key}", mine, theirs)
    elif isinstance(ours, list) and isinstance(gold, list):
        for number, (mine, theirs) in enumerate(zip_longest(ours, gold, fillvalue=ABSENT)):
            yield from _differences(f"{path}[{number}]", mine, theirs)
    elif _text(ours) != _text(gold):
        yield f"{path} is {_short(ours)}, gold has {_short(gold)}"


def _short(value: Any) -> str:
    text = repr(value) if isinstance(value, str | Absent) else _text(value)
    return text if len(text) <= 160 else text[:157] + "…"


def _keep(found: Changes, place: tuple[str, str], now: Any, before: Any) -> None:
    if not _same(now, before) and _text(now) != _text(before):
        found[place] = (now, before)


def _text(value: Any) -> str:
    """Upstream's, of which it makes its hash."""
    return "" if value is ABSENT else json.dumps(value, sort_keys=True, default=str)


def _told(database: BaseModel, suspects: dict[str, list[Any] | None]) -> dict[str, Any]:
    """Upstream's dump of the suspects alone, by the schema of the database's class."""
    chosen = dict(database.__dict__)
    for field, chosen_keys in suspects.items():
        if chosen_keys is not None:
            held = chosen[field]
            chosen[field] = {key: dict.__getitem__(held, key) for key in chosen_keys if key in held}
    small = type(database).model_construct(**chosen)
    return small.model_dump(include=set(suspects))


def _at(values: dict[Any, Any], key: Any) -> Any:
    return dict.get(values, key, ABSENT)


def _same(a: Any, b: Any) -> bool:
    """True only if both are told by the same text; strict where `==` is not (1, 1.0 and True)."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        if len(a) != len(b):
            return False
        return all(_same(value, _at(b, key)) for key, value in dict.items(a))
    if type(a) is not type(b):
        return False
    if isinstance(a, BaseModel):
        return a.__pydantic_extra__ == b.__pydantic_extra__ and _same(a.__dict__, b.__dict__)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return bool(a == b)
