"""Grading stored evidence again, without running anything."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prefect import flow, task

from suites.errors import InputError
from suites.home import evidence_root
from tasks.grade.judging import own_host
from tasks.grading import grade_cell
from tasks.imports.agreement import agreements
from tasks.judges import judge_named, name_judge, why_not_asked
from tasks.load import load as load_warehouse
from tasks.plans import Plan
from warehouse.evidence import Evidence


@task(name="regrade", task_run_name="regrade {label}")
def regrade_cell(
    sweep_id: str, cell: int, label: str, again: bool, judging: bool = True
) -> dict[str, int]:
    """Grade one cell's finished attempts.

    Args:
        judging: False leaves what a model has to judge.
    """
    evidence = Evidence(evidence_root())
    plan = Plan.read(evidence, sweep_id)
    with own_host() as host:
        return dict(grade_cell(plan, cell, evidence, again=again, host=host if judging else None))


@flow(name="regrade", flow_run_name="regrade", log_prints=False)
def regrade(
    sweep: str | None = None, again: bool = True, judge: str | None = None
) -> dict[str, Any]:
    """Grade every finished attempt of a sweep, or of all sweeps, from its evidence.

    Args:
        sweep: a sweep's id, or the beginning of one; none: all sweeps.
        again: also attempts that have a grade of this grader's version; a grade that says the same as
            one on disk is not kept twice. What a model has judged stands, whatever this says.
        judge: the model that judges from now on, where a grader asks for one: of the sweep that is
            named, or of all sweeps that have no judge; none: the sweep's.

    Returns:
        Counts by what came of the attempts (see `grade_cell`), `no_key`: lines on judges that could not
        be asked, and `agreement`: lines on how the imported ones among them compare with what was
        published.

    Raises:
        InputError: there is no such sweep, or a judge that is meant cannot be asked.
    """
    named = judge_named(judge) if judge else None
    evidence = Evidence(evidence_root())
    total: Counter[str] = Counter()
    no_key: dict[str, None] = {}
    chosen = sweep_ids(evidence, sweep)
    for sweep_id in chosen:
        try:
            plan = Plan.read(evidence, sweep_id)
        except InputError:
            if sweep is not None:
                raise
            total["unreadable"] += (
                1  # one broken manifest does not keep the others from their grades
            )
            continue
        if named and name_judge(plan, named, evidence, instead=sweep is not None):
            plan = Plan.read(evidence, sweep_id)
        for cell in plan.cells:
            if cell.refused is not None:
                continue
            missing = why_not_asked(plan, cell)
            if missing is not None:
                if sweep is not None:
                    raise missing
                no_key[f"{missing}; what it has to judge is left"] = None
            counts = regrade_cell(sweep_id, cell.cell, cell.label, again, missing is None)
            total += Counter(counts)
    load_warehouse()
    agreement = [line for one in agreements(evidence, chosen) for line in one.lines()]
    return {"sweeps": len(chosen), **total, "no_key": list(no_key), "agreement": agreement}


def sweep_ids(evidence: Evidence, sweep: str | None) -> list[str]:
    """The sweeps meant, oldest first.

    Raises:
        InputError: none is.
    """
    known = sorted(path.stem for path in (evidence.root / "sweeps").glob("*.json"))
    chosen = [
        name for name in known if sweep is None or name.startswith(sweep) or f"-{sweep}-" in name
    ]
    if not chosen:
        asked = f"no sweep's id begins with {sweep!r}" if sweep else "no sweep has been run yet"
        recent = ", ".join(known[-3:])
        raise InputError(
            asked, mend=f"the newest are {recent}" if recent else "run one: dyno sweep smoke"
        )
    return chosen
