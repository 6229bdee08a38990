"""The sweep: convert what is missing, plan, run every attempt, grade, load, show.

    sweep ── convert (if needed) ── plan ─► attempt × attempt × … ─► grade (a task a cell) ─► load ─► artifact

An attempt is one Prefect task, named like its place in the matrix; its parameters are two ids. Prefect
retries it, for infrastructure errors only; the evidence, not Prefect, knows what is done: a done attempt
is not submitted at all, so that running a finished sweep again costs a second and asks nobody.

Ctrl-C, SIGTERM and a cancel in the UI all end here in `Stopped`: harnesses are ended, attempts in
flight are sealed as cancelled, and nothing that was done is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.states import Cancelled
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.controls import CONTROL_HARNESS, controls_sweep
from flows.convert import convert_missing
from flows.crowd import Crowd
from flows.progress import Display
from flows.server import client_registered
from flows.stopping import Stopped, stoppable
from suites.home import evidence_root
from suites.loading import load_sweep
from suites.schema import Sweep
from tasks.grade.graders import validate_grade
from tasks.load import load as load_warehouse
from tasks.planning import make_plan, with_changes
from tasks.plans import Plan
from tasks.running import PLANS, close_workshop
from warehouse.evidence import Evidence


@task(name="load", task_run_name="load the warehouse")
def load() -> str:
    """Bring the warehouse up to date with the evidence."""
    return str(load_warehouse())


# ---------------------------------------------------------------- the flow


@flow(name="sweep", flow_run_name="{file}", log_prints=False)
def sweep(
    file: str,
    only: str | None = None,
    limit: int | None = None,
    repeats: int | None = None,
    concurrency: int | None = None,
    user: str | None = None,
    judge: str | None = None,
    fresh: bool = False,
) -> Any:
    """Run a sweep file.

    Args:
        file: name of a sweep in suites/sweeps/, or the path of a file.
        only: glob over task ids; results are per task then, without an index.
        limit: at most so many tasks of each suite.
        repeats: attempts of each task in each cell.
        concurrency: attempts at once.
        user: who plays simulated users: a model, `scripted`, or `replay:FILE`.
        judge: the model that judges, where a grader asks for one.
        fresh: run again what is done already, under new keys.
    """
    definition = with_changes(
        load_sweep(file),
        only=only,
        limit=limit,
        repeats=repeats,
        concurrency=concurrency,
        user=user,
        judge=judge,
    )
    return conduct(definition, fresh=fresh)


@flow(name="run", flow_run_name="{name}", log_prints=False)
def run_definition(name: str, definition: dict[str, Any], fresh: bool = False) -> Any:
    """Run a sweep that has no file: `dyno run`.

    Args:
        name: shown in the UI.
        definition: a `Sweep` as JSON, its harness inline.
        fresh: as in `sweep`.
    """
    return conduct(Sweep.model_validate(definition), fresh=fresh)


@flow(name="controls", flow_run_name="controls", log_prints=False)
def controls(
    suites: list[str],
    harness: str = CONTROL_HARNESS,
    only: str | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    fresh: bool = False,
) -> Any:
    """Run oracle, null agent and vandal through suites: can everybody pass them, or nobody?

    Args:
        suites: names or paths.
        harness: carries out what the scripted models say; a harness file's name or path.
        only: glob over task ids.
        limit: at most so many tasks of each suite.
        concurrency: attempts at once.
        fresh: as in `sweep`.
    """
    definition = controls_sweep(suites, harness, only=only, limit=limit, concurrency=concurrency)
    result = conduct(definition, fresh=fresh)
    if isinstance(result, dict):
        _publish_controls(result["sweep_id"])
    return result


@flow(name="resume", flow_run_name="resume {sweep_id}", log_prints=False)
def resume(sweep_id: str) -> Any:
    """Go on with a sweep exactly as it was planned, `--fresh` ones too.

    Args:
        sweep_id: as `dyno sweep` printed it when it was stopped.
    """
    return carry_out(Plan.read(_evidence(), sweep_id))


_display: Display | None = None
_prepared: Plan | None = None


@contextmanager
def displayed(display: Display, prepared: Plan | None = None) -> Iterator[None]:
    """A sweep run in this process is shown on `display`, and takes a plan that is made already."""
    global _display, _prepared
    _display, _prepared = display, prepared
    try:
        yield
    finally:
        _display = _prepared = None


def _shown() -> Display:
    if _display is not None:
        return _display
    from prefect.logging import get_run_logger

    return Display(say=get_run_logger().info, live=False)


def conduct(
    definition: Sweep,
    *,
    fresh: bool = False,
    runner: TaskRunner[Any] | None = None,
) -> Any:
    """All of a sweep, inside a flow run; the sweep's summary, or a Cancelled state.

    Args:
        definition: the sweep, with the command line's changes applied.
        fresh: reuse nothing.
        runner: where attempts run; None: threads of this process.
    """
    plan = _prepared
    if plan is None:
        convert_missing(definition.suites, _shown().note)
        plan = make_plan(definition, fresh=fresh, validate_grade=validate_grade)
    return carry_out(plan, runner)


def carry_out(plan: Plan, runner: TaskRunner[Any] | None = None) -> Any:
    """Run, grade, load and show a plan, inside a flow run."""
    display, evidence = _shown(), _evidence()
    plan.write(evidence)
    PLANS[plan.sweep_id] = plan
    display.began([(c.label, len(plan.of_cell(c.cell)), c.refused) for c in plan.cells])
    stopped: Stopped | None = None
    try:
        crew = runner or ThreadPoolTaskRunner(max_workers=plan.sweep.concurrency)
        # A worker's run counts as a user of the local server as well as a command's does.
        with client_registered(), display.drawing(), stoppable() as stop, crew:
            Crowd(plan, evidence, display, stop, crew).run()
    except Stopped as error:
        stopped = error
    finally:
        close_workshop()
    if stopped is None:
        plan.manifest["finished_at"] = time.time()
        plan.write_manifest(evidence)
    display.note("loading the warehouse")
    load()
    _publish_scorecard(plan)
    if stopped:
        return Cancelled(message=f"{stopped.reason} ({plan.sweep_id})")
    return summary_of(plan, evidence)


def summary_of(plan: Plan, evidence: Evidence) -> dict[str, Any]:
    """How many attempts of a sweep are done, and its id."""
    done = sum(evidence.is_done(key) for key in plan.by_key)
    return {"sweep_id": plan.sweep_id, "planned": len(plan.by_key), "done": done}


def _evidence() -> Evidence:
    return Evidence(evidence_root())


# ---------------------------------------------------------------- artifact


ARTIFACT_COLUMNS = (
    "suite",
    "category",
    "harness",
    "mode",
    "model",
    "pass_at_1",
    "pass_at_1_low",
    "pass_at_1_high",
    "pass_hat_k",
    "coverage",
    "floor",
    "cost_per_solved",
    "tool_error_rate",
    "wall_s",
    "n",
    "planned",
    "infra_errors",
    "suite_version",
    "dataset_version",
    "grader",
    "harness_version",
    "config_hash",
)
"""What the table in the Prefect UI shows, the figures first; the warehouse has the rest."""


def _publish_scorecard(plan: Plan) -> None:
    """Leave the scorecard as a table artifact of the flow run."""
    from warehouse.query import connect, plain
    from warehouse.scorecard import scorecard_rows

    try:
        with connect(sweep_id=plan.sweep_id) as con:
            rows = [
                {name: plain(row[name]) for name in ARTIFACT_COLUMNS}
                for row in scorecard_rows(con, None, plan.sweep_id)
            ]
        create_table_artifact(
            key="scorecard", table=rows, description=f"Scorecard of {plan.sweep_id}"
        )
    except Exception as error:  # pictures only: the warehouse has the figures
        _shown().say(f"the scorecard artifact was not stored: {error}")


def _publish_controls(sweep_id: str) -> None:
    """Leave the controls, as a person reads them, as an artifact of the flow run."""
    from prefect.artifacts import create_markdown_artifact

    from warehouse.controls import controls_document, render_controls
    from warehouse.query import connect

    try:
        with connect(sweep_id=sweep_id) as con:
            text = render_controls(controls_document(con, sweep_id), 100)
        create_markdown_artifact(
            key="controls", markdown=f"```\n{text}```", description=f"Controls of {sweep_id}"
        )
    except Exception as error:  # pictures only: the warehouse has the figures
        _shown().say(f"the controls artifact was not stored: {error}")
