"""One bundle becomes the warehouse's rows, in one place, so that every way of loading tells the same.

A worker that has just sealed a try and a loader that reads it a year later both call `rows_of`; a
shard is only the first answer kept (warehouse/shards.py). Nothing is judged here: no outcome, no grade.

What was not measured is None and stays so. A try's cost is None as soon as one of its calls has none, and
its tokens likewise: a sum that leaves a call out makes the configuration with the most broken calls
look the cheapest.

A try without `attempt.json` is `interrupted`. Nobody sealed its journals, so a line that cannot be read
is left out there; in a sealed bundle it makes the bundle corrupt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from suites.canonical import digest
from warehouse.calls import USAGE, Mark, Row
from warehouse.columns import is_number, number, text, truth, when, whole
from warehouse.evidence import Bundle, CorruptBundle

Rows = dict[str, list[Row]]

TABLES = ("tries", "tool_calls", "model_calls", "messages")
"""The tables that a bundle fills."""

TOOL_ERRORS = frozenset({"refused", "unknown_tool", "tool_error", "timeout", "crashed"})
"""Statuses of a tool call that count as its error; `cancelled` and `unfinished` are nobody's fault."""

CONFIGURATION = (
    "harness",
    "harness_version",
    "mode",
    "model",
    "user_model",
    "config_hash",
    "isolation",
)
"""The parts of a stamp or a planned cell that tell one configuration from another."""

JOURNALS = ("bridge.jsonl", "model.jsonl", "conversation.jsonl")


def configuration_id(stamp: Row) -> str:
    """A short name for the configuration of a stamp, or of a cell in a sweep's manifest."""
    return _configuration_id(tuple(stamp.get(key) for key in CONFIGURATION))


def cell_id(suite_digest: str | None, stamp: Row) -> str:
    """A short name for the cell: that configuration on that very suite."""
    return _cell_id(suite_digest, configuration_id(stamp))


@lru_cache(maxsize=4096)
def _configuration_id(parts: tuple[Any, ...]) -> str:
    return digest(dict(zip(CONFIGURATION, parts, strict=True)))[:16]


@lru_cache(maxsize=4096)
def _cell_id(suite_digest: str | None, configuration: str) -> str:
    return digest([suite_digest, configuration])[:16]


def rows_of(bundle: Bundle) -> Rows:
    """The rows of a finished try.

    Returns:
        `{"tries": [one], "tool_calls": […], "model_calls": […], "messages": […]}`, with the columns of
        schema.sql.

    Raises:
        CorruptBundle: a journal is not what `attempt.json` says, or `attempt.json` lacks what it must say.
    """
    try:
        return _rows(bundle)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptBundle(bundle.folder, f"not a record of a try ({error!r})") from error


def rows_of_interrupted(folder: Path) -> Rows:
    """The rows of a try that nobody finished, from what its journals hold.

    Its model calls were made and count as spend; a call without an answer is `unfinished`.
    """
    mark = Mark(folder.parent.name, int(folder.name.removeprefix("try-")), None)
    bridge, model, conversation = (list(_readable(folder / name)) for name in JOURNALS)
    tool_calls = _kept(bridge, "call", "result", mark.tool_call)
    model_calls = _kept(model, "request", "response", mark.model_call)
    messages = _kept(conversation, "message", "", lambda row, _: mark.message(row))
    every = bridge + model + conversation
    moments = [row["at"] for row in every if isinstance(row.get("at"), int | float)]
    row = {
        "attempt_key": mark.key,
        "try": mark.number,
        "bundle_hash": None,
        "ending": "interrupted",
        "blame": "infra",
        "started_at": when(min(moments, default=None)),
        "ended_at": when(max(moments, default=None)),
        "journal_bytes": journal_bytes(folder),
        "turns": _turns(messages),
        **_sums(bridge, tool_calls, model_calls),
    }
    return _tables(row, tool_calls, model_calls, messages)


def journal_bytes(folder: Path) -> int:
    """Bytes of a try's journals as they lie there: tells whether an unfinished try went on."""
    total = 0
    for name in JOURNALS:
        try:
            total += (folder / name).stat().st_size
        except FileNotFoundError:
            pass
    return total


def ndjson(rows: Iterable[Row]) -> bytes:
    """The rows as DuckDB's reader takes them: one object a line; a lone surrogate becomes `?`.

    Keys are sorted, within values too: what a worker has in memory and what a loader reads from the
    bundle are the same value in another order.

    Raises:
        ValueError: a value that JSON does not know.
    """
    return b"".join(map(_line, rows))


def _line(row: Row) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS)
    except (
        TypeError
    ):  # a lone surrogate, a seed of more than 64 bits: the rare row takes the long way
        return _encode(row).encode("utf-8", "replace") + b"\n"


_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True
).encode


# ---------------------------------------------------------------- a finished try


def _rows(bundle: Bundle) -> Rows:
    if bundle.record["attempt_key"] != bundle.key:
        raise ValueError(f"it is of the attempt {bundle.record['attempt_key']}")
    mark = Mark(bundle.key, bundle.try_number, bundle.hash)
    bridge, model, conversation = (bundle.rows(name) for name in JOURNALS)
    host = bundle.record.get("host") or {}
    holes = bool(host.get("dropped"))
    tool_calls = _joined(bridge, "call", "result", mark.tool_call, holes)
    model_calls = _joined(model, "request", "response", mark.model_call, holes)
    messages = [mark.message(row) for row in conversation if row["event"] == "message"]
    imported = bundle.record["stamp"].get("origin") == "imported"
    unmetered = bool(bundle.record["stamp"].get("unmetered"))
    row = {
        "attempt_key": mark.key,
        "try": mark.number,
        "bundle_hash": mark.bundle_hash,
        **_identity(bundle.record),
        **_end(bundle.record),
        **_reported(bundle.record.get("reported")),
        "dropped": holes,
        "budget": text(host.get("budget")),
        "journal_bytes": sum(
            whole(bundle.record["files"].get(name, {}).get("bytes", 0)) or 0 for name in JOURNALS
        ),
        "turns": _turns(messages),
        "termination": text((host.get("conversation") or {}).get("ended")),
        "ledger": host.get("ledger"),
        **_sums(bridge, tool_calls, model_calls, unmetered, holes, imported),
    }
    return _tables(row, tool_calls, model_calls, messages)


def _tables(row: Row, tool_calls: list[Row], model_calls: list[Row], messages: list[Row]) -> Rows:
    return dict(zip(TABLES, ([row], tool_calls, model_calls, messages), strict=True))


def _turns(messages: list[Row]) -> int | None:
    """How often the user spoke; None where nobody talked to anybody."""
    return sum(row["role"] == "user" for row in messages) if messages else None


def _identity(record: Row) -> Row:
    """Which attempt of which cell this was: task and stamp, flat."""
    task, stamp = record["task"], record["stamp"]
    texts = (
        "benchmark",
        "suite",
        "suite_version",
        "suite_digest",
        "task_id",
        "category",
        "difficulty",
    )
    stamped = (
        *CONFIGURATION,
        "origin",
        "model_id",
        "endpoint_kind",
        "dataset_version",
        "dataset_sha256",
        "dyno_version",
    )
    return {
        "sweep_id": text(record.get("sweep_id")),
        "cell_id": cell_id(task["suite_digest"], stamp),
        "configuration_id": configuration_id(stamp),
        **{name: text(task.get(name)) for name in texts},
        "repeat": whole(task["repeat"]),
        **{name: text(stamp.get(name)) for name in stamped},
        "seed": whole(stamp.get("seed"), bits=127),
        "bridge_contract": whole(stamp.get("bridge_contract")),
        "sealed": truth(stamp.get("sealed")),
        "unmetered": truth(stamp.get("unmetered")) or False,
        "parameters": stamp.get("parameters"),
        "prices": record.get("prices"),
    }


def _end(record: Row) -> Row:
    """How it ended, whose doing that was, and how long it took."""
    error, output = record.get("error") or {}, record.get("output") or {}
    timings = record["timings"]
    return {
        "ending": text(record["ending"], required=True),
        "detail": text(record.get("detail")),
        "blame": text(record.get("blame")),
        "error_class": text(error.get("class")) or ("unnamed" if error else None),
        "error_message": text(error.get("message")),
        "exit_code": whole(record.get("exit_code")),
        "signal": whole(record.get("signal")),
        "left_processes": whole(record.get("left_processes")),
        "started_at": when(timings.get("started_at")),
        "ended_at": when(timings.get("ended_at")),
        **{
            name: number(timings.get(name)) for name in ("wall_s", "startup_s", "waited_s", "cpu_s")
        },
        "stdout_bytes": whole(output.get("stdout_bytes")),
        "stderr_bytes": whole(output.get("stderr_bytes")),
    }


def _reported(reported: Any) -> Row:
    """What the harness says it used; kept beside the meter's figures and never mixed with them."""
    said = reported if isinstance(reported, dict) else {}
    figures = {f"reported_{column}": said.get(name) for name, column in USAGE.items()}
    figures["reported_cost"] = said.get("cost")
    figures["reported_user_cost"] = said.get("user_cost")
    return {name: value if is_number(value) else None for name, value in figures.items()}


def _sums(
    bridge: list[Row],
    tools: list[Row],
    models: list[Row],
    unmetered: bool = False,
    holes: bool = False,
    imported: bool = False,
) -> Row:
    """What the calls add up to: agent and user each for itself, everybody together for the cost.

    Args:
        unmetered: the agent's model calls did not pass the gateway.
        holes: some rows were lost.
        imported: nobody's model calls passed the gateway, and their number is not known.
    """
    measured = not holes and not unmetered
    users_measured = not holes and not imported
    agents_tools = [row for row in tools if row["requestor"] == "agent"]
    users_tools = [row for row in tools if row["requestor"] == "user"]
    agents_models = [row for row in models if row["requestor"] == "agent"]
    users_models = [row for row in models if row["requestor"] == "user"]
    return {
        "tool_lists": sum(row.get("event") == "list" for row in bridge) if not imported else None,
        "tool_calls": len(agents_tools),
        "tool_errors": sum(row["status"] in TOOL_ERRORS for row in agents_tools),
        "user_tool_calls": len(users_tools),
        "user_tool_errors": sum(row["status"] in TOOL_ERRORS for row in users_tools),
        "model_calls": len(agents_models) if not imported else None,
        "agent_cost": _total(agents_models, "cost") if measured else None,
        "user_model_calls": len(users_models) if not imported else None,
        "user_cost": _total(users_models, "cost") if users_measured else None,
        **{
            f"user_{column}": whole(_total(users_models, column)) if users_measured else None
            for column in USAGE.values()
        },
        **{
            column: whole(_total(agents_models, column)) if measured else None
            for column in USAGE.values()
        },
        "cost": _total(models, "cost") if measured else None,
        "unmeasured_calls": sum(row["cost"] is None for row in models),
    }


def _total(rows: list[Row], column: str) -> Any:
    """The sum of a column; None as soon as one is unknown."""
    values = [row[column] for row in rows]
    return None if None in values else math.fsum(values)


# ---------------------------------------------------------------- calls


def _joined(rows: list[Row], opening: str, closing: str, make: Any, holes: bool) -> list[Row]:
    """Each opening row with the row that answers it, in order.

    Raises:
        ValueError: an answer to a call that is not there, in a journal that says it has no holes.
    """
    answers = {row["call"]: row for row in rows if row["event"] == closing}
    found = [make(row, answers.pop(row["seq"], None)) for row in rows if row["event"] == opening]
    if answers and not holes:
        raise ValueError(f"row {min(answers)} is answered, but no {opening} stands there")
    return found


def _kept(rows: list[Row], opening: str, closing: str, make: Any) -> list[Row]:
    """As `_joined`, from a journal that nobody sealed: what makes no sense is left out."""
    answers = {row.get("call"): row for row in rows if row.get("event") == closing}
    found = []
    for row in rows:
        if row.get("event") == opening:
            try:
                found.append(make(row, answers.get(row["seq"])))
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                continue
    return found


def _readable(path: Path) -> Iterator[Row]:
    """The lines of an unsealed journal that are rows."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row
