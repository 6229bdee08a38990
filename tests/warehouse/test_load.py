"""Loading is all or nothing, says what it left out, and gives the same however it came about."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from everything import make_everything
from made import (
    NOISY,
    NULL,
    Maker,
    ask,
    hashes,
    make_suite,
    run_all,
)

from warehouse.load import LoadReport
from warehouse.query import connect
from warehouse.scorecard import scorecard_json
from warehouse.staging import KEYS

Load = Callable[..., LoadReport]


def contents(path: Path) -> dict[str, list[Any]]:
    """Every table of a warehouse but what tells of the loading itself, in no order."""
    with duckdb.connect(str(path), read_only=True) as con:
        return {
            table: sorted(con.sql(f"from {table}").fetchall(), key=repr)
            for table in KEYS
            if table != "shards"
        }


def card(path: Path) -> bytes:
    """The scorecard's bytes."""
    with connect(path) as con:
        return scorecard_json(con)


# ---------------------------------------------------------------- the same, however it came about


def test_rebuilding_twice_gives_the_same_bytes(
    everything: Maker, tmp_path: Path, loaded: Load
) -> None:
    everything = _elsewhere(everything, tmp_path)
    loaded(everything, rebuild=True)
    first, rows = card(everything.warehouse), contents(everything.warehouse)
    loaded(everything, rebuild=True)
    assert card(everything.warehouse) == first
    assert contents(everything.warehouse) == rows
    assert json.loads(first)["rows"]


def test_bit_by_bit_from_shards_and_at_once_from_bundles_is_the_same(
    tmp_path: Path, loaded: Load
) -> None:
    maker = make_everything(tmp_path / "home")
    everything = maker.root
    maker.root = tmp_path / "home" / "growing"
    attempts = sorted((everything / "attempts").glob("*/*"))
    random.Random(3).shuffle(attempts)
    for path in (everything / "suites").iterdir():
        _copy(path, everything, maker.root)
    loaded(maker, anew=True)
    sweeps = sorted((everything / "sweeps").iterdir())
    for number, path in enumerate(sweeps):
        _copy(path, everything, maker.root)
        for attempt in attempts[number :: len(sweeps)]:
            _copy(attempt, everything, maker.root)
        report = loaded(maker)
        assert report.rebuilt is None
        assert (report.from_shards > 0) == (number == 0), "a shard is read to its end once"
    step_by_step, its_card = contents(maker.warehouse), card(maker.warehouse)
    loaded(maker, rebuild=True)
    assert contents(maker.warehouse) == step_by_step
    assert card(maker.warehouse) == its_card


def test_loading_again_changes_nothing(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    assert loaded(maker).published
    before = hashes(maker.warehouse.parent)
    again = loaded(maker)
    assert (again.published, sum(again.rows.values())) == (False, 0)
    assert hashes(maker.warehouse.parent) == before
    assert "up to date" in str(again)


def test_only_what_is_new_is_read(maker: Maker, loaded: Load) -> None:
    planned = maker.sweep([make_suite()], [NOISY])
    run_all(maker, planned[:3])
    loaded(maker)
    shutil.rmtree(maker.evidence.attempt_folder(planned[0].key) / "try-0001" / "bridge.jsonl", True)
    run_all(maker, planned[3:])
    report = loaded(maker)
    assert (report.rows["tries"], report.rows["grades"], report.rows["planned"]) == (1, 1, 0)


def test_a_load_never_writes_to_the_evidence(
    everything: Maker, loaded: Load, tmp_path: Path
) -> None:
    maker = _elsewhere(everything, tmp_path)
    before = hashes(maker.root)
    loaded(maker)
    assert hashes(maker.root) == before


def test_a_home_without_evidence_has_an_empty_warehouse(maker: Maker, loaded: Load) -> None:
    report = loaded(maker, anew=True)
    assert (report.rebuilt, report.problems) == ("there is none yet", ())
    assert ask(maker, "from scorecard") == []


# ---------------------------------------------------------------- what changes after all


def test_a_manifest_that_is_written_again_replaces_its_rows(maker: Maker, loaded: Load) -> None:
    maker.sweep([make_suite()], [NOISY])
    loaded(maker)
    [path] = (maker.root / "sweeps").iterdir()
    manifest = json.loads(path.read_text())
    manifest["finished_at"] = manifest["started_at"] + 60.5
    manifest["attempts"].pop()
    maker.write_manifest(manifest)
    loaded(maker)
    assert ask(maker, "select finished_at - started_at from sweeps")[0][0].total_seconds() == 60.5
    assert ask(maker, "select count(*) from planned") == [(3,)]


def test_an_interrupted_try_that_goes_on_and_is_sealed_is_one_try(
    maker: Maker, loaded: Load
) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    folder = maker.interrupted(planned)
    loaded(maker)
    assert ask(maker, "select ending, tool_calls from tries") == [("interrupted", 1)]
    assert not loaded(maker).published
    with (folder / "bridge.jsonl").open("a") as file:
        file.write(
            '\n{"seq":7,"requestor":"agent","event":"call","tool":"area","at":1770000001.0}\n'
        )
    assert loaded(maker).published
    assert ask(maker, "select ending, tool_calls from tries") == [("interrupted", 2)]
    (folder / "bridge.jsonl").unlink()
    maker.evidence.finish(folder, maker.attempt(planned, True).record)
    loaded(maker)
    assert ask(maker, "select try, ending from tries order by 1") == [(1, "clean"), (2, "clean")]
    assert ask(maker, "select count(*) from tool_calls where bundle_hash is null") == [(0,)]


def test_a_suite_without_its_snapshot_is_known_by_the_manifest_until_it_comes(
    maker: Maker, loaded: Load
) -> None:
    suite = make_suite()
    run_all(maker, maker.sweep([suite], [NOISY]))
    there, away = maker.root / "suites", maker.root / "away"
    there.rename(away)
    loaded(maker)
    assert ask(maker, "select suite, tasks, dataset_source from suites") == [
        ("bfcl-simple-python", 4, None)
    ]
    assert ask(maker, "select distinct whole, n from scorecard") == [(None, 4)]
    away.rename(there)
    loaded(maker)
    assert ask(maker, "select suite, tasks, dataset_source from suites") == [
        ("bfcl-simple-python", 4, "bfcl-eval")
    ]
    assert ask(maker, "select distinct whole, n from scorecard") == [(True, 4)]


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize("with_shards", [False, True])
def test_a_broken_bundle_is_named_and_the_rest_goes_in(
    tmp_path: Path, loaded: Load, with_shards: bool
) -> None:
    maker = Maker(tmp_path, shards=with_shards)
    loaded(maker)
    planned = maker.sweep([make_suite(categories={"simple_python": 7})], [NOISY])
    run_all(maker, planned)
    folders = [maker.evidence.attempt_folder(one.key) / "try-0001" for one in planned[:6]]
    (folders[0] / "attempt.json").write_text("{")
    (folders[1] / "attempt.json").write_text('{"format": 99}')
    with (folders[2] / "bridge.jsonl").open("a") as file:
        file.write("more\n")
    (folders[3] / "model.jsonl").unlink()
    (folders[4] / "attempt.json").write_text('{"format": 1, "files": {}}')
    (folders[5] / "attempt.json").write_bytes(b"\xff\x00")
    report = loaded(maker)
    assert report.from_shards == int(with_shards)
    assert [path for path, _ in report.problems] == sorted(
        folder.relative_to(maker.root).as_posix() for folder in folders
    )
    assert ask(maker, "select count(*) from tries") == [(1,)]
    assert ask(maker, "select count(*) from load_problems") == [(6,)]
    assert f"left out attempts/{planned[0].key[:2]}" in str(report)
    assert not loaded(maker).published, "the same problems are nothing new"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"grader": "bfcl"}',
        '{"grader":"bfcl","grader_version":"1","spec_hash":"a","bundle_hash":"b","solved":"yes"}',
        '{"grader":"bfcl","grader_version":"1","spec_hash":"a","bundle_hash":"b","solved":true,"score":NaN}',
        '{"grader":"bfcl","grader_version":"1","bundle_hash":"b","solved":true,"checks":[{}]}',
        '{"grader":"bfcl","grader_version":"1","bundle_hash":"b","solved":true,"graded_at":"noon"}',
    ],
)
def test_a_broken_grade_is_named_and_the_others_count(
    maker: Maker, loaded: Load, text: str
) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    maker.attempt(planned, True)
    broken = maker.evidence.attempt_folder(planned.key) / "grades" / "broken.json"
    broken.write_text(text)
    report = loaded(maker)
    assert [path for path, _ in report.problems] == [broken.relative_to(maker.root).as_posix()]
    assert ask(maker, "select outcome from attempts") == [("solved",)]


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.pop("cells"),
        lambda m: m["attempts"][0].pop("key"),
        lambda m: m["attempts"][0].update(cell=99),
        lambda m: m["attempts"][0].update(seed="many"),
        lambda m: m.update(format=2),
        lambda m: m.update(started_at="soon"),
    ],
)
def test_a_broken_manifest_is_named_and_the_others_count(
    maker: Maker, loaded: Load, edit: Callable[[Any], None]
) -> None:
    maker.sweep([make_suite()], [NOISY], name="good")
    maker.sweep([make_suite()], [NULL], name="bad")
    path = maker.root / "sweeps" / "20260301T000000-bad.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    maker.write_manifest(manifest)
    report = loaded(maker)
    assert [name for name, _ in report.problems] == ["sweeps/20260301T000000-bad.json"]
    assert ask(maker, "select distinct model from attempts") == [("noisy",)]


def test_a_broken_suite_snapshot_is_named(maker: Maker, loaded: Load) -> None:
    suite = make_suite()
    maker.sweep([suite], [NOISY])
    path = maker.root / "suites" / suite["digest"] / "tasks.jsonl"
    path.write_text(path.read_text() + "{\n")
    report = loaded(maker)
    assert [name for name, _ in report.problems] == [f"suites/{suite['digest']}"]
    assert ask(maker, "select count(*) from attempts") == [(4,)]


def test_a_problem_that_is_mended_goes_away(maker: Maker, loaded: Load) -> None:
    maker.sweep([make_suite()], [NOISY])
    [path] = (maker.root / "sweeps").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert len(loaded(maker).problems) == 1
    path.write_bytes(whole)
    assert loaded(maker).problems == ()
    assert ask(maker, "from load_problems") == []


def test_strays_in_the_evidence_disturb_nobody(maker: Maker, loaded: Load) -> None:
    run_all(maker, maker.sweep([make_suite()], [NOISY]))
    for name in ("attempts/.DS_Store", "attempts/ab/notes.txt", "sweeps/.x.json-77", "shards"):
        path = maker.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("stray")
    maker.shards_root.mkdir()
    (maker.shards_root / "stray").write_text("")
    (maker.shards_root / "folder").mkdir()
    assert loaded(maker).problems == ()
    assert loaded(maker, rebuild=True).rows["tries"] == 4


def test_texts_that_no_table_likes_go_in(maker: Maker, loaded: Load) -> None:
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, True)
    folder = maker.evidence.claim_try(planned.key)
    kept = {k: v for k, v in bundle.record.items() if k not in ("format", "files")}
    maker.evidence.finish(folder, {**kept, "detail": "quote ' null \x00 line \n snow ☃"})
    loaded(maker)
    assert ask(maker, "select detail from tries where try = 2") == [
        ("quote ' null \x00 line \n snow ☃",)
    ]


def _elsewhere(maker: Maker, home: Path) -> Maker:
    """The same evidence, for a warehouse of one's own."""
    other = Maker(home)
    other.root, other.shards_root = maker.root, maker.shards_root
    return other


def _copy(path: Path, source: Path, target: Path) -> None:
    goal = target / path.relative_to(source)
    goal.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(path, goal) if path.is_dir() else shutil.copyfile(path, goal)
