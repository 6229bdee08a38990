"""The `dyno` command: the map of what can be done, and nothing of how.

Each command imports what it needs when it runs, so that `dyno --help` and the reading commands do not
pay for Prefect or DuckDB. A mistake of the user's is an `InputError` and exits with 2; a sweep that was
stopped exits with 130, one that has infrastructure errors with 1, controls whose oracle fails with 3.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from suites.errors import InputError
from warehouse.evidence import CorruptBundle

OK, HAS_ERRORS, USERS_ERROR, ORACLE_FAILS, STOPPED = 0, 1, 2, 3, 130


class Map(click.Group):
    """Commands in the order a newcomer meets them, errors in words, and no traceback for mistakes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            click.echo(f"dyno: {error}", err=True)
            ctx.exit(USERS_ERROR)
        except CorruptBundle as error:
            click.echo(f"dyno: {error}\n  → delete that attempt's folder to run it again", err=True)
            ctx.exit(USERS_ERROR)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                click.echo(
                    f"dyno: the disk is full ({error.filename}); what was done is kept: make room and "
                    "run the same again",
                    err=True,
                )
                ctx.exit(USERS_ERROR)
            if not isinstance(error, BrokenPipeError):
                raise
            # The reader went away, as in `dyno scorecard | head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(OK)


@click.group(
    cls=Map, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="dyno")
def main() -> None:
    """A dynamometer for agent harnesses: measures harness × model × mode on public benchmarks.

    \b
    First time:      dyno sweep smoke            three BFCL categories, offline, about a minute
    Your own agent:  dyno run bfcl-simple-python --agent 'my-agent {prompt}' --model vendor/name
    Results:         dyno scorecard · dyno show ATTEMPT · dyno sql "from scorecard"
    Files:           suites/{benchmarks,harnesses,models,sweeps}/*.yaml; state in .dyno/ (DYNO_HOME)
    """


def say(text: str) -> None:
    """A line of the command's own."""
    click.echo(text)


def _plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--only", metavar="GLOB", help="Tasks whose id matches; gives no index."),
        click.option(
            "--limit", type=click.IntRange(1), help="At most so many tasks of each suite."
        ),
        click.option(
            "--repeats", type=click.IntRange(1), help="Attempts of each task in each cell."
        ),
        click.option(
            "--user",
            metavar="WHO",
            help="Who plays simulated users: a model, `scripted`, or replay:FILE.",
        ),
        click.option(
            "--judge", metavar="MODEL", help="The model that judges, where a grader asks."
        ),
        click.option("--fresh", is_flag=True, help="Run again what is done, under new keys."),
    ):
        command = option(command)
    return command


def _run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--concurrency", type=click.IntRange(1), help="Attempts at once."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask before spending money."),
    ):
        command = option(command)
    return command


# ---------------------------------------------------------------- running


@main.command()
@click.argument("benchmark")
@click.argument("names", nargs=-1, metavar="[CATEGORY]...")
@click.option(
    "--source", metavar="PATH", help="A local wheel, folder or checkout, not the package."
)
@click.option("--category", "categories", multiple=True, help="Only this category (repeatable).")
def convert(
    benchmark: str, names: tuple[str, ...], source: str | None, categories: tuple[str, ...]
) -> None:
    """Turn a benchmark's dataset into suites (bfcl, tau2), all of it or some categories."""
    from flows import commands

    commands.convert(benchmark, source, [*names, *categories] or None)


@main.command("import")
@click.argument("format")
@click.argument("file")
@click.option("--name", help="What the agent is called in results.")
def import_command(format: str, file: str, name: str | None) -> None:
    """Load published results as attempts, to compare and to grade again (tau2)."""
    from flows import importing

    importing.import_file(format, file, name)


@main.command()
@click.argument("file")
@_plan_options
@click.option("--json", "as_json", is_flag=True, help="The manifest that a sweep would write.")
def plan(file: str, as_json: bool, **changes: Any) -> None:
    """Show what a sweep would do: cells, attempts, refusals, cost, what is done."""
    from flows import commands

    commands.plan(file, as_json, **changes)


@main.command()
@click.argument("file")
@_plan_options
@_run_options
def sweep(file: str, **options: Any) -> None:
    """Run a sweep file (or resume it: what is done is not run again)."""
    say(f"dyno sweep {file}")
    from flows import commands

    sys.exit(commands.sweep(file, **options))


@main.command()
@click.argument("sweep", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before spending money.")
def resume(sweep: str | None, yes: bool) -> None:
    """Go on with a stopped sweep exactly as it was planned (the newest, or by id or name)."""
    from flows import commands

    sys.exit(commands.resume(sweep, yes))


@main.command()
@click.argument("suite")
@click.option("--agent", metavar="COMMAND", help="Your agent: 'my-agent {prompt}'.")
@click.option("--harness", metavar="NAME", help="A harness file instead of --agent.")
@click.option("--model", required=True, help="A model file's name, or vendor/name.")
@click.option("--name", help="What the agent is called in results.")
@_plan_options
@_run_options
def run(suite: str, **options: Any) -> None:
    """Run one suite with one agent and one model, without writing YAML."""
    say(f"dyno run {suite}")
    from flows import commands

    sys.exit(commands.run(suite, **options))


@main.command()
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@click.option("--harness", metavar="NAME", default="reference", help="What carries them out.")
@click.option("--only", metavar="GLOB", help="Tasks whose id matches.")
@click.option("--limit", type=click.IntRange(1), help="At most so many tasks of each suite.")
@click.option("--concurrency", type=click.IntRange(1), help="Attempts at once.")
@click.option("--fresh", is_flag=True, help="Run again what is done, under new keys.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; progress on standard error.")
def controls(suites: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show whether suites measure anything: oracle, floor (null) and vandal, offline and free.

    Exits with 0 where the oracle solves every task not declared unsolvable; 3 where it fails another; 1
    where some attempt has no result.
    """
    if not as_json:
        say(f"dyno controls {' '.join(suites)}")
    from flows import commands

    sys.exit(commands.controls(list(suites), as_json=as_json, **options))


@main.command()
@click.argument("sweep", required=False)
@click.option(
    "--judge",
    metavar="MODEL",
    help="The model that judges from now on, where a grader asks; its calls are paid for.",
)
def regrade(sweep: str | None, judge: str | None) -> None:
    """Grade stored evidence again, without running anything."""
    from flows import commands

    sys.exit(commands.regrade(sweep, judge))


@main.command()
@click.option("--rebuild", is_flag=True, help="From bundles alone, from nothing.")
def load(rebuild: bool) -> None:
    """Bring the warehouse up to date with the evidence."""
    from flows import reading

    reading.load(rebuild)


# ---------------------------------------------------------------- reading


@main.command()
@click.argument("sweep", required=False)
@click.option(
    "--suite", "suites", multiple=True, metavar="NAME", help="Only this suite (repeatable)."
)
@click.option(
    "--json", "json_file", metavar="FILE", help="Write it as JSON; - for standard output."
)
def scorecard(sweep: str | None, suites: tuple[str, ...], json_file: str | None) -> None:
    """The table: rates with intervals, pass^k, coverage, floors, cost, endings."""
    from flows import reading

    reading.scorecard(sweep, list(suites) or None, json_file)


@main.command()
@click.argument("attempt")
@click.option("--full", is_flag=True, help="Nothing shortened.")
def show(attempt: str, full: bool) -> None:
    """What happened in an attempt: messages, calls, model calls, ending, grade and why.

    ATTEMPT is the beginning of a key, or a task's id.
    """
    from flows import showing

    showing.show(attempt, full)


@main.command()
@click.argument("query")
@click.option("--csv", "form", flag_value="csv", help="As CSV.")
@click.option("--json", "form", flag_value="json", help="As JSON, one object a row.")
def sql(query: str, form: str | None) -> None:
    """Ask the warehouse; read-only. Try: dyno sql "from scorecard"."""
    from flows import reading

    reading.sql(query, form)


@main.group()
def suite() -> None:
    """What is asked: list suites, show one, or check that it can be run."""


@suite.command("list")
def suite_list() -> None:
    """Every suite that can be named, and where it lies."""
    from flows import reading

    reading.list_suites()


@suite.command("show")
@click.argument("name")
def suite_show(name: str) -> None:
    """What a suite asks, a line a task."""
    from flows import reading

    reading.show_suite(name)


@suite.command("check")
@click.argument("names", nargs=-1, required=True)
def suite_check(names: tuple[str, ...]) -> None:
    """Refuse what cannot be run, with file, line and key, before anything is spent."""
    from flows import reading

    for name in names:
        reading.check_suite(name)


@main.group()
def harness() -> None:
    """What drives a model: list harnesses, or check that one works here."""


@harness.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def harness_list(as_json: bool) -> None:
    """Every harness file, with the version that is found on this machine."""
    from flows import harness as harnesses

    harnesses.list_harnesses(as_json)


@harness.command("check")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--agent", metavar="COMMAND", help="Your agent: 'my-agent {prompt}'.")
@click.option("--seconds", type=click.FloatRange(1), default=120.0, help="Deadline of a run.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; the lines on standard error.")
def harness_check(names: tuple[str, ...], agent: str | None, as_json: bool, seconds: float) -> None:
    """Run harnesses against scripted models and one tool, and say line by line what works.

    Exits with 0 only where every line is well. Costs nothing, and leaves nothing in the warehouse.
    """
    from flows import harness as harnesses

    sys.exit(harnesses.check(list(names), agent, as_json, seconds))


# ---------------------------------------------------------------- around it


@main.group()
def init() -> None:
    """Write a commented file to start from."""


@init.command("harness")
@click.argument("name", required=False, default="my-harness")
def init_harness(name: str) -> None:
    """Write suites/harnesses/NAME.yaml."""
    from flows import newcomer

    newcomer.init_harness(name)


@main.command()
def doctor() -> None:
    """Say what is present on this machine and what is not."""
    from flows import newcomer

    sys.exit(newcomer.doctor())


@main.command()
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def ui(no_browser: bool) -> None:
    """Open the local Prefect UI."""
    from flows import newcomer

    newcomer.ui(not no_browser)


@main.command("server")
@click.argument("action", type=click.Choice(["start", "stop", "status"]))
def server_command(action: str) -> None:
    """Start, stop or look at the local Prefect server."""
    from flows import newcomer

    newcomer.server_action(action)


@functools.cache
def terminal() -> tuple[int, bool]:
    """Columns of the terminal (80 where there is none), and whether colour is wanted."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return (shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80), colour


def here(path: Path) -> str:
    """A path as a person would type it from where they stand."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    main()
