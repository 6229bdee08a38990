"""Copies of a database that never changes, which cost what somebody reached for.

Claim: a copy answers as a deep copy would, shares nothing with the pristine value that can change, and
what nobody touched in it is known without looking into it.

A pristine value has a `Mould`, made once, that knows which of its parts can change: casting a copy is
then a few dictionaries copied by the interpreter, and a copy is untouched where everything in it that
cannot change is the very object it was cast with. A dictionary with many entries is copied entry by
entry, as they are reached for (`Lazy`).
"""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterable, Iterator, ValuesView
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import compress
from operator import is_
from typing import Any

from pydantic import BaseModel

EAGER = 8
"""A dictionary of at most so many entries is copied at once: looking at each is cheaper than waiting."""
ATOMS = frozenset((str, int, float, bool, type(None), bytes, date, datetime, time, timedelta))
"""Classes whose objects cannot change, so that a copy may share them."""


class Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()
"""Stands for a value where there is none."""


def copied(value: Any) -> Any:
    """A copy that shares nothing that can change with `value`; its larger dictionaries are `Lazy`."""
    mould = mould_of(value)
    return value if mould is None else mould.cast()


def mould_of(pristine: Any) -> Mould | None:
    """What casts copies of a value that never changes from now on; None for one that cannot change."""
    kind = type(pristine)
    if kind in ATOMS or isinstance(pristine, Enum):
        return None
    if kind is dict:
        return Many(pristine) if len(pristine) > EAGER else _Few(pristine)
    if kind is list:
        return _List(pristine)
    if isinstance(pristine, BaseModel) and (
        pristine.__pydantic_extra__ is None and pristine.__pydantic_private__ is None
    ):
        return Model(pristine)
    return Mould(pristine)


class Mould:
    """Casts copies of one pristine value.

    Copies share with it what cannot change, so one that nobody touched is known by identity alone,
    without a look into strings and numbers. This class is for any value; the others are quicker.
    """

    __slots__ = ("_pristine",)

    def __init__(self, pristine: Any) -> None:
        self._pristine = pristine

    def cast(self) -> Any:
        """A copy."""
        return copy.deepcopy(self._pristine)

    def untouched(self, _copy: Any) -> bool:
        """True only if that copy is told by the same text as the pristine value; False is "look closer"."""
        return False

    def parts(self) -> dict[Any, Mould]:
        """Of the fields or entries that can change, as far as they are known."""
        return {}


class _Fields(Mould):
    """Of a dictionary with these keys; what can change of its values has a mould of its own."""

    __slots__ = ("_atomic", "_atoms", "_names", "_parts")

    def __init__(self, pristine: Any, fields: dict[Any, Any]) -> None:
        super().__init__(pristine)
        moulds = {name: mould_of(value) for name, value in fields.items()}
        self._names = list(fields)
        self._atomic = [mould is None for mould in moulds.values()]
        self._atoms = [value for name, value in fields.items() if moulds[name] is None]
        self._parts = [(name, mould) for name, mould in moulds.items() if mould is not None]

    def parts(self) -> dict[Any, Mould]:
        return dict(self._parts)

    def _cast(self, fields: dict[Any, Any]) -> dict[Any, Any]:
        new = fields.copy()
        for name, mould in self._parts:
            new[name] = mould.cast()
        return new

    def _same(self, fields: dict[Any, Any]) -> bool:
        if list(fields) != self._names:
            return False
        if not self._parts:
            return all(map(is_, fields.values(), self._atoms))
        if not all(map(is_, compress(fields.values(), self._atomic), self._atoms)):
            return False
        return all(mould.untouched(fields[name]) for name, mould in self._parts)


class _Few(_Fields):
    """Of a small dictionary."""

    __slots__ = ()

    def __init__(self, pristine: dict[Any, Any]) -> None:
        super().__init__(pristine, pristine)

    def cast(self) -> Any:
        return self._cast(self._pristine)

    def untouched(self, _copy: Any) -> bool:
        return type(_copy) is dict and self._same(_copy)


class Model(_Fields):
    """Of a model that has its fields and nothing else."""

    __slots__ = ("_given", "_kind")

    def __init__(self, pristine: BaseModel) -> None:
        super().__init__(pristine, pristine.__dict__)
        self._kind = type(pristine)
        self._given = pristine.__pydantic_fields_set__

    def cast(self) -> Any:
        """As `model_copy` makes it, of copied fields."""
        new = object.__new__(self._kind)
        _put(new, "__dict__", self._cast(self._pristine.__dict__))
        _put(new, "__pydantic_fields_set__", self._given.copy())
        _put(new, "__pydantic_extra__", None)
        _put(new, "__pydantic_private__", None)
        return new

    def untouched(self, _copy: Any) -> bool:
        if type(_copy) is not self._kind or _copy.__pydantic_extra__ is not None:
            return False
        return self._same(_copy.__dict__)


_put = object.__setattr__


class _List(Mould):
    """Of a list."""

    __slots__ = ("_parts",)

    def __init__(self, pristine: list[Any]) -> None:
        super().__init__(pristine)
        moulds = [mould_of(value) for value in pristine]
        self._parts = moulds if any(mould is not None for mould in moulds) else None

    def cast(self) -> Any:
        if self._parts is None:
            return self._pristine.copy()
        return [
            value if mould is None else mould.cast()
            for value, mould in zip(self._pristine, self._parts, strict=True)
        ]

    def untouched(self, _copy: Any) -> bool:
        if type(_copy) is not list or len(_copy) != len(self._pristine):
            return False
        if self._parts is None:
            return all(map(is_, _copy, self._pristine))
        return all(
            now is value if mould is None else mould.untouched(now)
            for now, value, mould in zip(_copy, self._pristine, self._parts, strict=True)
        )


class Many(Mould):
    """Of a large dictionary, whose values get moulds when somebody first reaches for them."""

    __slots__ = ("_moulds",)

    def __init__(self, pristine: dict[Any, Any]) -> None:
        super().__init__(pristine)
        self._moulds: dict[Any, Mould | None] = {}

    def cast(self) -> Any:
        return Lazy(self._pristine, self._moulds)

    def untouched(self, _copy: Any) -> bool:
        return isinstance(_copy, dict) and not self.suspects(_copy)

    def suspects(self, now: dict[Any, Any]) -> list[Any]:
        """Keys whose value is another, is gone, or is a copy that was not found untouched."""
        before, moulds = self._pristine, self._moulds
        found = []
        for key, value in dict.items(now):
            if value is not before.get(key, ABSENT):
                mould = moulds.get(key)
                if mould is None or not mould.untouched(value):
                    found.append(key)
        if len(now) != len(before) or found:
            found += [key for key in before if key not in now]
        return found


class Lazy(dict[Any, Any]):
    """A dictionary that holds pristine values until somebody reaches for one, who gets a copy that stays.

    Args:
        pristine: never changed.
        moulds: of its values, as far as they were made; shared by all that are of this dictionary.
    """

    __slots__ = ("_moulds", "_pristine")

    def __init__(
        self, pristine: dict[Any, Any], moulds: dict[Any, Mould | None] | None = None
    ) -> None:
        super().__init__(pristine)
        self._pristine = pristine
        self._moulds = {} if moulds is None else moulds

    def _own(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if value is self._pristine.get(key, ABSENT):
            try:
                mould = self._moulds[key]
            except KeyError:
                mould = self._moulds[key] = mould_of(value)
            if mould is not None:
                value = mould.cast()
                dict.__setitem__(self, key, value)
        return value

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
        return _Values(self)

    def items(self) -> Any:
        return _Items(self)

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)


class _Values(ValuesView[Any]):
    """A view that copies a value when it comes to it: a search that ends early copies no more."""

    __slots__ = ()
    _mapping: Lazy

    def __iter__(self) -> Iterator[Any]:
        return map(self._mapping._own, self._mapping)

    def __reversed__(self) -> Iterator[Any]:
        return map(self._mapping._own, reversed(self._mapping))

    def __repr__(self) -> str:
        return repr(self._mapping.copy().values())


class _Items(ItemsView[Any, Any]):
    """As `_Values`, with the keys."""

    __slots__ = ()
    _mapping: Lazy

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._each(self._mapping)

    def __reversed__(self) -> Iterator[tuple[Any, Any]]:
        return self._each(reversed(self._mapping))

    def _each(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        own = self._mapping._own
        for key in keys:
            yield key, own(key)

    def __repr__(self) -> str:
        return repr(self._mapping.copy().items())
