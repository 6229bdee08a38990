"""The worlds that upstream's evaluator replays in, without parsing or hashing what nobody touched.

Claim: an environment made here answers as one made from the files does, its database hash is equal to
another's exactly if upstream's would be, and nothing that happens in it reaches the next one.

How: a domain's databases are parsed once a process and never changed after. A world gets a copy of them
that copies a record when somebody reaches for it (`Lazy`), so the cost of a replay is that of the records
it touches. A record nobody reached is the pristine object itself, so "what changed" is found by identity
and only the rest is compared; what then counts as a difference is upstream's own text of the record
(`model_dump` by the database's class, `json.dumps` with sorted keys), of which its hash is made.

One thing of upstream's leaks within a process: toolkits keep models as attributes of their class, and
an initialization action changes one for good. They are put back before each attempt.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from pydantic import BaseModel

from bridges.tau2_package import Tau2
from bridges.tau2_world import steady_ids

EAGER = 8
"""A dictionary of at most so many entries is copied at once: looking at each is cheaper than waiting."""
ATOMS = (str, int, float, bool, type(None), bytes)

Changes = dict[tuple[str, str], tuple[Any, Any]]
"""(field, key) of each record that differs from pristine → (as it is, as it was); a field that is no
dictionary has the key "". `ABSENT` where there is or was none."""


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


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
        pristine = tau2.pristine(domain)
        self._kept = [
            (owner, name, copy.deepcopy(value))
            for toolkit in (pristine.tools, pristine.user_tools)
            for owner in type(toolkit).__mro__
            for name, value in vars(owner).items()
            if isinstance(value, BaseModel | list | dict | set) and not name.startswith("__")
        ]

    def begin(self) -> None:
        """Forget what the attempt before left in upstream's classes."""
        for owner, name, value in self._kept:
            setattr(owner, name, copy.deepcopy(value))

    def make(self, **arguments: Any) -> World:
        """A new environment in its pristine state, with upstream's arguments."""
        steady_ids()
        databases = {name: copied(db) for name, db in self._databases.items()}
        environment = self._tau2.environment(self._domain, **databases, **arguments)
        return World(environment, self._databases)


class World:
    """An environment and what changed in it.

    Attributes:
        environment: upstream's; its toolkits' `get_db_hash` are ours.
        changes: side (`assistant`, `user`) → what had changed when its hash was last asked for.
    """

    def __init__(self, environment: Any, databases: dict[str, Any]) -> None:
        self.environment = environment
        self.changes: dict[str, Changes] = {}
        sides = (("assistant", "tools", "db"), ("user", "user_tools", "user_db"))
        for side, attribute, name in sides:
            toolkit = getattr(environment, attribute)
            if toolkit is not None and name in databases:
                toolkit.get_db_hash = self._hasher(side, toolkit, databases[name])

    def _hasher(self, side: str, toolkit: Any, pristine: BaseModel) -> Any:
        def get_db_hash() -> str:
            self.changes[side] = changes_of(toolkit.db, pristine)
            return fingerprint(self.changes[side])

        return get_db_hash


# ---------------------------------------------------------------- copies


def copied(value: Any) -> Any:
    """A copy that shares nothing that can change with `value`, and whose larger dictionaries are `Lazy`."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        if len(value) > EAGER:
            return Lazy(value)
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    if isinstance(value, BaseModel):
        return _copied_model(value)
    return copy.deepcopy(value)


def _copied_model(model: BaseModel) -> BaseModel:
    """As `model_copy` makes it, of copied fields."""
    new = type(model).__new__(type(model))
    object.__setattr__(new, "__dict__", {k: copied(v) for k, v in model.__dict__.items()})
    object.__setattr__(new, "__pydantic_fields_set__", set(model.__pydantic_fields_set__))
    for name in ("__pydantic_extra__", "__pydantic_private__"):
        object.__setattr__(new, name, copy.deepcopy(getattr(model, name)))
    return new


class Lazy(dict[Any, Any]):
    """A dictionary that holds pristine values until somebody reaches for one, who gets a copy that stays.

    Args:
        pristine: never changed.
    """

    __slots__ = ("_pristine",)

    def __init__(self, pristine: dict[Any, Any]) -> None:
        super().__init__(pristine)
        self._pristine = pristine

    def _own(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if value is self._pristine.get(key, ABSENT):
            value = copied(value)
            dict.__setitem__(self, key, value)
        return value

    def _own_all(self) -> None:
        for key in dict.keys(self):
            self._own(key)

    def __getitem__(self, key: Any) -> Any:
        return self._own(key)

    def __iter__(self) -> Iterator[Any]:
        # With an iterator of its own, `dict(lazy)` and `{**lazy}` ask for each value instead of
        # taking the stored ones behind our back.
        return super().__iter__()

    def get(self, key: Any, default: Any = None) -> Any:
        return self._own(key) if key in self else default

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self._own(key)

    def pop(self, key: Any, *default: Any) -> Any:
        if key in self:
            self._own(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        if self:
            self._own(next(reversed(self)))
        return super().popitem()

    def values(self) -> Any:
        self._own_all()
        return super().values()

    def items(self) -> Any:
        self._own_all()
        return super().items()

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


# ---------------------------------------------------------------- differences


def changes_of(database: BaseModel, pristine: BaseModel) -> Changes:
    """The records of a database whose text, as upstream hashes it, is not the pristine one's."""
    suspects: dict[str, list[Any] | None] = {}
    for field, before in pristine.__dict__.items():
        now = database.__dict__[field]
        if isinstance(before, dict) and isinstance(now, dict):
            keys = [key for key, value in dict.items(now) if not _same(value, _at(before, key))]
            keys += [key for key in before if key not in now]
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
    text = repr(value) if isinstance(value, str | _Absent) else _text(value)
    return text if len(text) <= 160 else text[:157] + "…"


def _keep(found: Changes, place: tuple[str, str], now: Any, before: Any) -> None:
    if _text(now) != _text(before):
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
