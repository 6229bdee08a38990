"""Rows on their way into the warehouse: gathered as NDJSON, one file a table, and inserted in bulk.

DuckDB reads one file of a hundred thousand rows in under a second and a hundred thousand files of one row in
minutes, so nothing is ever inserted row by row. Every table has a natural key, and a row whose key is
there already is left out: loading twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from warehouse.evidence import Bundle
from warehouse.rows import JOURNALS, TABLES, Rows, journal_bytes, ndjson

if TYPE_CHECKING:
    import duckdb

KEYS: dict[str, tuple[str, ...]] = {
    "suites": ("suite_digest",),
    "tasks": ("suite_digest", "task_id"),
    "sweeps": ("sweep_id",),
    "configurations": ("configuration_id",),
    "cells": ("cell_id",),
    "sweep_cells": ("sweep_id", "cell"),
    "planned": ("sweep_id", "cell_id", "attempt_key", "task_id", "repeat"),
    "tries": ("attempt_key", "try"),
    "published": ("attempt_key",),
    "tool_calls": ("attempt_key", "try", "seq"),
    "model_calls": ("attempt_key", "try", "judge", "seq"),
    "messages": ("attempt_key", "try", "seq"),
    "grades": ("attempt_key", "grade_file"),
    "checks": ("attempt_key", "grade_file", "position"),
    "shards": ("shard",),
}
"""The natural key of every table that is loaded, in the order of loading."""

ROW_COUNTS = tuple(f"{table[:-1]}_rows" for table in TABLES if table != "tries")
"""Columns of a shard's `tries` row: how many rows the other tables must hold for it."""

FROM_TRIES = {
    "configurations": "select distinct on (configuration_id) configuration_id, harness, harness_version,"
    " mode, model, user_model, config_hash, isolation from tries where configuration_id is not null"
    " order by configuration_id",
    "cells": "select distinct on (cell_id) cell_id, suite_digest, configuration_id, benchmark, suite,"
    " suite_version, dataset_version from tries where cell_id is not null order by cell_id, attempt_key",
}
"""Cells whose sweep's manifest is lost are still told by the stamps of their tries."""


class Staging:
    """Gathers rows in files beside the private copy, and inserts them.

    Args:
        con: the private warehouse.
        folder: where the files lie; the loader removes it.

    Attributes:
        added: rows inserted so far, by table.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.added = dict.fromkeys(KEYS, 0)
        self._con = con
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    def add(self, rows: Rows) -> None:
        """Take rows, all or none.

        Raises:
            ValueError: a value that JSON cannot hold (NaN).
        """
        encoded = {table: ndjson(lines) for table, lines in rows.items() if lines}
        for table, data in encoded.items():
            if table not in self._files:
                self._files[table] = (self._folder / f"{table}.ndjson").open("wb")
            self._files[table].write(data)

    def insert(self) -> None:
        """Insert all that was gathered since the last time."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()
        for table in KEYS:
            if table in files:
                self._insert(
                    table, _read_json(table_columns(self._con, table), [files[table].name])
                )
        for table, source in FROM_TRIES.items():
            if self.added["tries"]:
                self._insert(table, source)

    def insert_from_shards(
        self, root: Path, shards: Iterable[str], bundles: list[Bundle]
    ) -> set[str]:
        """Insert from shards the rows of those bundles that the shards hold whole.

        A shard is believed where the bundle on disk has the hash that its rows carry, the journals have
        the sizes that `attempt.json` states, and no row is missing.

        Args:
            root: the folder of all shards.
            shards: names of those to read.
            bundles: the bundles whose rows are wanted.

        Returns:
            Hashes of the bundles that are in.
        """
        wanted = [bundle.hash for bundle in bundles if _has_its_size(bundle)]
        if not wanted:
            return set()
        con = self._con
        con.execute(
            "create temp table wanted as select unnest(?::varchar[]) as bundle_hash", [wanted]
        )
        for table in TABLES:
            self._read_shards(table, [root / shard / f"{table}.ndjson" for shard in shards])
        con.execute(
            """
            create temp table whole as
            select t.bundle_hash
            from shard_tries t
            where t.tool_call_rows = (
                select count(*) from shard_tool_calls c where c.bundle_hash = t.bundle_hash
            ) and t.model_call_rows = (
                select count(*) from shard_model_calls c where c.bundle_hash = t.bundle_hash
            ) and t.message_rows = (
                select count(*) from shard_messages c where c.bundle_hash = t.bundle_hash
            )
            """
        )
        for table in TABLES:
            names = ", ".join(table_columns(con, table))
            self._insert(
                table, f"select {names} from shard_{table} semi join whole using (bundle_hash)"
            )
        taken = {digest for (digest,) in con.sql("select bundle_hash from whole").fetchall()}
        for name in ("wanted", "whole", *(f"shard_{table}" for table in TABLES)):
            con.execute(f"drop table {name}")
        return taken

    def _read_shards(self, table: str, files: list[Path]) -> None:
        """Make the temporary table `shard_<table>` of the wanted rows, each once."""
        columns = table_columns(self._con, table)
        if table == "tries":
            columns |= dict.fromkeys(ROW_COUNTS, "BIGINT")
        there = [str(path) for path in files if path.exists()]
        source = _read_json(columns, there, torn=True) if there else f"select * from {table}"
        key = ", ".join(KEYS[table])
        self._con.execute(
            f"create temp table shard_{table} as select distinct on ({key}) *"
            f" from ({source}) semi join wanted using (bundle_hash) order by {key}"
        )

    def _insert(self, table: str, source: str) -> None:
        """Add the rows of `source` whose key is new, one of each key, in the order of keys."""
        key = KEYS[table]
        same = " and ".join(f"old.{name} is not distinct from new.{name}" for name in key)
        row = self._con.execute(
            f"insert into {table} by name select distinct on ({', '.join(key)}) * from ({source}) new"
            f" where not exists (select 1 from {table} old where {same}) order by {', '.join(key)}"
        ).fetchone()
        self.added[table] += int(row[0]) if row else 0


def table_columns(con: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Column names and types of a table, in order."""
    return dict(
        con.execute(
            "select column_name, data_type from duckdb_columns() where table_name = ? and not internal"
            " order by column_index",
            [table],
        ).fetchall()
    )


def _has_its_size(bundle: Bundle) -> bool:
    """True if the journals have the sizes that `attempt.json` states; nothing is hashed."""
    files = bundle.record.get("files", {})
    stated = sum(files.get(name, {}).get("bytes", 0) for name in JOURNALS)
    return journal_bytes(bundle.folder) == stated


def _read_json(columns: dict[str, str], files: list[str], torn: bool = False) -> str:
    """A select over NDJSON files; with `torn`, a line that is no JSON gives NULLs instead of an error."""
    shape = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
    ignore = ", ignore_errors = true" if torn else ""
    return f"select * from read_json([{names}], format = 'newline_delimited', columns = {{{shape}}}{ignore})"
