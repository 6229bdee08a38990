"""From a planned attempt's two ids to its run: what a worker keeps between attempts, and nothing more."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from bridges.channel import ChannelClosed, RemoteError
from suites.home import dyno_home, evidence_root
from suites.schema import Tau2World
from tasks.attempt.environment import Place, render
from tasks.attempt.job import Job, Workshop
from tasks.attempt.lease import Leases, process_identity
from tasks.attempt.life import run_attempt
from tasks.attempt.processes import Processes
from tasks.plans import Plan
from tasks.refusals import resolved_limits
from warehouse.evidence import Evidence
from warehouse.shards import ShardWriter

PLANS: dict[str, Plan] = {}
"""Plans this process has at hand; others are read from the evidence."""

_lock = threading.Lock()
_workshop: Workshop | None = None


def workshop() -> Workshop:
    """This worker's workshop, made on first use."""
    global _workshop
    with _lock:
        if _workshop is None:
            home, evidence = dyno_home(), Evidence(evidence_root())
            run = own_run_folder(home / "run")
            _workshop = Workshop(
                evidence=evidence,
                processes=Processes(home / "logs"),
                leases=Leases(evidence.root / "leases"),
                shards=ShardWriter(home / "shards"),
                run=run,
            )
        return _workshop


def prestart(plan: Plan) -> None:
    """Begin to start what this plan's attempts need, so that imports and worlds load side by side."""
    warm = {
        (render(h.warm.python, {"python": sys.executable}), h.warm.imports)
        for h in (cell.harness_definition for cell in plan.cells if cell.refused is None)
        if h.warm
    }
    processes = workshop().processes
    processes.prestart(warm)
    suites = {cell.suite_digest for cell in plan.cells if cell.refused is None}
    tuples = {id(t.environments): t.environments for s in suites for t in plan.suites[s].tasks}
    worlds = {e.name: e for made in tuples.values() for e in made if isinstance(e, Tau2World)}
    if worlds:
        told = [world.model_dump(mode="json") for world in worlds.values()]
        threading.Thread(target=_prepare, args=(processes, told), daemon=True).start()


def _prepare(processes: Processes, environments: list[dict[str, Any]]) -> None:
    """Have the host load worlds once it is up; what cannot be loaded is told by attempts."""
    try:
        processes.host().call("prepare", environments=environments, timeout=60)
    except (ChannelClosed, RemoteError, TimeoutError):
        pass


def close_workshop() -> None:
    """End this worker's host and launchers and release its leases; the next use makes a new one."""
    global _workshop
    with _lock:
        shop, _workshop = _workshop, None
    if shop is not None:
        shop.close()
        shutil.rmtree(shop.run, ignore_errors=True)


def own_run_folder(parent: Path) -> Path:
    """This worker's folder for the places of its tries; those of dead workers are cleared away."""
    me = process_identity(os.getpid()) or str(os.getpid())
    mine = parent / me.replace(":", "-")
    mine.mkdir(parents=True, exist_ok=True)
    for other in parent.iterdir():
        pid, _, started = other.name.partition("-")
        if other != mine and pid.isdigit() and process_identity(int(pid)) != f"{pid}:{started}":
            Place(other).remove()
    return mine


def run_planned(sweep_id: str, key: str) -> dict[str, Any]:
    """Run one try of a planned attempt.

    Returns:
        `key`, `bundle` (path inside the evidence), `ending`, `reused`: ids and words, no payload.

    Raises:
        InfrastructureError: the try has no result.
    """
    shop = workshop()
    job = job_of(plan_of(sweep_id, shop.evidence), key)
    done = run_attempt(job, shop)
    return {
        "key": key,
        "bundle": done.bundle.folder.relative_to(shop.evidence.root).as_posix(),
        "ending": done.bundle.record["ending"],
        "reused": done.reused,
    }


def plan_of(sweep_id: str, evidence: Evidence) -> Plan:
    """A sweep's plan, read once a process."""
    plan = PLANS.get(sweep_id)
    if plan is None:
        with _lock:
            plan = PLANS.get(sweep_id) or Plan.read(evidence, sweep_id)
            PLANS[sweep_id] = plan
    return plan


def job_of(plan: Plan, key: str) -> Job:
    """The job of a planned attempt, with everything resolved."""
    planned = plan.by_key[key]
    cell = plan.cells[planned["cell"]]
    suite = plan.suites[cell.suite_digest]
    task = plan.task(planned)
    harness = cell.harness_definition
    return Job(
        key=key,
        sweep_id=plan.sweep_id,
        task=task,
        harness=harness,
        harness_dir=cell.harness_dir,
        model=cell.model_definition,
        limits=resolved_limits(plan.sweep, suite, task, harness),
        seed=planned["seed"],
        repeat=planned["repeat"],
        stamp=cell.stamp,
        task_identity={
            "benchmark": cell.benchmark,
            "suite": cell.suite,
            "suite_version": cell.suite_version,
            "suite_digest": cell.suite_digest,
            "task_id": task.id,
            "category": task.category,
            "difficulty": task.difficulty,
            "repeat": planned["repeat"],
        },
        user=cell.user if task.user else None,
    )
