"""What an end means: from exit codes, signals and the host's account to an ending or an error class.

The order of the questions is the meaning: first whether the surroundings failed (then there is no
result, whatever the harness says), then why we stopped it, then what it says itself. Exit 0 alone proves
nothing: several CLIs exit 0 with their bridge unreachable (facts/harnesses.md).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Literal

from suites.schema import Ending, ExitMeaning, Harness, Task


@dataclass(frozen=True)
class Verdict:
    """How a run ended.

    Attributes:
        ending: as in the design's terms.
        detail: what happened, in words.
        error_class: a key of `policy.ERRORS` where the run is no result.
    """

    ending: Ending
    detail: str
    error_class: str | None = None


def judge(
    harness: Harness,
    task: Task,
    report: dict[str, Any],
    summary: dict[str, Any],
    stopped_for: str | None,
) -> Verdict:
    """The ending of one run.

    Args:
        report: the launcher's (exit_code, signal, killed, …).
        summary: the host's account of the attempt.
        stopped_for: why we ended the harness ourselves (`timeout`, `budget`, `host_lost`), or None.
    """
    code, number = report.get("exit_code"), report.get("signal")
    said = f"it exited with {code}" if number is None else f"it ended by {_signal_name(number)}"
    natural = _natural(harness, code, number, stopped_for, said)
    lost = _surroundings(task, summary, stopped_for, said)
    if lost:
        return Verdict(natural.ending, lost[1], lost[0])
    if summary.get("budget") and natural.ending in ("clean", "crashed", "refused"):
        # It was told that its budget is spent; whatever it made of that, even a complaint that its
        # endpoint is out of reach, is the end of its budget.
        return Verdict("budget", f"its budget of {summary['budget']} was spent ({said})")
    return natural


def _surroundings(
    task: Task, summary: dict[str, Any], stopped_for: str | None, said: str
) -> tuple[str, str] | None:
    if stopped_for == "host_lost":
        return "host_lost", "the host of bridges and gateway died"
    if summary.get("dropped"):
        return "evidence_lost", "the journal could not be written whole"
    upstream = summary.get("upstream_error")
    if upstream:
        return upstream["class"], f"{upstream['detail']} ({said})"
    has_tools = any(getattr(e, "tools", True) for e in task.environments if e.audience == "agent")
    if has_tools and not summary.get("listed") and not summary.get("tool_calls"):
        return "bridge_unlisted", f"it never listed the tools of its bridge ({said})"
    return None


def _natural(
    harness: Harness, code: int | None, number: int | None, stopped_for: str | None, said: str
) -> Verdict:
    if stopped_for == "timeout":
        return Verdict("timeout", "the deadline passed and it was stopped")
    if stopped_for == "budget":
        return Verdict("budget", f"the budget was spent ({said})")
    if number == signal.SIGKILL or (number == signal.SIGTERM and stopped_for is None):
        return Verdict("killed", f"{said}, sent from outside", "harness_killed")
    if number is not None or code is None:
        return Verdict("crashed", said)
    meaning = harness.exit_codes.get(code) or _default_meaning(code)
    if meaning == "infra_error":
        return Verdict("crashed", f"{said}: a server it needs was out of reach", "harness_infra")
    if meaning == "harness_config_error":
        return Verdict("crashed", f"{said}: it refused its configuration", "harness_config")
    if meaning == "missing":
        return Verdict(
            "crashed", f"{said}: its program was not found or not runnable", "harness_missing"
        )
    if meaning == "killed":
        return Verdict("killed", f"{said}: killed from outside", "harness_killed")
    return Verdict(meaning, said)


def _default_meaning(code: int) -> ExitMeaning | Literal["missing", "killed"]:
    if code == 0:
        return "clean"
    if code in (126, 127):
        return "missing"
    return "killed" if code in (137, 143) else "crashed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
