"""Who judges a sweep that was run already: which of its cells need a model for that, and naming one."""

from __future__ import annotations

from suites.errors import InputError
from suites.loading import load_player
from suites.schema import Model
from tasks.configurations import check_model
from tasks.grade.graders import asked_of, needs_judge
from tasks.plans import Cell, Plan
from warehouse.evidence import Evidence


def judge_named(ref: str | Model) -> Model:
    """The model that `dyno regrade --judge` names, ready to be asked.

    Raises:
        InputError: there is none of that name, it cannot judge, or its API key is not set.
    """
    judge = load_player("judge", ref)
    assert judge is not None
    check_model(judge)
    return judge


def needs_its_judge(plan: Plan, cell: Cell) -> bool:
    """True where a model has to judge some task of the cell's suite."""
    tasks = plan.suites[cell.suite_digest].tasks
    return any(needs_judge(task.grade.grader, task.grade.spec) for task in tasks)


def why_not_asked(plan: Plan, cell: Cell) -> InputError | None:
    """Why the cell's judge, where one is named and needed, cannot be asked; None: it can."""
    if cell.judge_definition is None or not needs_its_judge(plan, cell):
        return None
    try:
        check_model(cell.judge_definition)
    except InputError as error:
        return error
    return None


def name_judge(plan: Plan, judge: Model, evidence: Evidence, *, instead: bool) -> bool:
    """Make this the judge of a sweep that was run already; its manifest is written again.

    Attempts then answer to this judge's grades; those by another one stay beside them.

    Args:
        instead: also where the sweep has named another.

    Returns:
        False where no task of the sweep needs this judge: nothing is changed then.
    """
    cells = {
        cell.cell
        for cell in plan.cells
        if (instead or cell.judge_definition is None) and needs_its_judge(plan, cell)
    }
    if not cells:
        return False
    manifest, told = plan.manifest, judge.model_dump(mode="json", exclude_defaults=True)
    # What an imported attempt answers to is the published verdict, whoever judges it again.
    imported = manifest.get("origin") == "imported"
    for record in manifest["cells"]:
        if record["cell"] in cells:
            record["definitions"]["judge"] = told
    for planned in manifest["attempts"]:
        if planned["cell"] in cells and not imported:
            suite = plan.suites[plan.cells[planned["cell"]].suite_digest].suite
            planned["spec_hash"] = asked_of(suite, plan.task(planned), judge)
    manifest["definition"]["judge"] = told
    plan.write_manifest(evidence)
    return True
