"""What a warehouse file says of itself, and what is said to whoever brings one that is not ours to read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb

from suites.errors import InputError

SCHEMA = 2
"""Version of the tables; raise it when they change, so that an older dyno leaves the file alone."""

SCHEMA_FILE = Path(__file__).with_name("schema.sql")


def tables_mark() -> str:
    """sha256 over schema.sql without its comments: a warehouse with another one is made anew."""
    lines = (line.partition("--")[0] for line in SCHEMA_FILE.read_text().splitlines())
    return hashlib.sha256(" ".join(" ".join(lines).split()).encode()).hexdigest()


def read_meta(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The facts in `meta`: `schema`, `tables`, `evidence_root`, `views`.

    Raises:
        duckdb.Error: it is no warehouse.
    """
    return dict(con.sql("select key, value from meta").fetchall())


def refuse_newer(meta: dict[str, str], path: Path) -> None:
    """Raise if a newer dyno made it (InputError): its rows are not ours to misread or throw away."""
    schema = meta.get("schema", "")
    if schema.isdigit() and int(schema) > SCHEMA:
        raise newer(path)


def newer(path: Path) -> InputError:
    """A newer dyno, or a newer DuckDB, made this file."""
    return InputError(
        "this warehouse was made by a newer dyno",
        where=str(path),
        mend="use that dyno, or delete the file: `dyno load` makes it again from the evidence",
    )


def needs_newer_duckdb(error: duckdb.Error) -> bool:
    """True if DuckDB says that the file's format is ahead of it."""
    return "newer version" in str(error)
