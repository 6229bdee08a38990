"""The verdict that a results file publishes, kept as a grade of its own beside ours.

Grader `tau2-published`, in the version of upstream's commit. It is what the scorecard shows of an imported
attempt; regrading adds a grade by `tau2` and never replaces this one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from suites.canonical import digest
from tasks.imports.results import NOT_EVALUABLE, Results, Simulation, seconds_of

GRADER = "tau2-published"
FULL = 1 - 1e-6
"""From which reward on upstream counts a simulation as a success."""

Check = dict[str, Any]


def published_spec(results: Results) -> str:
    """What a published grade answers to: the file's own judging, nothing that we asked."""
    return digest({"published": results.sha256})


def published_grade(results: Results, simulation: Simulation, bundle_hash: str) -> dict[str, Any]:
    """The grade file's content, as docs/evidence.md has it."""
    judged = simulation.judged
    reward = judged.get("reward")
    error = None
    if simulation.reason in NOT_EVALUABLE:
        reward = None
        error = {
            "type": "not_evaluable",
            "message": f"it ended by {simulation.reason}, which upstream leaves out of every rate",
        }
    elif reward is None:
        error = {"type": "not_judged", "message": "the file holds no reward for it"}
    # A verdict is as old as its simulation, and so the same whenever the file is imported.
    moment = datetime.fromtimestamp(seconds_of(simulation.raw.get("end_time")) or 0, UTC)
    return {
        "grader": GRADER,
        "grader_version": results.commit,
        "spec_hash": published_spec(results),
        "bundle_hash": bundle_hash,
        "graded_at": moment.isoformat(timespec="seconds"),
        "solved": None if reward is None else reward >= FULL,
        "score": None if reward is None else float(reward),
        "error": error,
        "checks": [] if reward is None else _checks(judged, simulation.reason),
    }


def _checks(judged: dict[str, Any], reason: str) -> list[Check]:
    breakdown = judged.get("reward_breakdown") or {}
    found = [
        _check(
            str(name),
            value is not None and value >= FULL,
            f"{name} gave {value}",
            headline=True,
        )
        for name, value in breakdown.items()
    ]
    if not found:  # upstream judges by the ending alone where it was no stop
        note = (judged.get("info") or {}).get("note") or f"it ended by {reason}"
        found.append(_check("reward", judged["reward"] >= FULL, str(note), headline=True))
    for one in judged.get("action_checks") or ():
        action = one.get("action") or {}
        asked = json.dumps(action.get("arguments"), ensure_ascii=False)
        words = f"{action.get('name')}({asked})"
        found.append(_check(f"action {action.get('action_id')}", one.get("action_match"), words))
    for kind, key, part in (
        ("assertion", "nl_assertions", "nl_assertion"),
        ("communicate", "communicate_checks", "info"),
    ):
        for number, one in enumerate(judged.get(key) or ()):
            words = f"{one.get(part)}: {one.get('justification')}"
            found.append(_check(f"{kind} {number}", one.get("met"), words))
    for number, one in enumerate(judged.get("env_assertions") or ()):
        words = json.dumps(one.get("env_assertion"), ensure_ascii=False)
        found.append(_check(f"env_assertion {number}", one.get("met"), words))
    return found


def _check(name: str, passed: Any, finding: str, headline: bool = False) -> Check:
    return {
        "name": name,
        "passed": passed if isinstance(passed, bool) else None,
        "weight": 1.0,
        "scope": "attempt",
        "headline": headline,
        "error_type": "published" if passed is False else None,
        "finding": finding,
    }
