"""A folder to make evidence in, and one warehouse of everything that can happen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from everything import make_everything
from made import Maker

from warehouse.describe import read_views
from warehouse.load import LoadReport, load
from warehouse.query import connect


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    """Writes evidence without shards."""
    return Maker(tmp_path)


@pytest.fixture(scope="session")
def empty_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of no evidence: making its views anew for every test would take most of the time."""
    maker = Maker(tmp_path_factory.mktemp("empty"))
    load(maker.root, maker.shards_root, maker.warehouse)
    return maker.warehouse


@pytest.fixture
def loaded(empty_warehouse: Path) -> Callable[..., LoadReport]:
    """Loads a maker's evidence, into an empty warehouse the first time (`anew`: into none)."""

    def load_it(maker: Maker, *, anew: bool = False, **options: Any) -> LoadReport:
        if not (anew or options or maker.warehouse.exists()):
            maker.warehouse.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(empty_warehouse, maker.warehouse)
            with duckdb.connect(str(maker.warehouse)) as con:
                set_root = "update meta set value = ? where key = 'evidence_root'"
                con.execute(set_root, [str(maker.root)])
        return load(maker.root, maker.shards_root, maker.warehouse, **options)

    return load_it


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """The evidence of `make_everything`, loaded once for all tests; read it only."""
    maker = make_everything(tmp_path_factory.mktemp("everything"))
    load(maker.root, maker.shards_root, maker.warehouse)
    return maker


@pytest.fixture(scope="session")
def read(everything: Maker) -> Iterator[duckdb.DuckDBPyConnection]:
    """What every view of that warehouse says, each read once by another client that attaches the file."""
    with duckdb.connect() as client:
        client.execute(f"attach '{everything.warehouse}' as dyno (read_only)")
        for view in read_views():
            client.execute(f"create table {view.name} as from dyno.{view.name}")
        yield client


@pytest.fixture
def con(everything: Maker) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for questions to the warehouse of everything."""
    with connect(everything.warehouse) as connection:
        yield connection
