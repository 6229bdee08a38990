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
from suites.schema import Model, Task
from tasks.plans import Cell, Plan
from warehouse.evidence import Evidence

CHARACTERS_A_TOKEN = 4
CALLS, ANSWER_TOKENS = 2.5, 250
"""A rough attempt, where a model file gives no estimate: the prompt and tools sent so often, so many
tokens said."""
TURNS, USERS_TOKENS = 8, 60
"""A rough conversation: so many messages of the user, so many tokens each."""


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
    """Agent and simulated user together; None where the price of one that costs money is not known."""
    total = 0.0
    if cell.harness_definition.wire != "none" or cell.user is None:
        agents = _agents_cost(plan, cell, left)
        if agents is None:
            return None
        total += agents
    player = cell.user.model if cell.user else None
    if player and not player.is_scripted:
        if player.prices is None:
            return None
        total += sum(_users_cost(plan.task(planned), player) for planned in left)
    return total


def _agents_cost(plan: Plan, cell: Cell, left: list[dict[str, Any]]) -> float | None:
    prices, model = cell.prices, cell.model_definition
    if prices is None or cell.harness_definition.wire == "none":
        return None
    total = 0.0
    for planned in left:
        given, task = model.estimate, plan.task(planned)
        calls = TURNS * CALLS if task.user else CALLS
        tokens_in = given.get("input") or calls * _prompt_tokens(task)
        tokens_out = given.get("output") or ANSWER_TOKENS * (TURNS if task.user else 1)
        total += (tokens_in * prices["input"] + tokens_out * prices["output"]) / 1e6
    return total


def _users_cost(task: Task, player: Model) -> float:
    """What a model costs that plays the user of this task."""
    if task.user is None or player.prices is None:
        return 0.0
    prompt = len(task.user.scenario) / CHARACTERS_A_TOKEN + TURNS * USERS_TOKENS
    tokens_in = player.estimate.get("input") or TURNS * prompt
    tokens_out = player.estimate.get("output") or TURNS * USERS_TOKENS
    return (tokens_in * player.prices.input + tokens_out * player.prices.output) / 1e6


def _prompt_tokens(task: Task) -> float:
    said = sum(len(message.content) for message in task.messages) + len(task.policy or "")
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
    users = sorted({item.cell.user.name for item in cells if item.cell.user})
    if users:
        console.print(f"Simulated users are played by: {', '.join(users)}.", markup=False)
    left = sum(item.left for item in cells)
    planned = sum(item.planned for item in cells)
    console.print(f"{planned} attempts planned, {planned - left} done, {left} to run.")
    console.print(_cost_line(cells), markup=False)


def _cost_line(cells: list[CellPlan]) -> str:
    real = [c for c in cells if c.left and _is_called(c.cell)]
    if not real:
        return "No money is spent: every model is scripted (their prices are invented)."
    priced = sum(c.cost or 0.0 for c in real)
    unpriced = sorted(
        {
            model.name
            for c in real
            if c.cost is None
            for model in called(c.cell)
            if model.prices is None and not model.is_scripted
        }
    )
    text = f"Estimated spend: ${priced:.2f}"
    if unpriced:
        text += (
            f", and an unknown sum for {', '.join(unpriced)}, whose price no file states"
            " (docs/models.md); its cost will be NULL, not 0"
        )
    return text + "."


def called(cell: Cell) -> list[Model]:
    """The models that the cell calls through our gateway: the agent's, the user's, the judge's."""
    found = [cell.model_definition] if cell.harness_definition.wire != "none" else []
    others = (cell.user and cell.user.model, cell.judge_definition)
    return found + [model for model in others if model]


def _is_called(cell: Cell) -> bool:
    """True where the cell calls a model that costs money."""
    return any(not model.is_scripted for model in called(cell))


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
