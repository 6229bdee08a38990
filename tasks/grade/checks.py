"""Checks for suites written by hand: each looks at one fact and says what it found.

Claim: a check that fails tells what was there instead, so that a person can say "that should have
passed" and be right. A task is solved when every check passes; its score is their weighted mean, so a
vandal loses what it broke and keeps the rest.

    grade:
      grader: checks
      spec:
        checks:
          - {kind: tool_called, tool: get_weather, arguments: {city: Oslo}}
          - {kind: tool_never_called, tool: delete_account, weight: 2}
          - {kind: stdout_contains, text: "12 degrees"}

What "called" means is a call that the bridge accepted; names are wire names or native ones. Arguments
match where every one given is there and equal; others may stand beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from suites.errors import InputError
from suites.schema import Frozen
from suites.wording import closest, explain, key_path
from tasks.grade.calls import Call, calls_of
from tasks.grade.jobs import Check, Job, Verdict
from tasks.grade.recorded import Recorded

REVISION = "1"
SHOWN = 300
"""Characters of what was found that a finding quotes."""


class _Spec(Frozen):
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    description: str | None = None
    """Why the check is there; shown instead of its own wording."""


class StdoutContains(_Spec):
    """What the harness printed holds this text."""

    kind: Literal["stdout_contains"]
    text: str = Field(min_length=1)
    ignore_case: bool = False


class StdoutMatches(_Spec):
    """What the harness printed matches this regular expression somewhere (`^` and `$` at any line)."""

    kind: Literal["stdout_matches"]
    pattern: str = Field(min_length=1)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from error
        return value


class ToolCalled(_Spec):
    """A tool was called, at least so often, with at least these arguments."""

    kind: Literal["tool_called"]
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    at_least: int = Field(default=1, ge=1)


class ToolNeverCalled(_Spec):
    """A tool was not called (with these arguments)."""

    kind: Literal["tool_never_called"]
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolCallsAtMost(_Spec):
    """There were no more calls than so many, of one tool or of all."""

    kind: Literal["tool_calls_at_most"]
    at_most: int = Field(ge=0)
    tool: str | None = None


class FinalState(_Spec):
    """What the calls of a writing tool came to: for each key the last value, and no other keys.

    The state is folded from the calls that were answered without an error, in the order in which they
    were made; how often and by whom an entry was written does not matter.
    """

    kind: Literal["final_state"]
    tool: str
    key: str
    """The argument that names the entry."""
    value: str
    """The argument that it is set to."""
    equals: dict[str, Any]


CheckSpec = (
    StdoutContains | StdoutMatches | ToolCalled | ToolNeverCalled | ToolCallsAtMost | FinalState
)


class ChecksSpec(Frozen):
    """`grade.spec` of the grader `checks`."""

    checks: tuple[Annotated[CheckSpec, Field(discriminator="kind")], ...] = Field(min_length=1)


def version(dataset: str) -> str:
    """`grader_version`; the checks depend on no package."""
    return REVISION


def validate_spec(spec: dict[str, Any], tools: Mapping[str, str] | None = None) -> None:
    """Refuse checks that cannot be made, or that name a tool the task does not have.

    Args:
        spec: `grade.spec`.
        tools: wire name to native name of the task's tools; None: any tool will do.

    Raises:
        InputError: `where` is the key inside `grade.spec`.
    """
    try:
        checks = ChecksSpec.model_validate(spec).checks
    except ValidationError as error:
        path, what, mend = explain(error, ChecksSpec)
        # The chosen kind stands in a tagged union's path, and in no file.
        where = key_path([key for n, key in enumerate(path) if n != 2])
        raise InputError(what, where=where, mend=mend) from error
    if tools is None:
        return
    known = {*tools, *tools.values()}
    for number, check in enumerate(checks):
        tool = getattr(check, "tool", None)
        if tool is not None and tool not in known:
            raise InputError(
                f"the task has no tool {tool!r}",
                where=f"checks[{number}].tool",
                mend=closest(tool, known) or f"it has {', '.join(sorted(known)) or 'none'}",
            )


def grade(job: Job, recorded: Recorded) -> Verdict:
    """Make every check; solved if all pass."""
    checks = ChecksSpec.model_validate(job.spec).checks
    seen = _Seen(calls=calls_of(recorded.bridge, job.tools), tools=job.tools, recorded=recorded)
    findings = tuple(_made(number, check, seen) for number, check in enumerate(checks, 1))
    weight = sum(check.weight for check in findings)
    score = sum(check.weight for check in findings if check.passed) / weight
    return Verdict(all(check.passed for check in findings), score, findings)


@dataclass(frozen=True)
class _Seen:
    calls: Sequence[Call]
    tools: dict[str, str]
    recorded: Recorded

    def matching(self, tool: str | None, arguments: dict[str, Any]) -> list[Call]:
        """Accepted calls of that tool (None: of any) which have those arguments."""
        native = self.tools.get(tool, tool) if tool is not None else None
        return [
            call
            for call in self.calls
            if call.accepted
            and native in (None, call.name)
            and _holds(json.loads(call.arguments), arguments)
        ]

    def told(self, tool: str | None = None) -> str:
        """The calls that were made, for a finding."""
        native = self.tools.get(tool, tool) if tool is not None else None
        made = [
            f"{call.name}({call.arguments})" + ("" if call.accepted else f" [{call.status}]")
            for call in self.calls
            if native in (None, call.name)
        ]
        return _short("; ".join(made)) if made else "no call"


def _holds(found: Any, wanted: dict[str, Any]) -> bool:
    """True if every wanted argument is there and equal; true is not 1, and 1 is 1.0."""
    if not isinstance(found, dict):
        return False
    return all(key in found and _equal(found[key], value) for key, value in wanted.items())


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _made(number: int, check: CheckSpec, seen: _Seen) -> Check:
    passed, finding = _look(check, seen)
    if check.description:
        finding = f"{check.description}: {finding}"
    return Check(
        name=f"{number}:{check.kind}",
        passed=passed,
        finding=finding,
        weight=check.weight,
        error_type=None if passed else f"checks:{check.kind}",
    )


def _look(check: CheckSpec, seen: _Seen) -> tuple[bool, str]:
    """Whether it holds, and what was found."""
    if isinstance(check, StdoutContains | StdoutMatches):
        return _look_at_stdout(check, seen.recorded.stdout())
    if isinstance(check, ToolCallsAtMost):
        found = len(seen.matching(check.tool, {}))
        whose = f" of {check.tool}" if check.tool else ""
        return found <= check.at_most, (
            f"calls made{whose}: {found}, allowed: {check.at_most}; recorded: {seen.told(check.tool)}"
        )
    if isinstance(check, FinalState):
        return _look_at_state(check, seen)
    wanted = f"{check.tool}({_short(json.dumps(check.arguments)) if check.arguments else '…'})"
    found = len(seen.matching(check.tool, check.arguments))
    told = seen.told(check.tool)
    if isinstance(check, ToolNeverCalled):
        return found == 0, f"{wanted} must not be called; recorded: {told}"
    return (
        found >= check.at_least,
        f"{wanted} was called {found} times, needs {check.at_least}; " + (f"recorded: {told}"),
    )


def _look_at_state(check: FinalState, seen: _Seen) -> tuple[bool, str]:
    state: dict[str, Any] = {}
    for call in seen.matching(check.tool, {}):
        given = json.loads(call.arguments)
        if call.status == "ok" and check.key in given:
            state[str(given[check.key])] = given.get(check.value)
    missing = [key for key in check.equals if key not in state]
    wrong = [
        f"{key} is {json.dumps(state[key])}, not {json.dumps(value)}"
        for key, value in check.equals.items()
        if key in state and not _equal(state[key], value)
    ]
    beside = [key for key in state if key not in check.equals]
    right = len(check.equals) - len(missing) - len(wrong)
    found = f"{right} of {len(check.equals)} entries are right"
    for what, which in (("missing", missing), ("wrong", wrong), ("not asked for", beside)):
        if which:
            found += f"; {what}: {_short(', '.join(which))}"
    return not (missing or wrong or beside), found


def _look_at_stdout(check: StdoutContains | StdoutMatches, text: str) -> tuple[bool, str]:
    if isinstance(check, StdoutMatches):
        match = re.search(check.pattern, text, re.MULTILINE)
        if match:
            return True, f"{check.pattern!r} matches {_short(match[0])!r}"
        return (
            False,
            f"{check.pattern!r} matches nothing; the output ends {_short(text, end=True)!r}",
        )
    passed = check.text.casefold() in text.casefold() if check.ignore_case else check.text in text
    if passed:
        return True, f"the output holds {check.text!r}"
    return False, f"the output does not hold {check.text!r}; it ends {_short(text, end=True)!r}"


def _short(text: str, *, end: bool = False) -> str:
    text = text.strip()
    if len(text) <= SHOWN:
        return text
    return "…" + text[-SHOWN:] if end else text[:SHOWN] + "…"
