"""A folder to make evidence in, and one warehouse of everything that can happen."""

from __future__ import annotations

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


@pytest.fixture
def loaded() -> Callable[..., LoadReport]:
    """Loads a maker's evidence."""

    def load_it(maker: Maker, **options: Any) -> LoadReport:
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
