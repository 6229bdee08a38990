from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from suites.home import PROJECT
from tasks.convert.fetch import Package
from tasks.grade.tau2_copies import Lazy, copied
from tasks.grade.tau2_worlds import changes_of, differences, fingerprint

RECORDS = 20


class Record(BaseModel):
    name: str
    amount: float = 1.0
    parts: dict[str, int] = {}
    tags: list[str] = []
    dates: dict[str, dict[str, Any]] = {}


class Database(BaseModel):
    records: dict[str, Record]
    lines: list[Record]
    open: bool = False


def database() -> Database:
    dates = {f"day {n}": {"seats": n, "names": ["a"]} for n in range(RECORDS)}
    records = {
        f"r{n}": Record(name=f"n{n}", parts={"a": n}, tags=["x", "y"], dates=copy.deepcopy(dates))
        for n in range(RECORDS)
    }
    return Database(records=records, lines=[Record(name="line")])


PRISTINE = database()
BEFORE = PRISTINE.model_dump_json()


def after(change: Callable[[Any], Any]) -> Database:
    made: Database = copied(PRISTINE)
    change(made)
    assert PRISTINE.model_dump_json() == BEFORE, "the pristine database was changed"
    return made


def rename(made: Database, *names: str) -> None:
    for name in names:
        made.records["r1"].name = name


def upstreams_text(made: Database) -> str:
    """What upstream makes its hash of."""
    return json.dumps(made.model_dump(), sort_keys=True, default=str)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda db: None,
    "reading": lambda db: [r.dates["day 3"]["names"] for r in db.records.values()],
    "a field": lambda db: setattr(db.records["r1"], "name", "other"),
    "there and back": lambda db: rename(db, "other", "n1"),
    "an int for a float": lambda db: setattr(db.records["r1"], "amount", 1),
    "minus zero": lambda db: setattr(db.records["r1"], "amount", -0.0),
    "zero": lambda db: setattr(db.records["r1"], "amount", 0.0),
    "True for 1": lambda db: db.records["r1"].parts.update(a=True),
    "an entry moved to the end": lambda db: db.records.update(r1=db.records.pop("r1")),
    "a part moved to the end": lambda db: db.records["r1"].dates.update(
        {"day 2": db.records["r1"].dates.pop("day 2")}
    ),
    "a record less": lambda db: db.records.pop("r1"),
    "another record less": lambda db: db.records.popitem(),
    "a record more": lambda db: db.records.update(new=Record(name="new")),
    "the same record by another key": lambda db: db.records.update(newer=Record(name="new")),
    "a record more by setdefault": lambda db: db.records.setdefault("new", Record(name="new")),
    "a list in a record": lambda db: db.records.get("r2").tags.append("z"),
    "a list in a record, by items": lambda db: dict(db.records.items())["r2"].tags.append("z"),
    "a list in a record, by a copy": lambda db: dict(db.records)["r2"].tags.append("z"),
    "a list in a record, by unpacking": lambda db: {**db.records}["r2"].tags.append("z"),
    "deep in one": lambda db: db.records["r2"].dates["day 9"].update(seats=0),
    "deeper in one": lambda db: db.records["r2"].dates["day 9"]["names"].append("b"),
    "deeper in all": lambda db: [r.dates["day 9"]["names"].clear() for r in db.records.values()],
    "a list of the database": lambda db: db.lines.append(db.lines[0]),
    "within a list": lambda db: setattr(db.lines[0], "amount", 2.5),
    "a plain field": lambda db: setattr(db, "open", True),
    "records replaced": lambda db: setattr(db, "records", copy.deepcopy(PRISTINE.records)),
    "records replaced by others": lambda db: setattr(db, "records", {"r1": PRISTINE.records["r1"]}),
}


def test_two_databases_have_one_fingerprint_exactly_if_upstream_would_hash_them_alike() -> None:
    told = {
        name: (fingerprint(changes_of(made, PRISTINE)), upstreams_text(made))
        for name, made in ((name, after(change)) for name, change in CHANGES.items())
    }
    for one, (ours, theirs) in told.items():
        for other, (our_other, their_other) in told.items():
            assert (ours == our_other) == (theirs == their_other), (one, other)
    assert len({theirs for _, theirs in told.values()}) < len(told)  # some come to the same


@pytest.mark.parametrize("reach", ["values", "items", "popitem", "copy", "__or__"])
def test_whoever_reaches_into_a_dictionary_gets_what_is_its_own(reach: str) -> None:
    pristine = {n: [n] for n in range(RECORDS)}
    lazy = Lazy(pristine)
    reached = getattr(lazy, reach)(*([{}] if reach == "__or__" else []))
    held = list(reached.values()) if isinstance(reached, dict) else list(reached)
    for entry in held:
        found = entry[1] if isinstance(entry, tuple) else entry
        (found if isinstance(found, list) else held).append("changed")
        if reach == "popitem":
            break
    assert pristine == {n: [n] for n in range(RECORDS)}


def test_a_search_that_ends_early_copies_no_more_than_it_saw() -> None:
    pristine = {n: [n] for n in range(RECORDS)}
    lazy = Lazy(pristine)
    searches = (iter(lazy.values()), iter(lazy.items()), reversed(lazy.values()))
    assert [next(search) for search in searches] == [[0], (0, [0]), [RECORDS - 1]]
    owned = [n for n, value in dict.items(lazy) if value is not pristine[n]]
    assert owned == [0, RECORDS - 1]


def test_the_views_of_a_dictionary_are_a_dictionarys() -> None:
    plain: dict[Any, list[Any]] = {n: [n] for n in range(RECORDS)}
    lazy = Lazy(copy.deepcopy(plain))
    values, items = lazy.values(), lazy.items()
    for changed in (lazy, plain):
        changed["more"] = ["is seen"]
        del changed[3]
    assert list(values) == list(plain.values())
    assert list(items) == list(plain.items())
    assert list(reversed(items)) == list(reversed(plain.items()))
    assert (len(values), len(items)) == (RECORDS, RECORDS)
    assert (5, [5]) in items
    assert (5, [6]) not in items
    assert [6] in values
    assert (repr(values), repr(items)) == (repr(plain.values()), repr(plain.items()))
    assert json.dumps(lazy) == json.dumps(plain)
    walk = iter(lazy.items())
    next(walk)
    lazy.pop(7)
    with pytest.raises(RuntimeError):
        next(walk)


def test_copies_of_a_copy_share_nothing_that_can_change() -> None:
    one, other = copied(PRISTINE), copied(PRISTINE)
    one.records["r1"].tags.append("z")
    one.records["r1"].name = "other"
    one.lines[0].parts["b"] = 1
    assert other.model_dump() == PRISTINE.model_dump()
    assert one.records["r1"].model_fields_set == {"name", "parts", "tags", "dates"}
    assert other.records["r2"].model_fields_set == {"name", "parts", "tags", "dates"}
    other.records["r2"].amount = 2.0
    assert "amount" not in PRISTINE.records["r2"].model_fields_set


def test_a_record_that_was_reached_stays_the_same_one() -> None:
    made: Database = copied(PRISTINE)
    assert made.records["r1"] is made.records.get("r1")
    assert made.records["r1"] in made.records.values()
    assert made.records["r1"] is not PRISTINE.records["r1"]
    assert copy.deepcopy(made.records) == PRISTINE.records
    assert type(copy.deepcopy(made.records)) is dict


def test_differences_are_told_value_by_value_from_gold() -> None:
    ours = changes_of(after(CHANGES["deep in one"]), PRISTINE)
    gold = changes_of(after(CHANGES["a record less"]), PRISTINE)
    told = differences(ours, gold)
    assert told[1:] == ["records.r2.dates.day 9.seats is 0, gold has 9"]
    assert told[0].startswith("records.r1 is {")
    assert told[0].endswith("…, gold has nothing")
    assert differences(gold, gold) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("domain", ["airline", "retail", "telecom", "mock"])
def test_all_gold_and_calls_at_random_answer_and_hash_as_in_upstreams_own_worlds(
    tau2: Package, domain: str
) -> None:
    script = Path(__file__).with_name("tau2_equality.py")
    asked = [sys.executable, "-B", str(script), str(tau2.folder), domain, "10"]
    done = subprocess.run(
        asked, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["played"] > 15
    assert told["states"] > 10
