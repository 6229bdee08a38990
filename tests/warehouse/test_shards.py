"""Shards save time and are believed only where the bundles vouch for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from made import NOISY, Config, Maker, Planned, ask, make_suite, run_all

from warehouse.load import LoadReport
from warehouse.shards import ShardWriter

Load = Callable[..., LoadReport]


@pytest.fixture
def sharded(tmp_path: Path, loaded: Load) -> tuple[Maker, list[Planned]]:
    """Six finished attempts in one shard, and a warehouse that knows none of them."""
    maker = Maker(tmp_path, shards=True)
    loaded(maker)
    talking = Config(user_model="scripted")
    planned = maker.sweep([make_suite(categories={"simple_python": 6})], [talking])
    run_all(maker, planned)
    return maker, planned


def shard(maker: Maker, table: str) -> Path:
    """A file of the only shard."""
    [folder] = maker.shards_root.iterdir()
    return folder / f"{table}.ndjson"


def test_rows_come_from_shards(sharded: tuple[Maker, list[Planned]], loaded: Load) -> None:
    maker, _ = sharded
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"], report.rows["tool_calls"]) == (6, 6, 12)
    assert ask(maker, "select n from scorecard limit 1") == [(6,)]


def test_a_shard_that_was_read_is_not_read_again(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, _ = sharded
    loaded(maker)
    assert ask(maker, "select bytes from shards") == [(shard(maker, "tries").stat().st_size,)]


def test_a_torn_last_line_is_left_to_the_bundle(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, _ = sharded
    path = shard(maker, "tries")
    path.write_bytes(path.read_bytes()[:-40])
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"]) == (5, 6)


@pytest.mark.parametrize("table", ["tool_calls", "model_calls", "messages"])
def test_a_try_whose_calls_are_not_all_there_is_left_to_the_bundle(
    sharded: tuple[Maker, list[Planned]], loaded: Load, table: str
) -> None:
    maker, _ = sharded
    path = shard(maker, table)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"], report.rows[table]) == (5, 6, 12)


def test_a_bundle_with_another_hash_is_read_itself(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, planned = sharded
    path = maker.evidence.attempt_folder(planned[0].key) / "try-0001" / "attempt.json"
    path.write_text(path.read_text().replace("the harness ended by itself", "edited"))
    assert loaded(maker).from_shards == 5
    assert ask(maker, "select count(*) from tries where detail = 'edited'") == [(1,)]


def test_rows_that_are_there_twice_count_once(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, _ = sharded
    again = maker.shards_root / "zz-another"
    again.mkdir()
    for table in ("tries", "tool_calls", "model_calls"):
        (again / f"{table}.ndjson").write_bytes(shard_of(maker, table) * 2)
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"], report.rows["tool_calls"]) == (6, 6, 12)


def shard_of(maker: Maker, table: str) -> bytes:
    """Bytes of a file of the first shard."""
    return (sorted(maker.shards_root.iterdir())[0] / f"{table}.ndjson").read_bytes()


def test_shards_full_of_rubbish_cost_only_time(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, _ = sharded
    for table in ("tries", "tool_calls", "model_calls"):
        shard(maker, table).write_bytes(b'\xff\x00 rubbish\n{"bundle_hash": 7}\n[]\n\n"x"\n')
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"], report.problems) == (0, 6, ())


def test_a_rebuild_asks_the_bundles_alone(
    sharded: tuple[Maker, list[Planned]], loaded: Load
) -> None:
    maker, _ = sharded
    report = loaded(maker, rebuild=True)
    assert (report.from_shards, report.rows["tries"]) == (0, 6)


def test_threads_share_a_writer(tmp_path: Path, loaded: Load) -> None:
    maker = Maker(tmp_path)
    loaded(maker)
    planned = maker.sweep([make_suite(categories={"simple_python": 24})], [NOISY])
    bundles = [maker.attempt(one, True) for one in planned]
    writer = ShardWriter(maker.shards_root)
    threads = [
        threading.Thread(target=lambda part=bundles[start::4]: [writer.append(b) for b in part])
        for start in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded(maker).from_shards == 24


def test_a_writer_that_cannot_write_leaves_it_to_the_bundles(tmp_path: Path, loaded: Load) -> None:
    maker = Maker(tmp_path)
    loaded(maker)
    planned = maker.sweep([make_suite(categories={"simple_python": 2})], [NOISY])
    maker.shards_root.write_text("a file where the folder should be")
    writer = ShardWriter(maker.shards_root)
    assert [writer.append(maker.attempt(one, True)) for one in planned] == [False, False]
    maker.shards_root.unlink()
    report = loaded(maker)
    assert (report.from_shards, report.rows["tries"]) == (0, 2)


def test_a_bundle_that_makes_no_sense_is_left_to_the_loader(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, True)
    (bundle.folder / "model.jsonl").write_text("edited\n")
    assert not ShardWriter(maker.shards_root).append(bundle)


def test_a_fork_does_not_write_into_its_parents_shard(tmp_path: Path) -> None:
    maker = Maker(tmp_path)
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])
    bundle = maker.attempt(planned, True)
    writer = ShardWriter(maker.shards_root)
    child = os.fork()
    if child == 0:
        os._exit(int(writer.append(bundle)))
    assert os.waitpid(child, 0)[1] == 0
    assert not writer.folder.exists()
