"""The scorecard for people and for machines, from the view of that name.

No figure stands alone: beside a rate are its interval, its coverage and what doing nothing scores, above
it the versions of suite, dataset and grader. What was not measured is `n/a` (in JSON: null), never 0, and
whatever is in no rate (infrastructure errors, refused cells, unmeasured costs) is said below in words.

The JSON is made for comparing: one order, ten significant digits, no moment of the day it was printed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from warehouse.query import Answer, plain

if TYPE_CHECKING:
    import duckdb

JSON_SCHEMA = "dyno.scorecard/1"

KEY = (
    "benchmark",
    "suite",
    "suite_version",
    "dataset_version",
    "suite_digest",
    "grader",
    "harness",
    "harness_version",
    "mode",
    "model",
    "user_model",
    "isolation",
    "config_hash",
    "category",
)
"""What tells the rows of the scorecard apart, in the order they are given."""

Row = dict[str, Any]


def scorecard_rows(
    con: duckdb.DuckDBPyConnection,
    suites: Sequence[str] | None = None,
    sweep_id: str | None = None,
) -> list[Row]:
    """The rows of the view `scorecard`, in the order of KEY, whole suites before their categories.

    Args:
        con: from `warehouse.query.connect`.
        suites: names of the suites wanted; all if None.
        sweep_id: only what that sweep planned; what the connection is narrowed to if None.
    """
    order = ", ".join(f"{name} nulls first" for name in KEY)
    chosen = "" if suites is None else "where list_contains(?, suite)"
    with narrowed(con, sweep_id):
        rows = rows_of(
            con.execute(
                f"select * from scorecard {chosen} order by {order}",
                [] if suites is None else [list(suites)],
            )
        )
        _put_floors(con, rows)
    return rows


def _put_floors(con: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    """Beside the scores of one sweep, the floors of all: controls are run once, and models for months."""
    if con.execute("select getvariable('sweep_id')").fetchone() == (None,):
        return
    with _speaking_of(con, None):
        found = {
            (row["cell_id"], row["grader"], row["category"]): row
            for row in rows_of(con.execute("from floors_beside"))
        }
    for row in rows:
        beside = found.get((row["cell_id"], row["grader"], row["category"]))
        if beside:
            row |= {name: beside[name] for name in ("floor", "floor_user_model")}


def refused_cells(con: duckdb.DuckDBPyConnection, sweep_id: str | None = None) -> list[Row]:
    """Cells that no sweep could run: suite, harness, mode, model and the reason."""
    with narrowed(con, sweep_id):
        return rows_of(
            con.execute(
                """
                select distinct suite, suite_version, harness, mode, model, refused as reason
                from sweep_cells
                inner join cells using (cell_id)
                inner join configurations using (configuration_id)
                where refused is not null
                  and coalesce(sweep_id = getvariable('sweep_id'), true)
                order by all
                """
            )
        )


def scorecard_json(
    con: duckdb.DuckDBPyConnection,
    suites: Sequence[str] | None = None,
    sweep_id: str | None = None,
) -> bytes:
    """The scorecard as a JSON document (`dyno.scorecard/1`); the same evidence gives the same bytes."""
    document = {
        "schema": JSON_SCHEMA,
        "sweep_id": sweep_id,
        "rows": scorecard_rows(con, suites, sweep_id),
        "refused": refused_cells(con, sweep_id),
    }
    text = json.dumps(_rounded(plain(document)), indent=1, ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8", "replace") + b"\n"


@contextmanager
def narrowed(con: duckdb.DuckDBPyConnection, sweep_id: str | None) -> Iterator[None]:
    """Inside, every view speaks of that sweep alone; None leaves the connection as it is."""
    if sweep_id is None:
        yield
        return
    with _speaking_of(con, sweep_id):
        yield


@contextmanager
def _speaking_of(con: duckdb.DuckDBPyConnection, sweep_id: str | None) -> Iterator[None]:
    """Inside, every view speaks of that sweep alone; None: of all."""
    before = con.execute("select getvariable('sweep_id')").fetchone()
    con.execute("set variable sweep_id = ?", [sweep_id])
    try:
        yield
    finally:
        con.execute("set variable sweep_id = ?", [before[0] if before else None])


def rows_of(cursor: duckdb.DuckDBPyConnection) -> list[Row]:
    """What a query answered, each row by column."""
    columns = tuple(column[0] for column in cursor.description or ())
    answer = Answer(columns, tuple(cursor.fetchall()))
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _rounded(value: Any) -> Any:
    """Ten significant digits: sums whose parts were added in another order still print alike."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- for people


@dataclass(frozen=True)
class Column:
    """One figure of the printed table.

    Attributes:
        head: its heading.
        show: the figure of a row, as text.
        rank: those with the highest go first where the terminal is narrow.
        width: of the figures.
    """

    head: str
    show: Callable[[Row], str]
    rank: float
    width: int


LABEL_WIDTH = 15
"""Least room for the name of a configuration; longer ones are folded."""

LEGEND = (
    "pass@1: mean over tasks of solved/results, [95 % interval, tasks as clusters]. pass^k: chance that k"
    " repeats are all solved. cover: results/planned. floor: what doing nothing scores. $/solved: all"
    " cost, of failures too. err: tool calls that failed. time: seconds an attempt, then without"
    " start-up. n/a: not measured."
)


def render(
    rows: Sequence[Row], width: int = 80, colour: bool = False, refused: Sequence[Row] = ()
) -> str:
    """The scorecard as text, one block a suite.

    Args:
        rows: from `scorecard_rows`.
        width: of the terminal, in characters.
        colour: True on a terminal that shows it.
        refused: from `refused_cells`.
    """
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    if not rows:
        console.print("Nothing to show yet: the warehouse holds no attempt of that kind.")
    longest = max((len(_label(row)) for row in rows), default=0)
    editions = {(*_versions(row), row["suite_digest"]) for row in rows}
    blocks = [list(block) for _, block in groupby(rows, key=lambda row: [row[n] for n in KEY[:6]])]
    for block in blocks:
        twins = sum(versions[:-1] == _versions(block[0]) for versions in editions)
        console.print(Text(block[0]["suite"], "bold"), Text(_heading(block, twins > 1)))
        console.print(_table(block, width, longest))
        console.print()
    for note in _notes(blocks, refused):
        console.print(Text(f"• {note}", "yellow"))
    if rows:
        console.print(Text(LEGEND, "dim"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _table(rows: list[Row], width: int, longest: int) -> Any:
    """A line a configuration and, where there are several, a category."""
    from rich.table import Table

    several = len({row["category"] for row in rows} - {None}) > 1
    columns = _fitting(
        _columns(_telling_k(rows), _other_ks(rows), any(map(_borrows_floor, rows))), width
    )
    room = width - sum(column.width + 1 for column in columns)
    airy = room - longest > len(columns)
    table = Table(box=None, pad_edge=False, padding=(0, 1 + airy, 0, 0), header_style="dim")
    table.add_column("", overflow="fold", min_width=min(max(longest, LABEL_WIDTH), room))
    for column in columns:
        table.add_column(column.head, justify="right", no_wrap=True, min_width=column.width)
    for row in rows:
        if row["category"] is None or several:
            style = "" if row["category"] is None else "dim"
            table.add_row(_label(row), *(column.show(row) for column in columns), style=style)
    return table


def _telling_k(rows: list[Row]) -> int:
    """The highest k for which pass^k is known of any configuration, else the highest there is."""
    hats = [list(row["pass_hat_k"] or ()) for row in rows if row["category"] is None]
    known = [k for hat in hats for k, value in enumerate(hat, 1) if value is not None]
    return max(known, default=max(map(len, hats), default=0))


MOST_KS = 5
"""So many values of k have a column each; the JSON has all."""


def _other_ks(rows: list[Row]) -> list[int]:
    """More values of k to show: all up to the trials, where the benchmark's own headline is pass^k."""
    if not any(row["user_model"] for row in rows):
        return []
    longest = max((len(row["pass_hat_k"] or ()) for row in rows), default=0)
    return list(range(2, min(longest, MOST_KS) + 1))


def _columns(k: int, others: Sequence[int] = (), marked: bool = False) -> list[Column]:
    """The figures, with pass^k unless k is 1 and pass@1 says the same.

    Args:
        k: shown wherever there is room for any.
        others: shown where there is room for these too.
        marked: some floor was made with another user.
    """

    def hat(k: int, rank: float) -> Column:
        def show(row: Row) -> str:
            hats = row["pass_hat_k"] or ()
            return rate(hats[k - 1] if len(hats) >= k else None)

        return Column(f"pass^{k}", show, rank, len(f"pass^{k}"))

    ks = sorted({k, *others} - {0, 1})
    return [
        Column("pass@1", lambda row: rate(row["pass_at_1"]), 0, 6),
        Column("[95 %]", lambda row: interval(row["pass_at_1_low"], row["pass_at_1_high"]), 3, 8),
        *(hat(n, 2 if n == k else 4.5) for n in ks),
        Column("cover", lambda row: percent(row["coverage"]), 1, 5),
        Column("floor", _floor, 4, 6 if marked else 5),
        Column("$/solved", lambda row: money(row["cost_per_solved"]), 5, 8),
        Column("err", lambda row: percent(row["tool_error_rate"]), 6, 5),
        Column("time", lambda row: seconds(row["wall_s"]), 7, 4),
        Column("-start", lambda row: seconds(row["wall_s_after_startup"]), 8, 6),
    ]


def _borrows_floor(row: Row) -> bool:
    """True where the floor beside the score was made with another user, the scripted one."""
    return row["floor"] is not None and row["floor_user_model"] != row["user_model"]


def _floor(row: Row) -> str:
    return rate(row["floor"]) + ("*" if _borrows_floor(row) else "")


def _fitting(columns: list[Column], width: int) -> list[Column]:
    """The columns that have room beside the labels."""
    while len(columns) > 1 and LABEL_WIDTH + sum(c.width + 1 for c in columns) > width:
        columns = [c for c in columns if c.rank < max(c.rank for c in columns)]
    return columns


def _versions(row: Row) -> tuple[str, ...]:
    return row["suite"], row["suite_version"], str(row["dataset_version"]), row["grader"]


def _heading(rows: list[Row], name_edition: bool) -> str:
    """What the figures below stand on."""
    first = rows[0]
    parts = [first["suite_version"]]
    if name_edition:
        parts[0] += f" (edition {first['suite_digest'][:8]})"
    parts.append(_size(rows))
    if not first["suite_version"].startswith(first["dataset_version"] or ""):
        parts.append(f"dataset {first['dataset_version']}")
    graded = "not graded yet" if first["grader"] == "none" else f"graded by {first['grader']}"
    return " · ".join([*parts, graded])


def _size(rows: list[Row]) -> str:
    """How many of the suite's tasks were asked."""
    asked = sorted({row["planned_tasks"] for row in rows if row["category"] is None})
    told = f"{asked[0]:,}" if len(asked) == 1 else f"{asked[0]:,} to {asked[-1]:,}"
    there = rows[0]["suite_tasks"]
    if there is None or asked == [there]:
        return f"{told} tasks"
    return f"{told} of {there:,} tasks" + (", so no index" if asked[-1] < there else "")


def _label(row: Row) -> str:
    return _name(row) if row["category"] is None else f"  {row['category']}"


def _name(row: Row) -> str:
    mode = "" if row["mode"] in (None, "once") else f" ({row['mode']})"
    user = f" ⇄ {row['user_model']}" if row.get("user_model") else ""
    return f"{row['harness']}{mode} {row['model']}{user}"


def _notes(blocks: list[list[Row]], refused: Sequence[Row]) -> Iterator[str]:
    """What a reader must know beside the figures; what holds of several configurations is said once."""
    for block in blocks:
        whole = [row for row in block if row["category"] is None]
        told: dict[str, list[str]] = {}
        for row in whole:
            for note in _notes_of(row, mixed=len({r["whole"] for r in whole}) > 1):
                told.setdefault(note, []).append(_name(row))
        for note, names in told.items():
            yield f"{block[0]['suite']} · {', '.join(names)}: {note}"
    for row in refused:
        yield f"Refused: {row['suite']} · {_name(row)}: {row['reason']}."


def _notes_of(row: Row, mixed: bool) -> Iterator[str]:
    lost = [
        (row["infra_errors"], "ended in an infrastructure error"),
        (row["grader_errors"], "could not be graded, or are not yet"),
        (row["cancelled"], "were stopped or are under way"),
        (row["skipped"], "were refused"),
        (row["graded_otherwise"], "were graded by another version"),
        (row["not_run"], "have not been run"),
    ]
    told = [f"{count:,} {words}" for count, words in lost if count]
    if told:
        yield f"of {row['planned']:,} attempts {', '.join(told)}; they are in no rate."
    if _borrows_floor(row):
        yield (
            f"* the floor is with the user {row['floor_user_model']!r}: the null agent has not been run with"
            " this one."
        )
    if row["origin"] == "imported":
        yield "these figures are as they were published, of somebody else's run."
    if row["unmapped"]:
        yield (
            f"of {row['planned']:,} attempts the task of {row['unmapped']:,} is not known; they count here, "
            "and are in no comparison."
        )
    if row["n"] and row["cost_coverage"] < 1:
        unknown = round(row["n"] * (1 - row["cost_coverage"]))
        yield f"the cost of {unknown:,} of {row['n']:,} attempts is not known."
    if mixed and row["whole"] is False:
        yield f"asked {row['planned_tasks']:,} of {row['suite_tasks']:,} tasks, so it has no index."


# ---------------------------------------------------------------- figures as text


def rate(value: float | None) -> str:
    """Three digits; a rate that is not quite 1 (or 0) is not shown as if it were."""
    if value is None:
        return "n/a"
    text = f"{value:.3f}"
    if text == "1.000" and value < 1:
        return ">.999"
    return "<.001" if text == "0.000" and value > 0 else text


def interval(low: float | None, high: float | None) -> str:
    """Two digits each; no zero before the point."""
    if low is None or high is None:
        return "n/a"
    return "–".join(f"{end:.2f}".removeprefix("0") for end in (low, high))


def percent(value: float | None) -> str:
    """100% only where it is all, 0% only where it is nothing."""
    if value is None:
        return "n/a"
    if value in (0, 1):
        return f"{value:.0%}"
    return f"{min(max(value, 0.001), 0.999):.1%}"


def money(value: float | None) -> str:
    """US dollars, to two or three figures that matter."""
    if value is None:
        return "n/a"
    if value == 0:
        return "0"
    return f"{value:.2f}" if value >= 10 else f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"


def seconds(value: float | None) -> str:
    """One digit below 100 s."""
    return "n/a" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"
