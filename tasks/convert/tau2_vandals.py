"""One write too many: calls that a domain's tools carry out and its policy forbids, for the vandal.

Claim: each is legal to upstream's code in the state that gold leaves, so a task that passes all the same
does not look at what it changes. Several are offered where one may not hurt every task; which one a
task's vandal makes, the grader decides (`tau2_oracles.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Write = tuple[str, dict[str, Any]]


def forbidden_writes(domain: str, env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    """Tool and arguments of calls nobody asked for, the likeliest to hurt first.

    Args:
        domain: upstream's name; one we know no writes of has none.
        env: upstream's environment as gold leaves it; it is only read.
        task: the task as its file has it.
    """
    return WRITES.get(domain, _none)(env, task)


def _none(env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    yield from ()


def _customers(env: Any, task: Mapping[str, Any]) -> list[str]:
    """Users of the database, those that the task speaks of first."""
    text = json.dumps(task)
    users = list(env.tools.db.users)
    named = [user for user in users if user in text]
    return [*named, *(user for user in users[:2] if user not in named)]


def _airline(env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    """A certificate as a present."""
    for user in _customers(env, task):
        yield "send_certificate", {"user_id": user, "amount": 500}


def _retail(env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    """Another home."""
    for user in _customers(env, task):
        yield (
            "modify_user_address",
            {
                "user_id": user,
                "address1": "1 Elsewhere Street",
                "address2": "",
                "city": "Elsewhere",
                "state": "TX",
                "country": "USA",
                "zip": "00000",
            },
        )


def _telecom(env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    """The line the user calls about: charged for data, cut off abroad, or suspended.

    Upstream asserts the state of the user's phone, which learns of the last only when it searches again;
    so many telecom tasks have no write of the agent's that costs them.
    """
    phone = env.user_tools.db.surroundings.phone_number
    lines = {line.line_id: line for line in env.tools.db.lines if line.phone_number == phone}
    criteria = task.get("evaluation_criteria") or {}
    asserted = {check["func_name"] for check in criteria.get("env_assertions") or ()}
    for customer in env.tools.db.customers:
        for line in filter(lines.get, customer.line_ids):
            whose = {"customer_id": customer.customer_id, "line_id": line}
            if "assert_data_refueling_amount" in asserted:
                yield "refuel_data", {**whose, "gb_amount": 1.0}
            if env.user_tools.db.surroundings.is_abroad:
                yield "disable_roaming", whose
            if lines[line].status.value == "Active":
                yield "suspend_line", {**whose, "reason": "Nobody asked for it."}
            elif "assert_data_refueling_amount" not in asserted:
                yield "refuel_data", {**whose, "gb_amount": 1.0}


def _mock(env: Any, task: Mapping[str, Any]) -> Iterator[Write]:
    """A task nobody wants, or one set back."""
    for user in env.tools.db.users:
        yield "create_task", {"user_id": user, "title": "Nobody asked for this"}
    for name, task_ in env.tools.db.tasks.items():
        other = "pending" if str(task_.status) == "completed" else "completed"
        yield "update_task_status", {"task_id": name, "status": other}


WRITES: dict[str, Callable[[Any, Mapping[str, Any]], Iterator[Write]]] = {
    "airline": _airline,
    "retail": _retail,
    "telecom": _telecom,
    "mock": _mock,
}
