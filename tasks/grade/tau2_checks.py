"""Upstream's account of a reward as checks: one for each part, with what was found in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tasks.grade.jobs import Check
from tasks.grade.tau2_worlds import World, differences

FEW = 6
"""So many differing values are told one by one."""
LONGEST_FINDING = 4000
LONGEST_CALL = 300

SIDES = {"assistant": "agent", "user": "user"}


def checks_of(
    reward: Any, messages: Sequence[Any], worlds: Sequence[World], judged: str | None = None
) -> tuple[Check, ...]:
    """A check for each thing upstream looked at.

    Args:
        reward: upstream's `RewardInfo`.
        messages: the trajectory it judged, as upstream's messages.
        worlds: the attempt's and gold's, with what changed in them; none where none was replayed.
        judged: the model that judged assertions in natural language.
    """
    basis = {part.value for part in reward.reward_basis or ()}
    found = [
        *_database(reward.db_check, worlds, basis),
        *_assertions(reward.env_assertions or (), basis),
        *_actions(reward.action_checks or (), _calls(messages), basis),
        *_communicated(reward.communicate_checks or (), basis),
        *_judged(reward.nl_assertions or (), basis, judged),
    ]
    if not any(check.headline for check in found):
        note = (reward.info or {}).get("note") or "nothing that was asked for could be missed"
        finding = f"Upstream rewards {reward.reward:g}: {note}."
        found.insert(0, Check("reward", reward.reward == 1.0, finding))
    return tuple(found)


def _check(name: str, passed: bool, finding: str, kind: str, basis: set[str]) -> Check:
    headline = kind in basis
    return Check(
        name=name,
        passed=passed,
        finding=finding[:LONGEST_FINDING],
        weight=1.0 if headline else 0.0,
        headline=headline,
        error_type=None if passed else f"tau2:{kind}",
    )


def _database(check: Any, worlds: Sequence[World], basis: set[str]) -> Iterator[Check]:
    if check is None:
        return
    if check.db_match:
        finding = "The world ended as the gold actions end it."
        if len(worlds) < 2:
            finding = "The task has no gold actions, so no world was compared."
    else:
        finding = f"The world ended otherwise than gold: {_told(worlds)}."
    yield _check("DB", check.db_match, finding, "DB", basis)


def _told(worlds: Sequence[World]) -> str:
    lines: list[str] = []
    for side in SIDES:
        ours, gold = (world.changes.get(side) for world in worlds[:2])
        if ours is not None and gold is not None:
            whose = "the user's " if side == "user" else ""
            lines += [whose + line for line in differences(ours, gold)]
    more = f"; and {len(lines) - FEW} more" if len(lines) > FEW else ""
    return "; ".join(lines[:FEW]) + more


def _assertions(checks: Iterable[Any], basis: set[str]) -> Iterator[Check]:
    for number, check in enumerate(checks, 1):
        asked = check.env_assertion
        holds = f"{asked.func_name}({_arguments(asked.arguments)}) is {asked.assert_value}"
        finding = f"{holds}, as it has to be." if check.met else f"It does not hold that {holds}."
        if asked.message and not check.met:
            finding += f" {asked.message}"
        name = f"ENV_ASSERTION {number}"
        yield _check(name, check.met, finding, "ENV_ASSERTION", basis)


def _actions(checks: Iterable[Any], calls: Sequence[Any], basis: set[str]) -> Iterator[Check]:
    for number, check in enumerate(checks, 1):
        gold = check.action
        wanted = f"{gold.name}({_arguments(gold.arguments)})"
        if check.action_match:
            finding = f"{wanted} was called."
        else:
            near = [call for call in calls if call.name == gold.name]
            made = "; ".join(_arguments(call.arguments) for call in near[:3])
            finding = f"The {SIDES[gold.requestor]} was to call {wanted}; " + (
                f"{gold.name} was called with other arguments: {made}."
                if near
                else f"{gold.name} was never called."
            )
        yield _check(f"ACTION {number}", check.action_match, finding, "ACTION", basis)


def _communicated(checks: Iterable[Any], basis: set[str]) -> Iterator[Check]:
    for number, check in enumerate(checks, 1):
        said = "said" if check.met else "never said"
        finding = f"The agent {said} {check.info!r}."
        yield _check(f"COMMUNICATE {number}", check.met, finding, "COMMUNICATE", basis)


def _judged(checks: Iterable[Any], basis: set[str], model: str | None) -> Iterator[Check]:
    for number, check in enumerate(checks, 1):
        finding = f"{model} judged {check.nl_assertion!r}: {check.justification}"
        yield _check(f"NL_ASSERTION {number}", check.met, finding, "NL_ASSERTION", basis)


def _calls(messages: Sequence[Any]) -> list[Any]:
    return [call for message in messages for call in getattr(message, "tool_calls", None) or ()]


def _arguments(arguments: dict[str, Any]) -> str:
    text = ", ".join(
        f"{name}={json.dumps(value, default=str)}" for name, value in arguments.items()
    )
    return text if len(text) <= LONGEST_CALL else text[: LONGEST_CALL - 1] + "…"
