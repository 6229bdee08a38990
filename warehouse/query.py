"""Questions to the warehouse: read-only, one statement at a time, and no way out of the file.

DuckDB can read any file and reach any host from a plain SELECT. So a connection for questions is opened
read-only, with external access off, and with its configuration locked before the question is asked.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suites.errors import InputError
from suites.home import dyno_home

if TYPE_CHECKING:
    import duckdb

SETTINGS: dict[str, Any] = {
    "threads": 2,
    "memory_limit": "2GB",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "lock_configuration": True,
}
"""How a connection for questions is opened; the same for all, so that those of one process can share."""

ALLOWED = ("SELECT", "EXPLAIN", "MULTI")
"""Kinds of statement that only look: MULTI is what DuckDB makes of a PIVOT."""


FOLDED_COLUMN = 14
"""Characters a column needs to be read when its cells are folded."""


@dataclass(frozen=True)
class Answer:
    """A table.

    Attributes:
        columns: their names.
        rows: of Python values; NULL is None.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def warehouse_path() -> Path:
    """The published warehouse: `warehouse.duckdb` in DYNO_HOME."""
    return dyno_home() / "warehouse.duckdb"


def connect(path: Path | None = None, *, sweep_id: str | None = None) -> duckdb.DuckDBPyConnection:
    """A connection that can only look. Close it: until then, others of this process see the same file.

    Args:
        path: the warehouse; the published one of DYNO_HOME if None.
        sweep_id: narrow every view to what that sweep planned.

    Raises:
        InputError: there is no warehouse, it is of a newer dyno, or it has no such sweep.
    """
    import duckdb

    from warehouse.meta import needs_newer_duckdb, newer, read_meta, refuse_newer

    path = path or warehouse_path()
    if not path.exists():
        raise InputError(
            "there is no warehouse yet",
            where=str(path),
            mend="run `dyno load` to make it from the evidence, or `dyno sweep FILE` to have some",
        )
    with ExitStack() as undo:
        try:
            con = undo.enter_context(duckdb.connect(str(path), read_only=True, config=SETTINGS))
            refuse_newer(read_meta(con), path)
        except duckdb.Error as error:
            if needs_newer_duckdb(error):
                raise newer(path) from error
            raise InputError(
                f"this file cannot be read as a warehouse ({_worded(error)})",
                where=str(path),
                mend="run `dyno load --rebuild`: it is made again from the evidence",
            ) from error
        if sweep_id is not None:
            _narrow(con, sweep_id, path)
        undo.pop_all()
    return con


def run_sql(con: duckdb.DuckDBPyConnection, sql: str) -> Answer:
    """The answer to one SQL statement that only looks.

    Raises:
        InputError: it is no such statement, or DuckDB refuses it.
    """
    import duckdb

    try:
        statements = con.extract_statements(sql)
        if len(statements) != 1:
            raise InputError(
                f"that is {len(statements)} statements, not one", mend='dyno sql "from scorecard"'
            )
        kind = statements[0].type.name
        if kind not in ALLOWED:
            raise InputError(
                f"{kind.replace('_', ' ').lower()} is not a question; the warehouse is read-only",
                mend="evidence is the truth: `dyno load` brings the warehouse up to date with it",
            )
        cursor = con.execute(statements[0])
        columns = tuple(column[0] for column in cursor.description or ())
        return Answer(columns, tuple(cursor.fetchall()))
    except duckdb.Error as error:
        raise InputError(_worded(error), mend=_mend(con, error)) from error


def as_csv(answer: Answer) -> str:
    """RFC 4180 with a header; NULL is an empty field, lists and maps are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(answer.columns)
    for row in answer.rows:
        writer.writerow(["" if v is None else _flat(v) for v in row])
    return out.getvalue()


def as_json(answer: Answer) -> str:
    """A list of objects, one a row; NULL is null."""
    rows = [dict(zip(answer.columns, map(plain, row), strict=True)) for row in answer.rows]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_table(answer: Answer, width: int, colour: bool) -> str:
    """A table for a terminal, or, where it would not fit, a block a row; NULL is shown as such."""
    texts = [[None if v is None else str(_flat(v)) for v in row] for row in answer.rows]
    crowded = len(answer.columns) * FOLDED_COLUMN > width
    if crowded and _natural_width(answer.columns, texts) > width:
        return _as_blocks(answer.columns, texts, width)
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in answer.columns:
        table.add_column(column, overflow="fold")
    for row in texts:
        table.add_row(*(Text("NULL", "dim") if text is None else Text(text) for text in row))
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False
    ).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _natural_width(columns: Sequence[str], texts: list[list[str | None]]) -> int:
    """Characters that the table takes with no cell folded."""
    widths = [len(column) for column in columns]
    for row in texts:
        widths = [max(width, len(text or "NULL")) for width, text in zip(widths, row, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _as_blocks(columns: Sequence[str], texts: list[list[str | None]], width: int) -> str:
    """A row as lines of `column  value`: what a person can still read of twenty columns."""
    longest = max(len(column) for column in columns)
    room = max(20, width - longest - 2)
    lines = []
    for number, row in enumerate(texts, 1):
        lines.append(f"─ {number} " + "─" * 20)
        for column, text in zip(columns, row, strict=True):
            said = " ".join(("NULL" if text is None else text).split("\n"))
            parts = [said[i : i + room] for i in range(0, len(said), room)] or [""]
            lines.append(f"{column:{longest}}  {parts[0]}".rstrip())
            lines += [" " * (longest + 2) + part for part in parts[1:]]
    return "\n".join(lines) + "\n"


def plain(value: Any) -> Any:
    """A value of DuckDB's as JSON has it: moments as ISO text, decimals as numbers, no infinities."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _flat(value: Any) -> Any:
    """A value for one field of a line."""
    value = plain(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _narrow(con: duckdb.DuckDBPyConnection, sweep_id: str, path: Path) -> None:
    sweeps: Sequence[tuple[str]] = con.sql("select sweep_id from sweeps order by 1").fetchall()
    known = [name for (name,) in sweeps]
    if sweep_id not in known:
        newest = f"the newest are {', '.join(known[-3:])}" if known else "it holds no sweep"
        raise InputError(
            f"there is no sweep {sweep_id!r} in the warehouse",
            where=str(path),
            mend=f"{newest}; a sweep that has just run is in after `dyno load`",
        )
    con.execute("set variable sweep_id = ?", [sweep_id])


def _worded(error: duckdb.Error) -> str:
    """DuckDB's first paragraph, which names what it does not like."""
    return str(error).partition("\n\n")[0].strip()


def _mend(con: duckdb.DuckDBPyConnection, error: duckdb.Error) -> str:
    """What to do about it: where a name is unknown, the names there are."""
    if type(error).__name__ == "PermissionException":
        return "a question sees the warehouse and nothing else: no files, no network"
    names = con.execute(
        "select view_name from duckdb_views() where not internal order by 1"
    ).fetchall()
    return f"views: {', '.join(name for (name,) in names)}; columns: docs/views.md or `describe scorecard`"
