"""The commands that only read: none of them waits for Prefect or for a load."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flows.cli import here, terminal
from suites.errors import InputError
from suites.schema import LoadedSuite


def load(rebuild: bool) -> None:
    """`dyno load`."""
    from tasks.load import load as load_warehouse

    click.echo(str(load_warehouse(rebuild=rebuild, say=click.echo)))


def scorecard(sweep: str | None, suites: list[str] | None, json_file: str | None) -> None:
    """`dyno scorecard`."""
    from warehouse.query import connect
    from warehouse.scorecard import refused_cells, render, scorecard_json, scorecard_rows

    sweep_id = None if sweep is None else newest_sweep(sweep)
    with connect(sweep_id=sweep_id) as con:
        if json_file:
            document = scorecard_json(con, suites, sweep_id)
            if json_file == "-":
                sys.stdout.buffer.write(document)
            else:
                Path(json_file).write_bytes(document)
            return
        width, colour = terminal()
        rows = scorecard_rows(con, suites, sweep_id)
        if suites and not rows:
            raise InputError(f"no results of {', '.join(suites)}", mend="dyno scorecard shows all")
        click.echo(render(rows, width, colour, refused_cells(con, sweep_id)), nl=False)


def ungraded(sweep_id: str) -> int:
    """How many attempts of a sweep are done and have no verdict, whatever kept the grader from one."""
    from warehouse.query import connect

    with connect(sweep_id=sweep_id) as con:
        row = con.execute("select count(*) from attempts where outcome = 'grader_error'").fetchone()
    return int(row[0]) if row else 0


def gold_failures(sweep_id: str, oracles: list[str]) -> str:
    """The tasks whose gold its own grader refuses, by id and with the grader's reason; "" if none.

    Told only of what the reference harness carried out to a clean end and no other harness solved:
    where a harness did not make the gold calls, the failure is the harness's.

    Args:
        sweep_id: the sweep just run.
        oracles: names of its models that play the gold.
    """
    from warehouse.query import connect

    with connect(sweep_id=sweep_id) as con:
        rows = con.execute(
            """
            select task_id, any_value(error_type), any_value(finding)
            from findings
            where headline and not passed and list_contains(?, model) and harness = 'reference'
              and attempt_key in (select attempt_key from attempts where ending = 'clean')
              and (suite, task_id) not in (
                select (suite, task_id) from attempts where outcome = 'solved'
              )
            group by suite, task_id
            order by suite, task_id
            """,
            [oracles],
        ).fetchall()
    if not rows:
        return ""
    lines = [f"{len(rows)} task(s) whose gold fails the benchmark's own grader:"]
    for task_id, error_type, finding in rows:
        lines.append(f"  {task_id}: {error_type or ''}: {' '.join((finding or '').split())[:160]}")
    return "\n".join(lines)


def newest_sweep(sweep: str | None, ours: bool = False) -> str:
    """The id of the newest sweep that is meant: by the beginning of its id, its name or its file.

    Args:
        sweep: how it was named; None: any.
        ours: True leaves out what was imported: nobody can go on with that.

    Raises:
        InputError: there is none.
    """
    from suites.home import evidence_root

    known = sorted(path.stem for path in (evidence_root() / "sweeps").glob("*.json"))
    if ours and any("-import-" in name for name in known):
        from tasks.imports.writing import imported_sweeps
        from warehouse.evidence import Evidence

        imported = imported_sweeps(Evidence(evidence_root()))
        known = [name for name in known if name not in imported]
    name = Path(sweep).stem if sweep else ""
    chosen = [i for i in known if not sweep or i.startswith(sweep) or _name_in(i) == name]
    if not chosen:
        recent = ", ".join(known[-3:])
        raise InputError(
            f"no sweep is called {sweep!r}" if sweep else "no sweep has been run yet",
            mend=f"the newest are {recent}" if recent else "dyno sweep smoke",
        )
    return chosen[-1]


def _name_in(sweep_id: str) -> str:
    """The sweep's name in its id, `<time>-<name>-<random>`."""
    return sweep_id.split("-", 1)[1].rsplit("-", 1)[0]


def sql(query: str, form: str | None) -> None:
    """`dyno sql`."""
    from warehouse.query import as_csv, as_json, as_table, connect, run_sql

    with connect() as con:
        answer = run_sql(con, query)
    if form == "csv":
        click.echo(as_csv(answer), nl=False)
    elif form == "json":
        click.echo(as_json(answer), nl=False)
    else:
        width, colour = terminal()
        click.echo(as_table(answer, width, colour), nl=False)


def list_suites() -> None:
    """`dyno suite list`."""
    from suites import loading_suites

    for known, path in loading_suites.list_suites().items():
        click.echo(f"{known:32} {here(path)}")


def show_suite(name: str) -> None:
    """`dyno suite show`."""
    suite = check_suite(name)
    head = suite.suite
    click.echo(f"{head.description}\ndataset {head.dataset.source} {head.dataset.version}\n")
    for task in suite.tasks:
        if task.user is not None and task.user.script is not None:
            asked = task.user.script.opening  # the agent's greeting is the same in all of them
        else:
            asked = " ".join(message.content for message in task.messages)
        click.echo(f"{task.id:28} {' '.join(asked.split())[:90]}")


def check_suite(name: str) -> LoadedSuite:
    """`dyno suite check`.

    Raises:
        InputError: it cannot be run.
    """
    from suites.loading_suites import load_suite
    from tasks.grade.graders import validate_grade

    suite = load_suite(name, validate_grade)
    head = suite.suite
    click.echo(
        f"{head.name} {head.version} ({head.benchmark}): {len(suite.tasks)} tasks; it can be run"
    )
    return suite
