"""The suite `wide`: its gold is what its ledgers hold, and its tasks are as wide as they say."""

from __future__ import annotations

from pathlib import Path

from suites.benchmarks.wide import entries, open_sum, read_ledger
from suites.loading_suites import load_suite


def test_gold_is_the_sum_of_the_open_entries_of_each_ledger(home: Path) -> None:
    for task in load_suite("wide").tasks:
        (check,) = task.grade.spec["checks"]
        assert check["equals"] == {name: open_sum(name) for name in check["equals"]}
        assert task.oracle is not None
        told = {
            call.arguments["ledger"]: call.arguments["sum"]
            for call in task.oracle.calls
            if call.tool == "enter_sum"
        }
        assert told == check["equals"]
        assert all(name in task.messages[0].content for name in told)


def test_buckets_go_from_one_part_to_many(home: Path) -> None:
    tasks = load_suite("wide").tasks
    widths: dict[str, set[int]] = {}
    for task in tasks:
        (check,) = task.grade.spec["checks"]
        widths.setdefault(str(task.difficulty), set()).add(len(check["equals"]))
    assert widths == {"parts-01": {1}, "parts-03": {3}, "parts-10": {10}, "parts-24": {24}}
    names = [name for task in tasks for name in task.grade.spec["checks"][0]["equals"]]
    assert len(names) == len(set(names))


def test_ledger_reads_as_what_it_adds_up_to() -> None:
    lines = read_ledger("A01").splitlines()
    assert lines[0] == "Ledger A01"
    rows = [line.split() for line in lines[1:]]
    assert sum(int(row[2]) for row in rows if row[3] == "open") == open_sum("A01")
    assert {state for _, _, _, state in entries("A01")} == {"open", "void"}
