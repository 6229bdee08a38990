"""The sweep: convert what is missing, plan, run every attempt, grade, load, show.

    sweep ── convert (if needed) ── plan ─► attempt × attempt × … ─► grade (a task a cell) ─► load ─► artifact

An attempt is one Prefect task, named like its place in the matrix; its parameters are two ids. Prefect
retries it, for infrastructure errors only; the evidence, not Prefect, knows what is done: a done attempt
is not submitted at all, so that running a finished sweep again costs a second and asks nobody.

Ctrl-C, SIGTERM and a cancel in the UI all end here in `Stopped`: harnesses are ended, attempts in
flight are sealed as cancelled, and nothing that was done is lost.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.tasks import exponential_backoff

from flows.convert import convert_missing
from flows.progress import Display
from suites.home import evidence_root
from suites.loading import Located, load_sweep
from suites.schema import Sweep
from tasks.attempt.policy import InfrastructureError, rule_of_error
from tasks.grade.graders import validate_grade
from tasks.grading import grade_cell
from tasks.load import load as load_warehouse
from tasks.planning import Plan, make_plan
from tasks.running import PLANS, close_workshop, plan_of, prestart, run_planned, workshop
from warehouse.evidence import CorruptBundle, Evidence

CANCEL_POLL = 4.0
"""Seconds between two looks at whether the run was cancelled in the UI."""


class Stopped(Exception):  # noqa: N818 - the condition
    """The sweep was stopped by a person (or the disk); what is done is done.

    Attributes:
        plan: what was planned, to say what is left.
        reason: in words.
    """

    def __init__(self, plan: Plan, reason: str) -> None:
        self.plan = plan
        self.reason = reason
        super().__init__(reason)


# ---------------------------------------------------------------- Prefect tasks


def _cache_key(_context: Any, parameters: dict[str, Any]) -> str:
    return f"attempt-{parameters['key']}"


def _may_help(_task: Any, _run: Any, state: State[Any]) -> bool:
    """True where the policy table says that another try may help."""
    try:
        state.result()
    except InfrastructureError as error:
        return error.rule.retry
    except Exception:
        return True
    return False


# The bundle is asked before the cache (done attempts are never submitted), so the cache may only be
# written here, for Prefect's own view of the run: believing it against the evidence would be the lie of
# an attempt that is "done" and has no bundle.
@task(
    name="attempt",
    task_run_name="{label}",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=_cache_key),
    refresh_cache=True,
    persist_result=True,
    result_serializer="json",
    retry_condition_fn=_may_help,
)
def attempt(sweep_id: str, key: str, label: str) -> dict[str, Any]:
    """Run one attempt of a planned sweep; raises InfrastructureError where it has no result."""
    return run_planned(sweep_id, key)


@task(name="grade", task_run_name="grade {label}")
def grade(sweep_id: str, cell: int, label: str) -> dict[str, int]:
    """Grade what one cell's finished attempts left; pure over evidence."""
    return dict(grade_cell(plan_of(sweep_id, _evidence()), cell, _evidence()))


@task(name="load")
def load(label: str = "warehouse") -> str:
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
    fresh: bool = False,
) -> Any:
    """Run a sweep file.

    Args:
        file: name of a sweep in suites/sweeps/, or the path of a file.
        only: glob over task ids; results are per task then, without an index.
        limit: at most so many tasks of each suite.
        repeats: attempts of each task in each cell.
        concurrency: attempts at once.
        fresh: run again what is done already, under new keys.
    """
    definition = changed(load_sweep(file), only, limit, repeats, concurrency)
    return conduct(definition, fresh=fresh)


@flow(name="run", flow_run_name="{name}", log_prints=False)
def run_definition(name: str, definition: dict[str, Any], folder: str, fresh: bool = False) -> Any:
    """Run a sweep that has no file: `dyno run`.

    Args:
        name: shown in the UI.
        definition: a `Sweep` as JSON, its harness inline.
        folder: what the harness's `{{ harness_dir }}` means.
        fresh: as in `sweep`.
    """
    made = Sweep.model_validate(definition)
    harnesses = [
        Located(harness=harness, folder=folder)
        for harness in made.harnesses
        if not isinstance(harness, str)
    ]
    return conduct(made, harnesses=harnesses or None, fresh=fresh)


def changed(
    definition: Sweep,
    only: str | None = None,
    limit: int | None = None,
    repeats: int | None = None,
    concurrency: int | None = None,
) -> Sweep:
    """The sweep with what was given on the command line or in the UI's form."""
    given = {"only": only, "limit": limit, "repeats": repeats, "concurrency": concurrency}
    values = definition.model_dump() | {k: v for k, v in given.items() if v is not None}
    return Sweep.model_validate(values)


_display: Display | None = None


@contextmanager
def displayed(display: Display) -> Iterator[None]:
    """Sweeps run in this process are shown on `display` while this lasts."""
    global _display
    _display = display
    try:
        yield
    finally:
        _display = None


def _shown() -> Display:
    if _display is not None:
        return _display
    from prefect.logging import get_run_logger

    return Display(say=get_run_logger().info, live=False)


def conduct(
    definition: Sweep,
    *,
    harnesses: list[Located] | None = None,
    fresh: bool = False,
    runner: TaskRunner[Any] | None = None,
) -> Any:
    """All of a sweep, inside a flow run; the sweep's summary, or a Cancelled state.

    Args:
        definition: the sweep, with the command line's changes applied.
        harnesses: instead of the definition's, for an agent without a file.
        fresh: reuse nothing.
        runner: where attempts run; None: threads of this process.
    """
    display = _shown()
    convert_missing(definition.suites, display.note)
    plan = make_plan(definition, harnesses=harnesses, fresh=fresh, validate_grade=validate_grade)
    evidence = _evidence()
    plan.write(evidence)
    PLANS[plan.sweep_id] = plan
    display.began([(c.label, len(plan.of_cell(c.cell)), c.refused) for c in plan.cells])
    stopped: Stopped | None = None
    try:
        with display.drawing(), _stoppable() as stop:
            _run_and_grade(plan, evidence, display, stop, runner)
    except Stopped as error:
        stopped = error
    finally:
        close_workshop()
    if stopped is None:
        plan.manifest["finished_at"] = time.time()
        plan.write_manifest(evidence)
    display.note("loading the warehouse")
    load("warehouse")
    _publish_scorecard(plan)
    if stopped:
        return Cancelled(message=stopped.reason, data={"sweep_id": plan.sweep_id})
    return summary_of(plan, evidence)


def summary_of(plan: Plan, evidence: Evidence) -> dict[str, Any]:
    """How many attempts of a sweep are done, and its id."""
    done = sum(evidence.is_done(key) for key in plan.by_key)
    return {"sweep_id": plan.sweep_id, "planned": len(plan.by_key), "done": done}


def _evidence() -> Evidence:
    return Evidence(evidence_root())


# ---------------------------------------------------------------- running


def _run_and_grade(
    plan: Plan,
    evidence: Evidence,
    display: Display,
    stop: threading.Event,
    runner: TaskRunner[Any] | None,
) -> None:
    crew = runner or ThreadPoolTaskRunner(max_workers=plan.sweep.concurrency)
    with crew:
        crowd = _Crowd(plan, evidence, display, stop, crew)
        crowd.run()


class _Crowd:
    """The attempts of one sweep on a task runner, a bounded window of them at a time."""

    def __init__(
        self,
        plan: Plan,
        evidence: Evidence,
        display: Display,
        stop: threading.Event,
        runner: TaskRunner[Any],
    ) -> None:
        self.plan = plan
        self.evidence = evidence
        self.display = display
        self.stop = stop
        self.runner = runner
        self.ended: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.flying = 0
        self.left: Counter[int] = Counter()
        self.spent = 0.0
        self.dead_cells: dict[int, str] = {}
        retries = plan.sweep.retries
        self.attempt = attempt.with_options(
            retries=retries.tries - 1,
            retry_delay_seconds=exponential_backoff(retries.backoff_seconds)
            if retries.tries > 1
            else 0,
            retry_jitter_factor=1.0,
        )

    def run(self) -> None:
        """Run what is not done, then grade each cell as it completes."""
        todo = self._todo()
        if todo:
            prestart(self.plan)
        window = 2 * self.plan.sweep.concurrency
        self.display.note("running")
        try:
            for planned in todo:
                while self.flying >= window:
                    self._take_one()
                if self._may_start(planned):
                    self._submit(planned)
            while self.flying:
                self._take_one()
        except (KeyboardInterrupt, Stopped) as error:
            self._stop(error)

    def _todo(self) -> list[dict[str, Any]]:
        todo = []
        reused: Counter[int] = Counter()
        for planned in self.plan.manifest["attempts"]:
            if self.evidence.is_done(planned["key"]):
                reused[planned["cell"]] += 1
            else:
                self.left[planned["cell"]] += 1
                todo.append(planned)
        for number, count in reused.items():
            self.display.reused(number, count)
        for cell in self.plan.cells:
            if cell.refused is None and not self.left[cell.cell]:
                self._grade(cell.cell)
        return todo

    def _may_start(self, planned: dict[str, Any]) -> bool:
        budget = self.plan.sweep.budget_dollars
        if budget is not None and self.spent >= budget:
            raise Stopped(self.plan, f"the sweep's budget of ${budget:g} is spent")
        if planned["cell"] in self.dead_cells:
            self._settle(planned["cell"])
            return False
        return True

    def _submit(self, planned: dict[str, Any]) -> None:
        cell = self.plan.cells[planned["cell"]]
        label = f"{cell.label} · {planned['task_id']} · {planned['repeat'] + 1}"
        future = self.runner.submit(
            self.attempt,
            parameters={"sweep_id": self.plan.sweep_id, "key": planned["key"], "label": label},
        )
        self.flying += 1
        future.add_done_callback(lambda _: self.ended.put(planned))

    def _take_one(self) -> None:
        """Wait for one attempt to end, and account for it from the evidence."""
        while True:
            if self.stop.is_set():
                raise Stopped(self.plan, "the sweep was stopped")
            if workshop().fatal:
                raise Stopped(self.plan, f"{workshop().fatal}; make room and run it again")
            try:
                planned = self.ended.get(timeout=0.5)
                break
            except Empty:
                continue
        self.flying -= 1
        error_class, cost = self._account(planned)
        self.spent += cost or 0.0
        self.display.finished(planned["cell"], error_class, cost)
        if error_class:
            self._learn(planned["cell"], error_class)
        self._settle(planned["cell"])

    def _account(self, planned: dict[str, Any]) -> tuple[str | None, float | None]:
        try:
            bundle = self.evidence.published(planned["key"])
            if bundle is not None:
                return None, bundle.record["host"].get("cost")
            tries = self.evidence.tries(planned["key"])
            last = self.evidence.bundle(tries[-1]) if tries else None
        except CorruptBundle as error:
            self.display.say(f"! {error}")
            return "internal", None
        if last is None or not last.record["error"]:
            return "internal", None
        return last.record["error"]["class"], last.record["host"].get("cost")

    def _learn(self, cell: int, error_class: str) -> None:
        stops = rule_of_error(error_class).stops
        if stops == "sweep":
            raise Stopped(self.plan, rule_of_error(error_class).says)
        if stops == "cell" and cell not in self.dead_cells:
            self.dead_cells[cell] = error_class
            says = rule_of_error(error_class).says
            self.display.say(
                f"! {self.plan.cells[cell].label}: {says}; the rest of the cell is left"
            )

    def _settle(self, cell: int) -> None:
        self.left[cell] -= 1
        if self.left[cell] == 0:
            self._grade(cell)

    def _grade(self, cell: int) -> None:
        label = self.plan.cells[cell].label
        try:
            counts = grade(self.plan.sweep_id, cell, label)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            workshop().fatal = f"the disk is full ({error.filename})"
            self.display.say(f"! {label}: not graded, since the disk is full")
            return
        graded = counts.get("solved", 0) + counts.get("failed", 0)
        if counts.get("corrupt"):
            self.display.say(
                f"! {label}: {counts['corrupt']} bundle(s) cannot be read and count as not graded; `dyno "
                "load` names them; delete an attempt's folder to have it run again"
            )
        self.display.graded(cell, counts.get("solved", 0), graded)

    def _stop(self, error: BaseException) -> None:
        """End what runs and wait for it to be sealed; grade what is done; then say so upwards."""
        self.display.say("stopping: ending the harnesses that run and sealing their records")
        workshop().stop()
        until = time.monotonic() + 25
        while self.flying and time.monotonic() < until:
            try:
                self.ended.get(timeout=0.5)
                self.flying -= 1
            except Empty:
                continue
        for cell in self.plan.cells:
            if cell.refused is None and self.left[cell.cell] > 0:
                self._grade(cell.cell)
        reason = error.reason if isinstance(error, Stopped) else "the sweep was stopped"
        raise Stopped(self.plan, reason) from error


# ---------------------------------------------------------------- stopping


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Signals and a cancel in the UI set the event that is yielded; a second Ctrl-C insists."""
    stop = threading.Event()
    over = threading.Event()

    def on_signal(number: int, _frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        old = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    watcher = threading.Thread(target=_watch_for_cancel, args=(stop, over), daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        over.set()
        for number, handler in old.items():
            signal.signal(number, handler)


def _watch_for_cancel(stop: threading.Event, over: threading.Event) -> None:
    """Ask the API now and then whether somebody cancelled this flow run."""
    run_id, base = flow_run.id, os.environ.get("PREFECT_API_URL")
    if not run_id or not base:
        return
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while not over.wait(CANCEL_POLL):
        try:
            with opener.open(f"{base}/flow_runs/{run_id}", timeout=10) as reply:
                state = json.load(reply)["state_type"]
        except (OSError, ValueError, KeyError):
            continue  # a server that is away for a while does not stop a sweep
        if state in ("CANCELLING", "CANCELLED"):
            stop.set()
            return


# ---------------------------------------------------------------- artifact


def _publish_scorecard(plan: Plan) -> None:
    """Leave the scorecard as a table artifact of the flow run."""
    from warehouse.query import connect, plain
    from warehouse.scorecard import scorecard_rows

    try:
        with connect(sweep_id=plan.sweep_id) as con:
            rows = [
                {name: plain(value) for name, value in row.items()}
                for row in scorecard_rows(con, None, plan.sweep_id)
            ]
        create_table_artifact(
            key="scorecard", table=rows, description=f"Scorecard of {plan.sweep_id}"
        )
    except Exception as error:  # pictures only: the warehouse has the figures
        _shown().say(f"the scorecard artifact was not stored: {error}")
