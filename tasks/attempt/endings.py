"""What an end means: from exit codes, signals and the host's account to an ending or an error class.

The order of the questions is the meaning: first whether the surroundings failed (then there is no
result, whatever the harness says), then why we stopped it, then what it says itself. Exit 0 alone proves
nothing: several CLIs exit 0 with their bridge unreachable (facts/harnesses.md).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Literal

from suites.schema import Blame, Ending, ExitMeaning, Harness, Task


@dataclass(frozen=True)
class Verdict:
    """How a run ended.

    Attributes:
        ending: as in the design's terms.
        detail: what happened, in words.
        error_class: a key of `policy.ERRORS` where the run is no result.
        blame: whom to blame, where the policy table cannot know.
    """

    ending: Ending
    detail: str
    error_class: str | None = None
    blame: Blame | None = None


def judge(
    harness: Harness,
    task: Task,
    report: dict[str, Any],
    summary: dict[str, Any],
    stopped_for: str | None,
    seconds: float | None = None,
) -> Verdict:
    """The ending of one run.

    Args:
        report: the launcher's (exit_code, signal, killed, …), of the last launch where there were
            several; empty where nothing was launched.
        summary: the host's account of the attempt.
        stopped_for: why we ended the harness ourselves (`timeout`, `budget`, `host_lost`), or None.
        seconds: the deadline.
    """
    own = natural(harness, report, stopped_for)
    talk = summary.get("conversation") or {}
    said = _said(report)
    lost = _surroundings(task, report, summary, stopped_for, said)
    if lost and lost[0] == "bridge_unlisted" and own.error_class in SAYS_WHY:
        lost = None
    if not lost and own.ending == "timeout" and seconds:
        lost = _slow_user(summary, seconds)
    if lost:
        error_class, detail, blame = lost
        return Verdict(own.ending, detail, error_class, blame)
    if not report and talk.get("ended") and stopped_for is None:
        if talk["ended"] in CUT_OFF:  # by the user alone: the agent had no part in it yet
            return Verdict("budget", f"{talk['detail']} ({said})", "user_failed")
        return Verdict("clean", f"{talk['detail']}; the harness was not needed")
    if own.ending in ("clean", "crashed", "refused"):
        if summary.get("budget"):
            # It was told that its budget is spent; whatever it made of that, even a complaint that its
            # endpoint is out of reach, is the end of its budget.
            return Verdict("budget", f"its budget of {summary['budget']} was spent ({said})")
        if talk.get("ended") in CUT_OFF:
            return Verdict("budget", f"{talk['detail']} ({said})", blame=talk.get("blame"))
    if own.ending == "clean" and talk.get("ended") == "agent_error":
        return Verdict("crashed", f"{talk['detail']} ({said})")
    return own


SAYS_WHY = ("harness_missing", "harness_config")
"""Its own end tells why it never listed its tools: it did not start, and no other try will."""

CUT_OFF = ("max_steps", "too_many_errors")
"""Ends of a conversation that are the end of what it may use."""


def reason_for(own: Verdict, stopped_for: str | None, *, spent: bool) -> str | None:
    """The benchmark's word for how a conversation ended that the harness's own end has ended.

    Args:
        own: what the harness's end means (`natural`).
        stopped_for: why we ended it ourselves, or None.
        spent: a model call was refused, since the budget is spent.
    """
    if stopped_for in ("stop", "host_lost"):
        return None
    if spent or own.ending == "budget":
        return "max_steps"
    if own.ending == "timeout":
        return "timeout"
    return "agent_stop" if own.ending == "clean" else "agent_error"


def _surroundings(
    task: Task,
    report: dict[str, Any],
    summary: dict[str, Any],
    stopped_for: str | None,
    said: str,
) -> tuple[str, str, Blame | None] | None:
    """The class, the words, and the blame where it is not the table's; None if all was well."""
    if stopped_for == "host_lost":
        return "host_lost", "the host of bridges and gateway died", None
    if summary.get("dropped"):
        return "evidence_lost", "the journal could not be written whole", None
    upstream = summary.get("upstream_error")
    if upstream:
        return upstream["class"], f"{upstream['detail']} ({said})", None
    if summary.get("environment_lost"):
        return "environment_failed", f"{summary['environment_lost']} ({said})", None
    lost = _lost_user(summary, said)
    if lost:
        return lost
    has_tools = any(getattr(e, "tools", True) for e in task.environments if e.audience == "agent")
    if report and has_tools and not summary.get("listed") and not summary.get("tool_calls"):
        return "bridge_unlisted", f"it never listed the tools of its bridge ({said})", None
    return None


def _lost_user(summary: dict[str, Any], said: str) -> tuple[str, str, Blame | None] | None:
    """A user that could not go on; its endpoint's failures are of the classes of any endpoint's."""
    upstream = (summary.get("user") or {}).get("upstream_error")
    if upstream:
        blame: Blame | None = "user" if upstream["class"] == "upstream_error" else None
        return upstream["class"], f"the user's model: {upstream['detail']} ({said})", blame
    talk = summary.get("conversation") or {}
    if talk.get("ended") == "user_error":
        return "user_failed", f"{talk['detail']} ({said})", None
    return None


def _slow_user(summary: dict[str, Any], seconds: float) -> tuple[str, str, Blame | None] | None:
    """A user that took most of the agent's time; what it waited for a rate limit was not counted."""
    waited = (summary.get("user") or {}).get("waited_seconds") or 0.0
    took = ((summary.get("conversation") or {}).get("user_seconds") or 0.0) - waited
    if took <= seconds / 2:
        return None
    detail = f"the deadline passed, and the user took {took:.3g} of {seconds:g} s"
    return "user_failed", detail, None


def natural(harness: Harness, report: dict[str, Any], stopped_for: str | None) -> Verdict:
    """What the end of a harness means by itself."""
    code, number, said = report.get("exit_code"), report.get("signal"), _said(report)
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


def _said(report: dict[str, Any]) -> str:
    """How it ended, in words."""
    if not report:
        return "it was not started"
    number = report.get("signal")
    return (
        f"it exited with {report.get('exit_code')}"
        if number is None
        else f"it ended by {_signal_name(number)}"
    )


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
