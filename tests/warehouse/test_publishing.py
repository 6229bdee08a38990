"""Readers see the old warehouse or the new one, whatever happens to a loader on its way."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from made import NOISY, ORACLE, SHELL, Maker, ask, make_suite, run_all

from suites.errors import InputError
from suites.home import PROJECT
from warehouse.evidence import Evidence
from warehouse.load import LoadReport
from warehouse.meta import SCHEMA
from warehouse.query import connect

Load = Callable[..., LoadReport]


def test_a_reader_keeps_what_it_opened_and_the_next_sees_the_new(
    maker: Maker, loaded: Load
) -> None:
    planned = maker.sweep([make_suite()], [NOISY])
    run_all(maker, planned[:2])
    loaded(maker)
    program = (
        "import duckdb, sys; con = duckdb.connect(sys.argv[1], read_only=True)\n"
        "for line in sys.stdin: print(con.sql('select count(*) from tries').fetchall()[0][0], flush=True)"
    )
    command = [sys.executable, "-c", program, str(maker.warehouse)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        print("ask", file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "2\n"
        run_all(maker, planned[2:])
        loaded(maker)
        print("ask", file=reader.stdin, flush=True)
        assert reader.stdout.readline() == "2\n"
        reader.stdin.close()
    assert ask(maker, "select count(*) from tries") == [(4,)]


def test_loaders_take_turns(maker: Maker, loaded: Load) -> None:
    planned = maker.sweep([make_suite(categories={"simple_python": 20})], [NOISY])
    run_all(maker, planned)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            loaded(maker, anew=True)  # the short cut of the fixture is not made for threads
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ask(maker, "select count(*) from tries") == [(20,)]


def test_a_loader_that_waits_says_so(maker: Maker, loaded: Load) -> None:
    said: list[str] = []
    lock = maker.warehouse.parent / "warehouse.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def say(line: str) -> None:
            said.append(line)
            fcntl.flock(file, fcntl.LOCK_UN)

        loaded(maker, say=say)
    assert said == ["Another load is at work; waiting for it …"]


def test_a_killed_load_leaves_the_published_file_and_no_lock(maker: Maker, loaded: Load) -> None:
    """Killed at several points, from the first row staged to the moment before the rename."""
    planned = maker.sweep([make_suite(categories={"simple_python": 12})], [NOISY])
    run_all(maker, planned[:4])
    loaded(maker)
    before = maker.warehouse.read_bytes()
    run_all(maker, planned[4:])
    for point in ("staging.Staging.add", "staging.Staging.insert", "load._publish"):
        module, _, name = point.partition(".")
        owner, _, function = f"{module}.{name}".rpartition(".")
        program = (
            "import os, signal, sys; from pathlib import Path\n"
            "import warehouse.load as load, warehouse.staging as staging\n"
            f"{owner}.{function} = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
            "load.load(*map(Path, sys.argv[1:4]))"
        )
        paths = [str(maker.root), str(maker.shards_root), str(maker.warehouse)]
        killed = subprocess.run([sys.executable, "-c", program, *paths], cwd=PROJECT, check=False)
        assert killed.returncode == -signal.SIGKILL, point
        assert maker.warehouse.read_bytes() == before
    loaded(maker)
    assert ask(maker, "select count(*) from tries") == [(12,)]
    left = {path.name for path in maker.warehouse.parent.iterdir()}
    assert left == {"evidence", "warehouse.duckdb", "warehouse.lock"}


def test_a_load_that_fails_leaves_the_published_file(
    maker: Maker, loaded: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = maker.sweep([make_suite()], [NOISY])
    loaded(maker)
    before = maker.warehouse.read_bytes()
    run_all(maker, planned)

    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("warehouse.load._publish", full)
    with pytest.raises(InputError, match="disk is full"):
        loaded(maker)
    assert maker.warehouse.read_bytes() == before
    assert not maker.warehouse.with_name(".warehouse.duckdb.loading").exists()


def test_a_warehouse_of_a_newer_dyno_is_left_alone(maker: Maker, loaded: Load) -> None:
    loaded(maker)
    with duckdb.connect(str(maker.warehouse)) as con:
        con.execute("update meta set value = ? where key = 'schema'", [str(SCHEMA + 1)])
    before = maker.warehouse.read_bytes()
    with pytest.raises(InputError, match="newer dyno"):
        loaded(maker)
    with pytest.raises(InputError, match="newer dyno"):
        connect(maker.warehouse)
    assert maker.warehouse.read_bytes() == before


@pytest.mark.parametrize("edit", ["tables", "junk", "empty", "truncated", "no meta"])
def test_a_warehouse_that_cannot_be_added_to_is_made_anew(
    maker: Maker, loaded: Load, edit: str
) -> None:
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    loaded(maker)
    if edit == "tables":
        with duckdb.connect(str(maker.warehouse)) as con:
            con.execute("update meta set value = '0' where key = 'tables'")
    elif edit == "no meta":
        with duckdb.connect(str(maker.warehouse)) as con:
            con.execute("drop table meta")
    else:
        whole = maker.warehouse.read_bytes()
        maker.warehouse.write_bytes(
            {"junk": b"junk" * 9999, "empty": b"", "truncated": whole[:70_000]}[edit]
        )
    said: list[str] = []
    report = loaded(maker, say=said.append)
    assert report.rebuilt is not None
    assert said == [f"The warehouse is made anew: {report.rebuilt}."]
    assert ask(maker, "select count(*) from attempts") == [(4,)]


def test_evidence_from_another_root_is_not_mixed_in(tmp_path: Path, loaded: Load) -> None:
    first, second = Maker(tmp_path / "a"), Maker(tmp_path / "b")
    run_all(first, first.sweep([make_suite()], [NOISY]))
    run_all(second, second.sweep([make_suite()], [ORACLE, SHELL]))
    loaded(first)
    second.warehouse = first.warehouse
    assert loaded(second).rebuilt == f"it was loaded from {first.root}"
    assert ask(second, "select distinct model from scorecard order by 1") == [
        ("noisy",),
        ("oracle",),
    ]


def test_the_flows_load_what_dyno_home_says(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.load import load

    monkeypatch.setenv("DYNO_HOME", str(maker.root.parent))
    monkeypatch.delenv("DYNO_EVIDENCE", raising=False)
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    assert load().rows["tries"] == 4
    assert load(rebuild=True).rebuilt == "as asked"


def test_marker_that_names_no_finished_try_does_not_keep_a_result_out(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    for text in ("", "try-0009\n"):
        key = f"{len(text):064x}"
        folder = evidence.claim_try(key)
        bundle = evidence.finish(folder, {"attempt_key": key})
        (folder.parent / "published").write_text(text)
        assert not evidence.is_done(key)
        assert evidence.publish(bundle)
        assert evidence.is_done(key)
        assert not evidence.publish(bundle)


def test_broken_grade_is_no_grade(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    key = "a" * 64
    evidence.finish(evidence.claim_try(key), {"attempt_key": key})
    grade = {"grader": "g", "grader_version": "1", "spec_hash": "b" * 64, "graded_at": "2026-01-01"}
    assert evidence.write_grade(key, grade)
    (path,) = evidence.attempt_folder(key).glob("grades/*.json")
    path.write_text("{bad")
    assert evidence.grades(key) == []
    assert evidence.write_grade(key, grade)
    assert len(evidence.grades(key)) == 1
