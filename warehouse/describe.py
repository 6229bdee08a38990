"""Every view with its words: what a row is, what each column means, what must hold.

    warehouse/views/<view>.sql     the select
    warehouse/views/<view>.yaml    row, description, columns (one line each), tests

The descriptions travel: into the warehouse file as comments, where any DuckDB client shows them, into
docs/views.md (`python -m warehouse.describe`), and into the tests, which run every view's `tests` against a
warehouse (tests/warehouse/test_views.py). A view without its words is refused.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import duckdb

FOLDER = Path(__file__).parent / "views"
SCHEMA_FILE = Path(__file__).with_name("schema.sql")
PAGE = Path(__file__).parent.parent / "docs" / "views.md"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

TESTS = ("unique", "not_null", "rates", "identities")
"""Kinds of test: `unique` (columns that name a row), `not_null`, `rates` (within [0, 1] or NULL),
`identities` (words → a condition that every row meets, or a select that finds nothing)."""


@dataclass(frozen=True)
class View:
    """A view and its words.

    Attributes:
        name: of the view and its files.
        sql: the select.
        row: what one row is.
        description: what it is for.
        columns: name to meaning, in order.
        tests: see TESTS.
    """

    name: str
    sql: str
    row: str
    description: str
    columns: dict[str, str]
    tests: dict[str, Any] = field(default_factory=dict)


def read_views(folder: Path = FOLDER) -> list[View]:
    """Every view, each after those it is made of.

    Raises:
        ValueError: a view without words, or words that are not complete.
    """
    views = {path.stem: _read_view(path) for path in sorted(folder.glob("*.sql"))}
    ordered: dict[str, View] = {}

    def place(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"views are made of each other: {' → '.join((*above, name))}")
        if name not in ordered:
            for other in re.findall(r"\b(?:from|join)\s+([a-z_]+)", views[name].sql):
                if other in views and other != name:
                    place(other, (*above, name))
            ordered[name] = views[name]

    for name in views:
        place(name, ())
    return list(ordered.values())


def install_views(con: duckdb.DuckDBPyConnection, views: list[View] | None = None) -> bool:
    """Make every view in an open warehouse, with its words as comments.

    Returns:
        False if these very views are there already.
    """
    views = read_views() if views is None else views
    mark = hashlib.sha256(repr(views).encode()).hexdigest()
    if con.execute("select 1 from meta where key = 'views' and value = ?", [mark]).fetchone():
        return False
    con.begin()
    for (name,) in con.sql("select view_name from duckdb_views() where not internal").fetchall():
        con.execute(f"drop view {name}")
    for view in views:
        con.execute(f"create view {view.name} as\n{view.sql}")
        con.execute(f"comment on view {view.name} is {_quoted(view.row + ' ' + view.description)}")
        for column, meaning in view.columns.items():
            con.execute(f"comment on column {view.name}.{column} is {_quoted(meaning)}")
    con.execute("delete from meta where key = 'views'")
    con.execute("insert into meta values ('views', ?)", [mark])
    con.commit()
    return True


def page(views: list[View] | None = None) -> str:
    """docs/views.md as it should be."""
    views = read_views() if views is None else views
    parts = [
        "# The warehouse, column by column\n",
        "Made by `python -m warehouse.describe` from `warehouse/views/*.yaml` and"
        " `warehouse/schema.sql`; edit those.\n",
        '`dyno sql "from scorecard"` or any DuckDB client reads the same file'
        " (`DYNO_HOME/warehouse.duckdb`).",
        "NULL means not measured or not known, never 0. Times are UTC, money is US dollars.\n",
        "`set variable sweep_id = '<id>'` narrows every view of a DuckDB client to what that sweep"
        " planned (`dyno scorecard SWEEP` does so).\n",
        "## Views\n",
    ]
    for view in sorted(views, key=lambda view: view.name):
        parts.append(f"### {view.name}\n\n{view.row} {view.description}\n")
        parts.append(_table(view.columns.items()))
        if view.tests.get("unique"):
            parts.append(f"One row a key: {', '.join(f'`{c}`' for c in view.tests['unique'])}.\n")
        for words in view.tests.get("identities", {}):
            parts.append(f"Holds: {words}.\n")
    parts.append("## Tables\n")
    for name, row, columns in read_tables():
        parts.append(f"### {name}\n\n{row}\n")
        parts.append(_table((f"{column}", meaning) for column, _, meaning in columns))
    return "\n".join(parts)


def read_tables() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Every table of schema.sql: name, what a row is, and (column, type, meaning) in order."""
    tables = []
    statement = re.compile(
        r"-- (?P<row>[^\n]+)\ncreate table (?P<name>\w+) \(\n(?P<body>.*?)\n\);", re.S
    )
    line = re.compile(r"^    (\w+) ([\w\[\]]+),?\s+-- (.+)$", re.M)
    for found in statement.finditer(SCHEMA_FILE.read_text()):
        tables.append((found["name"], found["row"], line.findall(found["body"])))
    return tables


def _read_view(path: Path) -> View:
    words = path.with_suffix(".yaml")
    if not words.exists():
        raise ValueError(f"{path}: has no {words.name} beside it")
    told = yaml.load(words.read_bytes(), Loader=_Loader)
    unknown = set(told) - {"row", "description", "columns", "tests"}
    unknown |= set(told.get("tests", {})) - set(TESTS)
    if unknown:
        raise ValueError(f"{words}: unknown keys {sorted(unknown)}")
    return View(
        name=path.stem,
        sql=path.read_text(),
        row=told["row"],
        description=" ".join(told.get("description", "").split()),
        columns=told["columns"],
        tests=told.get("tests", {}),
    )


def _table(columns: Any) -> str:
    lines = ["| column | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in columns]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
