"""`dyno controls`: a sweep of three scripted models, and what it says of the suites. No Prefect here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from flows.cli import HAS_ERRORS, OK, ORACLE_FAILS, terminal
from suites.schema import Sweep

CONTROL_HARNESS = "reference"
MODELS = ("oracle", "null", "vandal")


def controls_sweep(suites: Sequence[str], harness: str, **changes: Any) -> Sweep:
    """The sweep that is a suite's controls; a user, where tasks have one, follows the task's script.

    Args:
        suites: names or paths.
        harness: carries out what the models say; a name or path.
        changes: `only`, `limit` and `concurrency`; None changes nothing.
    """
    return Sweep(
        name="controls",
        description=f"dyno controls {' '.join(suites)}",
        suites=tuple(dict.fromkeys(suites)),
        harnesses=(harness,),
        models=MODELS,
        user="scripted",
        **{key: value for key, value in changes.items() if value is not None},
    )


def report_controls(sweep_id: str, as_json: bool) -> int:
    """Print what the controls show; the exit code.

    Args:
        sweep_id: a sweep of `controls_sweep`, run.
        as_json: as a document (`dyno.controls/1`), for machines.
    """
    from warehouse import controls as shown
    from warehouse.query import connect

    with connect(sweep_id=sweep_id) as con:
        document = shown.controls_document(con, sweep_id)
    if as_json:
        sys.stdout.buffer.write(shown.controls_json(document))
    else:
        width, colour = terminal()
        click.echo(shown.render_controls(document, width, colour), nl=False)
    codes = {shown.OK: OK, shown.ORACLE_FAILS: ORACLE_FAILS, shown.ERRORS: HAS_ERRORS}
    return codes[document["verdict"]]
