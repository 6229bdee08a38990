"""What the controls of a sweep show of each suite, for people and for machines.

A suite nobody can pass, or nobody can fail, measures nothing. So three scripted models go through the same
pipeline as everybody: the oracle must solve every task (or the suite says of a task that gold does not pass),
what the null agent solves is the floor, and what the vandal keeps are tasks on which damage costs nothing.
The counts are the view `controls`; the tasks behind them are asked for here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from warehouse.query import plain
from warehouse.scorecard import Row, narrowed, percent, rate, refused_cells, rows_of

if TYPE_CHECKING:
    import duckdb

JSON_SCHEMA = "dyno.controls/1"
BEHAVIOURS = ("oracle", "null", "vandal")
OK, ORACLE_FAILS, ERRORS = "ok", "oracle_fails", "errors"
"""Verdicts: gold passes wherever the suite does not say otherwise; it does not; something has no result."""

EDITION = ("suite", "suite_version", "suite_digest", "dataset_version", "grader", "user_model")
"""What tells the suites of a document apart."""

_OUTCOMES = """
    with playing as (
        select distinct cell_id, behaviour
        from sweep_cells
        where sweep_id = getvariable('sweep_id') and list_contains(?, behaviour)
    ),
    reasons as (
        select attempt_key, list(distinct reason order by reason) as reasons
        from (
            select attempt_key, concat_ws(': ', error_type, finding) as reason
            from findings
            where headline and passed is distinct from true
        )
        group by attempt_key
    )
    select
        results.suite_digest, results.grader, results.user_model, behaviour, results.task_id,
        results.attempt_key, results.harness, outcome, ending, detail, error_class, error_message,
        unsolvable, coalesce(reasons, []) as reasons
    from results
    inner join playing using (cell_id)
    left join reasons using (attempt_key)
    left join tasks
        on tasks.suite_digest = results.suite_digest
       and tasks.task_id = results.task_id
    where outcome is distinct from 'graded_otherwise'
    order by results.suite, tasks.position, results.task_id, results.harness, results.repeat
"""


def controls_document(con: duckdb.DuckDBPyConnection, sweep_id: str) -> dict[str, Any]:
    """The controls of one sweep as JSON values (`dyno.controls/1`).

    Args:
        con: from `warehouse.query.connect`.
        sweep_id: a sweep of oracle, null and vandal.

    Returns:
        `verdict`, `refused` (cells that could not be run) and, for each of `suites`: `controls` by
        behaviour, `oracle_fails`, `null_passes`, `vandal_keeps` and `errors`.
    """
    with narrowed(con, sweep_id):
        counted = rows_of(con.execute("select * from controls order by suite, grader, user_model"))
        happened = rows_of(con.execute(_OUTCOMES, [list(BEHAVIOURS)]))
        refused = refused_cells(con)
    suites: dict[tuple[Any, ...], Row] = {}
    for row in counted:
        suite = suites.setdefault(_edition(row), _empty(row))
        names = ("tasks", "solved", "rate", "planned", "n", "coverage", "errors", "unsolvable")
        suite["controls"][row["behaviour"]] = {name: row[name] for name in names}
    for row in happened:
        _count_in(suites[_edition(row)], row)
    found = {
        "schema": JSON_SCHEMA,
        "sweep_id": sweep_id,
        "suites": list(suites.values()),
        "refused": refused,
    }
    return {**found, "verdict": _verdict(found)}


def _edition(row: Row) -> tuple[Any, ...]:
    return row["suite_digest"], row["grader"], row["user_model"]


def _empty(row: Row) -> Row:
    lists: Row = {n: [] for n in ("oracle_fails", "null_passes", "vandal_keeps", "errors")}
    return {name: row[name] for name in EDITION} | {"controls": {}} | lists


def _count_in(suite: Row, row: Row) -> None:
    """Put one attempt where a reader looks for it."""
    behaviour, outcome, task_id = row["behaviour"], row["outcome"], row["task_id"]
    if outcome not in ("solved", "failed"):
        suite["errors"].append(
            {
                "behaviour": behaviour,
                "task_id": task_id,
                "attempt_key": row["attempt_key"],
                "outcome": outcome or "not_run",
                "error_class": row["error_class"],
                "message": row["error_message"],
            }
        )
    elif behaviour == "oracle" and outcome == "failed":
        reasons = list(row["reasons"])
        if row["ending"] != "clean":
            reasons.append(f"it ended as {row['ending']}: {row['detail']}")
        suite["oracle_fails"].append(
            {
                "task_id": task_id,
                "attempt_key": row["attempt_key"],
                "unsolvable": row["unsolvable"],
                "reasons": reasons,
            }
        )
    elif outcome == "solved" and behaviour != "oracle":
        kept = suite["null_passes" if behaviour == "null" else "vandal_keeps"]
        if task_id not in kept:
            kept.append(task_id)


def _verdict(document: Row) -> str:
    suites = document["suites"]
    if any(not fail["unsolvable"] for suite in suites for fail in suite["oracle_fails"]):
        return ORACLE_FAILS
    if document["refused"] or not suites or any(suite["errors"] for suite in suites):
        return ERRORS
    return OK


def controls_json(document: Row) -> bytes:
    """The document as it is printed for machines."""
    text = json.dumps(plain(document), indent=1, ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8", "replace") + b"\n"


# ---------------------------------------------------------------- for people


MEANING = {
    "oracle": "plays gold: must solve all",
    "null": "the floor: does nothing",
    "vandal": "gold and a forbidden act: must lose",
}
SHOWN_REASON = 300
"""Characters of a reason."""
SHOWN_ERRORS = 10
"""So many attempts without a result are named a suite; they tend to have one cause."""


def render_controls(document: Row, width: int = 80, colour: bool = False) -> str:
    """The controls as text, one block a suite.

    Args:
        document: from `controls_document`.
        width: of the terminal, in characters.
        colour: True on a terminal that shows it.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    for suite in document["suites"]:
        console.print(Text(suite["suite"], "bold"), Text(_heading(suite)))
        console.print(_table(suite["controls"]))
        for head, lines, style in _sections(suite):
            console.print(Text(head, style))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2)))
        console.print()
    for row in document["refused"]:
        told = f"• Refused: {row['suite']} · {row['harness']} {row['model']}: {row['reason']}."
        console.print(Text(told, "yellow"))
    console.print(Text(_last_word(document), "green" if document["verdict"] == OK else "red"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _heading(suite: Row) -> str:
    user = f" · user {suite['user_model']}" if suite["user_model"] else ""
    return f"{suite['suite_version']}{user} · graded by {suite['grader']}"


def _table(controls: Row) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for head in ("solved", "rate", "cover"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", style="dim", overflow="fold")
    for name in BEHAVIOURS:
        if name in controls:
            of = controls[name]
            solved = f"{of['solved']:,}/{of['tasks']:,}"
            table.add_row(name, solved, rate(of["rate"]), percent(of["coverage"]), MEANING[name])
    return table


def _sections(suite: Row) -> Iterator[tuple[str, Sequence[str], str]]:
    """Heading, lines and colour of each thing a reader must know of a suite."""
    fails = suite["oracle_fails"]
    unforeseen = [fail for fail in fails if not fail["unsolvable"]]
    declared = [fail for fail in fails if fail["unsolvable"]]
    if unforeseen:
        yield f"the oracle fails {len(unforeseen)}:", [_told(f) for f in unforeseen], "red"
    if declared:
        head = f"the oracle fails {len(declared)} that the suite says gold does not pass:"
        yield head, [_told(fail) for fail in declared], "yellow"
    if ids := suite["null_passes"]:
        yield f"the null agent passes {len(ids)}, on doing nothing:", [", ".join(ids)], "yellow"
    if ids := suite["vandal_keeps"]:
        head = f"the vandal keeps {len(ids)}; the forbidden act cost nothing here:"
        yield head, [", ".join(ids)], "yellow"
    if errors := suite["errors"]:
        lines = [_error(error) for error in errors[:SHOWN_ERRORS]]
        if len(errors) > SHOWN_ERRORS:
            lines.append(f"and {len(errors) - SHOWN_ERRORS} more (--json has all)")
        yield f"{len(errors)} attempt(s) without a result, in no rate:", lines, "red"


def _told(fail: Row) -> str:
    reasons = list(dict.fromkeys(" ".join(reason.split()) for reason in fail["reasons"]))
    if fail["unsolvable"]:
        declared = " ".join(fail["unsolvable"].split())
        reasons = [declared, *(reason for reason in reasons if reason not in declared)]
    told = "; ".join(
        reason if len(reason) <= SHOWN_REASON else f"{reason[:SHOWN_REASON]}…" for reason in reasons
    )
    return f"{fail['task_id']}: {told or 'the grader gives no reason'}"


def _error(error: Row) -> str:
    message = " ".join((error["message"] or "").split())[:200]
    parts = (error["outcome"], error["error_class"], message)
    return f"{error['behaviour']} {error['task_id']}: " + ": ".join(part for part in parts if part)


def _last_word(document: Row) -> str:
    return {
        OK: "The oracle solves every task that the suites do not declare unsolvable.",
        ORACLE_FAILS: "The oracle fails where no suite says it would: the suite is broken, or the way"
        " there is. What happened: dyno show ATTEMPT (a task's id will do).",
        ERRORS: "Some attempts have no result, so this is not the last word. The same command runs"
        " again what an infrastructure error ended; what the grader could not judge: dyno regrade.",
    }[document["verdict"]]
