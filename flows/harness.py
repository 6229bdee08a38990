"""`dyno harness list` and `dyno harness check`: what can drive a model here, and whether it really does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from flows.cli import HAS_ERRORS, OK, here, terminal
from suites.errors import InputError
from suites.home import dyno_home
from suites.loading import adhoc_harness, load_harness
from suites.loading import names as known_names
from suites.schema import Harness

MARKS = {
    "ok": ("ok  ", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "red"),
    "none": (" –  ", ""),
}


def known() -> list[dict[str, Any]]:
    """Every harness file, with the version found, or why there is none."""
    from tasks.configurations import Configured

    found = []
    for name in known_names("harness"):
        row: dict[str, Any] = {"harness": name, "version": None, "missing": None}
        try:
            located = load_harness(name)
            harness = located.harness
            row |= {
                "mode": harness.mode,
                "wire": harness.wire,
                "speaks": list(harness.speaks),
                "native_tools": list(harness.native_tools),
                "description": harness.description,
            }
            row["version"] = Configured.of(located).version
        except InputError as error:
            row["missing"] = error.what
        found.append(row)
    return found


def list_harnesses(as_json: bool) -> None:
    """`dyno harness list`."""
    rows = known()
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    _, colour = terminal()
    width = max(len(row["harness"]) for row in rows)
    for row in rows:
        state = "ok" if row["version"] else "none"
        detail = row["version"] or _why(row)
        told = f"{row.get('wire', ''):9} {row.get('mode', ''):8}"
        click.echo(f"{_mark(state, colour)} {row['harness']:{width}}  {told} {detail}")


def _why(row: dict[str, Any]) -> str:
    return str(row["missing"]).removeprefix(f"the harness {row['harness']!r} ")


def check(names: list[str], agent: str | None, as_json: bool, seconds: float) -> int:
    """`dyno harness check`: the exit code, 0 only where every line is well.

    Raises:
        InputError: nothing is named, or `agent` is no command line.
    """
    from tasks.checking import Check, Report

    refs: list[str | Harness] = list(names)
    if agent is not None:
        located = adhoc_harness(agent)
        refs.append(located.harness.model_copy(update={"folder": located.folder}))
    if not refs:
        raise InputError("name a harness, or give --agent", mend="`dyno harness list` shows them")
    folder = dyno_home() / "checks"
    shutil.rmtree(folder, ignore_errors=True)
    reports: list[Report] = []
    _, colour = terminal()
    say: Callable[[str], None] = (
        (lambda text: click.echo(text, err=True)) if as_json else click.echo
    )
    with Check(folder) as checking:
        for ref in refs:
            say(ref if isinstance(ref, str) else ref.name)
            for found in checking.harness(ref, seconds):
                if isinstance(found, Report):
                    reports.append(found)
                else:
                    say(f"  {_mark(found.state, colour)} {found.name:21} {found.says}")
    if as_json:
        sys.stdout.write(json.dumps([report.as_dict() for report in reports], indent=1) + "\n")
    well = all(report.ok for report in reports)
    if not well and (folder / "evidence").is_dir():
        say(f"what the attempts left: {here(folder / 'evidence')}")
    return OK if well else HAS_ERRORS


def _mark(state: str, colour: bool) -> str:
    text, style = MARKS[state]
    return click.style(text, style) if colour and style else text
