"""What was published of imported attempts beside what our grader makes of the same evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tasks.imports.grades import GRADER
from tasks.imports.writing import imported_sweeps
from warehouse.evidence import Evidence


@dataclass(frozen=True)
class Agreement:
    """How published verdicts and ours compare, over one imported sweep.

    Attributes:
        file: the file's name.
        agree: attempts where both give the same reward, by what their task is known by.
        disagree: a line each of those that do not.
        unknown: mapped attempts where one of the two is missing, a line each.
        unmapped: attempts without a task.
    """

    file: str
    agree: Counter[str]
    disagree: tuple[str, ...]
    unknown: tuple[str, ...]
    unmapped: int

    def lines(self) -> list[str]:
        """What is said of it."""
        agree = self.agree.total()
        compared = agree + len(self.disagree)
        text = f"{self.file}: {agree} of {compared} mapped agree with the published reward"
        if len(self.agree) > 1:
            parts = [f"{count} mapped by {by}" for by, count in self.agree.most_common()]
            text += f" ({', '.join(parts)})"
        if self.unmapped:
            text += f"; {self.unmapped} left out: no task"
        if self.unknown:
            text += f"; {len(self.unknown)} could not be compared"
        return [text, *(f"  {line}" for line in (*self.disagree, *_grouped(self.unknown)))]


def _grouped(lines: Iterable[str]) -> list[str]:
    """Lines `who: why`, those with one reason as one."""
    by_reason: dict[str, list[str]] = {}
    for line in lines:
        who, _, why = line.partition(": ")
        by_reason.setdefault(why, []).append(who)
    return [
        f"{who[0]}{f' and {len(who) - 1} more' if len(who) > 1 else ''}: {why}"
        for why, who in by_reason.items()
    ]


def agreements(evidence: Evidence, sweeps: Iterable[str]) -> list[Agreement]:
    """Of the imports among those sweeps: the published grades beside the newest of ours."""
    chosen = set(sweeps)
    return [
        _agreement(evidence, manifest)
        for sweep_id, manifest in imported_sweeps(evidence).items()
        if sweep_id in chosen
    ]


def _agreement(evidence: Evidence, manifest: dict[str, Any]) -> Agreement:
    agree: Counter[str] = Counter()
    unmapped = 0
    disagree, unknown = [], []
    told = manifest["imported"]["simulations"]
    for attempt, one in zip(manifest["attempts"], told, strict=True):
        if one["task_id"] is None:
            unmapped += 1
            continue
        label = f"simulation {one['simulation']}, task {one['task_id']} ({attempt['key'][:12]})"
        grades = evidence.grades(attempt["key"])
        published = [grade for grade in grades if grade["grader"] == GRADER]
        ours = [grade for grade in grades if grade["grader"] != GRADER]
        if ours:  # a grader that could not be asked takes no verdict of its version back
            version = ours[-1]["grader_version"]
            ours = [grade for grade in ours if grade["grader_version"] == version]
            ours.sort(key=lambda grade: (grade["score"] is not None, grade["graded_at"]))
        if not published or published[-1]["score"] is None:
            unknown.append(f"{label}: no reward was published")
        elif not ours:
            unknown.append(f"{label}: not regraded")
        elif ours[-1]["score"] is None:
            error = ours[-1].get("error") or {}
            unknown.append(f"{label}: {error.get('type')}: {error.get('message')}")
        elif abs(ours[-1]["score"] - published[-1]["score"]) < 1e-6:
            agree[one["by"]] += 1
        else:
            words = f"published {published[-1]['score']:g}, regraded {ours[-1]['score']:g}"
            disagree.append(f"{label}: {words}: {_why(ours[-1])}")
    return Agreement(manifest["imported"]["file"], agree, tuple(disagree), tuple(unknown), unmapped)


def _why(grade: dict[str, Any]) -> str:
    failed = [
        check["name"] for check in grade["checks"] if check["headline"] and check["passed"] is False
    ]
    return f"did not hold: {', '.join(failed)}" if failed else "every check held"
