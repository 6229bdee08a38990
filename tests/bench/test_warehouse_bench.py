"""How fast evidence becomes a scorecard.

Targets: 7,000 attempts in a few seconds, 1,000 new ones in under 2 s, the scorecard of all in about a second.

    .venv/bin/python -m pytest tests/bench/test_warehouse_bench.py --benchmark-enable -s

makes 10,000 attempts first (under a minute); without --benchmark-enable it runs on a hundred, once.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "warehouse"))

from made import NOISY, ORACLE, SHELL, Maker, make_suite, run_all

from warehouse.load import load
from warehouse.query import connect
from warehouse.scorecard import scorecard_json, scorecard_rows


@dataclass(frozen=True)
class Filled:
    """Evidence in two parts.

    Attributes:
        maker: of all the evidence.
        old: the published warehouse while only nine tenths of it were there.
        new: attempts that it does not know.
        attempts: in all.
    """

    maker: Maker
    old: Path
    new: int
    attempts: int


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Filled:
    """10,000 attempts of four suites and three configurations, or a hundred."""
    short = not request.config.getoption("benchmark_enable")
    sizes = (3, 3, 3, 3) if short else (300, 200, 200, 411)
    maker = Maker(tmp_path_factory.mktemp("bench"), shards=True)
    suites = [
        make_suite(f"bfcl-{name.replace('_', '-')}", {name: size})
        for name, size in zip(
            ("simple_python", "multiple", "parallel", "live_multiple"), sizes, strict=True
        )
    ]
    planned = maker.sweep(suites, [ORACLE, NOISY, SHELL], repeats=3)
    first = len(planned) - len(planned) // 10
    run_all(maker, planned[:first])
    load(maker.root, maker.shards_root, maker.warehouse)
    old = maker.warehouse.with_name("old.duckdb")
    shutil.copyfile(maker.warehouse, old)
    run_all(maker, planned[first:])
    return Filled(maker, old, len(planned) - first, len(planned))


def rounds(filled: Filled) -> int:
    """Once where there is little."""
    return 1 if filled.attempts < 1_000 else 3


def test_rebuild_from_bundles(benchmark: Any, filled: Filled) -> None:
    maker = filled.maker

    def rebuild() -> Any:
        return load(maker.root, maker.shards_root, maker.warehouse, rebuild=True)

    report = benchmark.pedantic(rebuild, rounds=rounds(filled), iterations=1)
    assert report.rows["tries"] == filled.attempts
    benchmark.extra_info["tries_per_second"] = round(filled.attempts / report.seconds)


def test_load_what_is_new(benchmark: Any, filled: Filled) -> None:
    maker = filled.maker

    def again() -> tuple[tuple[()], dict[str, Any]]:
        shutil.copyfile(filled.old, maker.warehouse)
        return (), {}

    def load_new() -> Any:
        return load(maker.root, maker.shards_root, maker.warehouse)

    report = benchmark.pedantic(load_new, setup=again, rounds=rounds(filled), iterations=1)
    assert (report.rows["tries"], report.from_shards) == (filled.new, filled.new)
    if filled.new >= 999:
        assert report.seconds < 2


def test_load_nothing_new(benchmark: Any, filled: Filled) -> None:
    maker = filled.maker
    load(maker.root, maker.shards_root, maker.warehouse)
    report = benchmark.pedantic(
        lambda: load(maker.root, maker.shards_root, maker.warehouse),
        rounds=rounds(filled),
        iterations=1,
    )
    assert not report.published


def test_scorecard(benchmark: Any, filled: Filled) -> None:
    load(filled.maker.root, filled.maker.shards_root, filled.maker.warehouse)
    with connect(filled.maker.warehouse) as con:
        rows = benchmark.pedantic(
            lambda: scorecard_rows(con), rounds=rounds(filled), iterations=1, warmup_rounds=1
        )
        assert sum(row["n"] for row in rows if row["category"] is None) == filled.attempts
        assert scorecard_json(con) == scorecard_json(con)


def test_a_workers_shard(benchmark: Any, filled: Filled) -> None:
    """What keeping its rows costs an attempt."""
    from warehouse.shards import ShardWriter

    [key, *_] = filled.maker.evidence.keys()
    bundle = filled.maker.evidence.published(key)
    assert bundle is not None
    writer = ShardWriter(filled.maker.root.parent / "other-shards")
    assert benchmark(writer.append, bundle)
