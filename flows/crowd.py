"""The attempts of one sweep on a Prefect task runner: a bounded window of them, accounted for as they end.

What came of an attempt is read from the evidence, never from Prefect: asking a future for its state
costs a request to the server each time, and the evidence is the truth anyway.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import Counter
from queue import Empty, SimpleQueue
from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import State
from prefect.task_runners import TaskRunner
from prefect.tasks import exponential_backoff

from flows.progress import Display
from flows.stopping import Stopped
from suites.home import evidence_root
from tasks.attempt.policy import InfrastructureError, rule_of_error
from tasks.grading import grade_cell
from tasks.plans import Plan
from tasks.running import plan_of, prestart, run_planned, workshop
from warehouse.evidence import Bundle, CorruptBundle, Evidence


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


def _cost(bundle: Bundle) -> float | None:
    """What a try spent, its user's model too, as far as it is known; None where nothing is."""
    host = bundle.record["host"]
    cost: float | None = host.get("cost")
    users = (host.get("user") or {}).get("cost")
    return users if cost is None else cost + (users or 0.0)


@task(name="grade", task_run_name="grade {label}")
def grade(sweep_id: str, cell: int, label: str, judging: bool = True) -> dict[str, int]:
    """Grade what one cell's finished attempts left; pure over evidence, but for what a model judges.

    Args:
        judging: False leaves what a model has to judge.
    """
    evidence = Evidence(evidence_root())
    host = (lambda: workshop().processes.host()) if judging else None
    return dict(grade_cell(plan_of(sweep_id, evidence), cell, evidence, host=host))


class Crowd:
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
            self._refuse_if_fatal()
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
            raise Stopped(f"the sweep's budget of ${budget:g} is spent")
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
                raise Stopped("the sweep was stopped")
            self._refuse_if_fatal()
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

    def _refuse_if_fatal(self) -> None:
        fatal = workshop().fatal
        if fatal:
            raise Stopped(f"{fatal}; make room and run it again")

    def _account(self, planned: dict[str, Any]) -> tuple[str | None, float | None]:
        try:
            bundle = self.evidence.published(planned["key"])
            if bundle is not None:
                return None, _cost(bundle)
            tries = self.evidence.tries(planned["key"])
            last = self.evidence.bundle(tries[-1]) if tries else None
        except CorruptBundle as error:
            self.display.say(f"! {error}")
            return "internal", None
        if last is None or not last.record["error"]:
            return "internal", None
        return last.record["error"]["class"], _cost(last)

    def _learn(self, cell: int, error_class: str) -> None:
        stops = rule_of_error(error_class).stops
        if stops == "sweep":
            raise Stopped(rule_of_error(error_class).says)
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

    def _grade(self, cell: int, judging: bool = True) -> None:
        label = self.plan.cells[cell].label
        try:
            counts = grade(self.plan.sweep_id, cell, label, judging)
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
        if counts.get("unjudged"):
            self.display.say(f"! {label}: {counts['unjudged']} attempt(s) are left to judge")
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
                self._grade(cell.cell, judging=False)  # who stops a sweep waits for no model
        reason = error.reason if isinstance(error, Stopped) else "the sweep was stopped"
        raise Stopped(reason) from error
