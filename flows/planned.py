"""A plan for people to read: what will run, what is done, what is refused, what it may cost."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import click

from flows.cli import terminal
from suites.errors import InputError
from suites.home import evidence_root
from suites.schema import Task
from tasks.plans import Cell, Plan
from warehouse.evidence import Evidence

CHARACTERS_A_TOKEN = 4
CALLS, ANSWER_TOKENS = 2.5, 250
"""A rough attempt, where a model file gives no estimate: the prompt and tools sent so often, so many
tokens said."""


@dataclass(frozen=True)
class CellPlan:
    """One cell of a plan, counted.

    Attributes:
        cost: estimated dollars for what is left to run; None where the model has no price.
    """

    cell: Cell
    planned: int
    done: int
    cost: float | None

    @property
    def left(self) -> int:
        return self.planned - self.done


def count(plan: Plan) -> list[CellPlan]:
    """Each cell's attempts, those done already, and what the rest may cost."""
    evidence = Evidence(evidence_root())
    found = []
    for cell in plan.cells:
        attempts = plan.of_cell(cell.cell)
        left = [a for a in attempts if not evidence.is_done(a["key"])]
        cost = _cost(plan, cell, left)
        found.append(CellPlan(cell, len(attempts), len(attempts) - len(left), cost))
    return found


def _cost(plan: Plan, cell: Cell, left: list[dict[str, Any]]) -> float | None:
    prices, model = cell.prices, cell.model_definition
    if prices is None or cell.harness_definition.wire == "none":
        return None
    total = 0.0
    for planned in left:
        given = model.estimate
        tokens_in = given.get("input") or CALLS * _prompt_tokens(plan.task(planned))
        tokens_out = given.get("output") or ANSWER_TOKENS
        total += (tokens_in * prices["input"] + tokens_out * prices["output"]) / 1e6
    return total


def _prompt_tokens(task: Task) -> float:
    said = sum(len(message.content) for message in task.messages)
    tools = sum(
        len(json.dumps(tool.input_schema)) + len(tool.description)
        for environment in task.environments
        for tool in environment.tools
    )
    return (said + tools) / CHARACTERS_A_TOKEN


def print_plan(plan: Plan) -> None:
    """`dyno plan`, as a table."""
    from rich.console import Console
    from rich.table import Table

    width, colour = terminal()
    console = Console(width=max(width, 80), no_color=not colour, highlight=False)
    table = Table(box=None, pad_edge=False)
    for name in ("suite", "harness", "model"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("attempts", "done", "est. cost"):
        table.add_column(name, justify="right", no_wrap=True)
    cells = count(plan)
    for item in cells:
        cell = item.cell
        if cell.refused:
            table.add_row(cell.suite, cell.harness, cell.model, "refused", "", "")
        else:
            cost = "unknown" if item.cost is None else f"${item.cost:.4f}"
            table.add_row(
                cell.suite, cell.harness, cell.model, str(item.planned), str(item.done), cost
            )
    console.print(table)
    for item in cells:
        if item.cell.refused:
            console.print(f"• refused: {item.cell.label}: {item.cell.refused}", markup=False)
    left = sum(item.left for item in cells)
    planned = sum(item.planned for item in cells)
    console.print(f"{planned} attempts planned, {planned - left} done, {left} to run.")
    console.print(_cost_line(cells), markup=False)


def _cost_line(cells: list[CellPlan]) -> str:
    real = [c for c in cells if c.left and _is_called(c.cell)]
    if not real:
        return "No money is spent: every model is scripted (their prices are invented)."
    priced = sum(c.cost or 0.0 for c in real)
    unpriced = sorted({c.cell.model for c in real if c.cost is None})
    text = f"Estimated spend: ${priced:.2f}"
    if unpriced:
        text += (
            f", and an unknown sum for {', '.join(unpriced)}, whose price no file states"
            " (docs/models.md); its cost will be NULL, not 0"
        )
    return text + "."


def _is_called(cell: Cell) -> bool:
    """True where the cell calls a model that costs money (through our gateway)."""
    return not cell.model_definition.is_scripted and cell.harness_definition.wire != "none"


def confirm(plan: Plan, yes: bool) -> None:
    """Ask before money is spent; silent where none is.

    Raises:
        InputError: nobody is there to ask, and `--yes` was not given.
        click.Abort: the answer was no.
    """
    cells = count(plan)
    real = [c for c in cells if c.left and _is_called(c.cell)]
    if not real or yes:
        return
    print_plan(plan)
    if not sys.stdin.isatty():
        raise InputError(
            "this calls a real model and nobody is here to confirm it", mend="add --yes to go ahead"
        )
    click.confirm("Go ahead?", abort=True)
