"""What each line of a harness check says: read from the journals and the record that an attempt left."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from suites.schema import Harness
from warehouse.evidence import Bundle, CorruptBundle

State = Literal["ok", "warn", "fail", "none"]

POLICY_CHARACTERS = 24_000
"""Length of the policy: the longest of τ²-bench is 23 kB."""
TOOL, SERVER = "look_up_word", "bridge"
USAGE = ("input", "cache_read", "cache_write", "output", "reasoning", "cost")


@dataclass(frozen=True)
class Line:
    """One thing that was looked at.

    Attributes:
        name: what.
        state: `none` where there is nothing to look at; `warn` where it works, and yet.
        says: what was found.
    """

    name: str
    state: State
    says: str


@dataclass(frozen=True)
class Words:
    """Random words by which it is seen what arrived where."""

    result: str
    policy: str
    answer: str

    @classmethod
    def fresh(cls) -> Words:
        """New ones."""
        return cls(*(secrets.token_hex(6) for _ in range(3)))

    @property
    def mark(self) -> str:
        """The end of the policy, with what templates, shells and JSON treat in a way of their own."""
        return f'"{self.policy}" {{{{ x }}}} $HOME `id` \\n ü✓ {self.policy[::-1]}'

    def suite(self) -> dict[str, Any]:
        """The suite with the one task."""
        filler = "Nothing in this paragraph matters; it is here for its length. "
        policy = filler * (POLICY_CHARACTERS // len(filler)) + f"\nThe mark is {self.mark}"
        schema = {"type": "object", "properties": {"topic": {"type": "string"}}}
        tool = {
            "name": TOOL,
            "description": "Look up the word for a topic.",
            "input_schema": {**schema, "required": ["topic"]},
            "result": f"The word is {self.result}.",
        }
        oracle = {
            "calls": [{"tool": TOOL, "arguments": {"topic": "dyno"}}],
            "answer": f"I have looked it up: {self.answer}.",
        }
        task = {
            "id": "word",
            "policy": policy,
            "messages": [{"role": "user", "content": "Look up the word for the topic `dyno`."}],
            "environments": [{"kind": "functions", "name": SERVER, "tools": [tool]}],
            "grade": {
                "grader": "checks",
                "spec": {"checks": [{"kind": "tool_called", "tool": TOOL}]},
            },
            "oracle": oracle,
        }
        about = "One tool, to see whether a harness works."
        head = {"name": "harness-check", "version": "1", "benchmark": "check", "description": about}
        return {**head, "tasks": [task]}


# ---------------------------------------------------------------- what is seen


class Seen:
    """What one attempt left, as the lines ask for it."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.record = bundle.record

    @property
    def error(self) -> str | None:
        """The class of its infrastructure error; None where it has a result."""
        return self.record["error"]["class"] if self.record["error"] else None

    @property
    def startup(self) -> float | None:
        """Seconds to the first contact with bridge or model; None where there was none."""
        found: float | None = self.record["timings"]["startup_s"]
        return found

    @property
    def to_first_call(self) -> float:
        """Seconds to its first model call, or else to its first contact."""
        asked = [row["at"] for row in self._rows("model.jsonl") if row["event"] == "request"]
        begun = float(self.record["timings"]["started_at"])
        return float(asked[0]) - begun if asked else self.startup or 0.0

    @property
    def wall(self) -> float:
        """Seconds it took."""
        return float(self.record["timings"]["wall_s"])

    @property
    def host(self) -> dict[str, Any]:
        """The host's account."""
        return self.record["host"] or {}

    @cached_property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of its model calls."""
        rows = self._rows("model.jsonl")
        return [_body(row["body"]) for row in rows if row["event"] == "request"]

    @cached_property
    def replies(self) -> list[dict[str, Any]]:
        """The rows of what its model calls were answered."""
        return [row for row in self._rows("model.jsonl") if row["event"] == "response"]

    @cached_property
    def bridge(self) -> list[dict[str, Any]]:
        """The rows of the bridge's journal; those of a state store beside it left out."""
        rows = self._rows("bridge.jsonl")
        return [row for row in rows if row.get("server", SERVER) == SERVER]

    @property
    def how(self) -> str:
        """How it ended, with its last words."""
        text = f"{self.record['ending']}: {self.record['detail']}"
        words = self.bundle.text("stderr").strip().splitlines()
        if words and "its last words" not in text:
            text += f"; its last words: {words[-1][:200]}"
        return text

    def _rows(self, name: str) -> list[dict[str, Any]]:
        try:
            return self.bundle.rows(name)
        except CorruptBundle:
            return []


def _body(body: Any) -> dict[str, Any]:
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            body = None
    return body if isinstance(body, dict) else {}


def offered_tools(body: dict[str, Any]) -> list[str]:
    """The names of the tools that a request offers, on any wire; a namespace's with it before a dot."""
    found = []
    for tool in body.get("tools") or ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("tools")
        if isinstance(inner, list):
            found += [f"{tool.get('name')}.{t.get('name')}" for t in inner if isinstance(t, dict)]
            continue
        function = tool.get("function")
        told = function if isinstance(function, dict) else tool
        found.append(str(told.get("name") or tool.get("type")))
    return found


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def _holds(body: dict[str, Any], text: str) -> bool:
    return any(text in found for found in texts(body))


# ---------------------------------------------------------------- the lines


def worked(seen: Seen, harness: Harness, words: Words) -> Iterator[Line]:
    """Of the attempt in which all should work."""
    if seen.startup is None:
        yield Line("starts", "fail", f"it reached neither the bridge nor the model; {seen.how}")
        return
    yield Line("starts", "ok", f"first contact after {seen.startup:.1f} s")
    first = seen.requests[0] if seen.requests else None
    yield _told(first, words)
    yield _sees(seen, harness)
    yield _other_tools(seen, harness)
    calls = [row for row in seen.bridge if row["event"] == "call"]
    made = {row["seq"] for row in calls}
    results = [row["status"] for row in seen.bridge if row.get("call") in made]
    named = sorted({row["tool"] for row in calls})
    once = len(calls) == 1 and results == ["ok"] and named == [TOOL]
    yield Line(
        "calls it",
        "ok" if once else "fail" if not calls else "warn",
        f"journaled as {TOOL}"
        if once
        else f"{len(calls)} calls of {', '.join(named) or 'nothing'}: {', '.join(map(str, results))}",
    )
    arrived = [n for n, body in enumerate(seen.requests, 1) if _holds(body, words.result)]
    yield Line(
        "result reaches model",
        "ok" if arrived else "fail",
        f"in model call {arrived[0]}"
        if arrived
        else f"in none of {len(seen.requests)} model calls",
    )
    clean = seen.record["ending"] == "clean" and not seen.error
    how = seen.record["detail"] if clean else seen.how
    yield Line("ends clean", "ok" if clean else "fail", f"{how}, after {seen.wall:.1f} s")
    yield _answers(seen, harness, words)
    left = seen.record["left_processes"]
    yield Line(
        "leaves no process",
        "warn" if left else "ok",
        f"{left} were left and killed" if left else "none was left when it ended",
    )
    calls_made = len(seen.requests)
    yield Line(
        "model calls",
        "ok" if calls_made == 2 else "warn",
        "2, as the task needs" if calls_made == 2 else f"{calls_made}, and the task needs 2",
    )
    yield _reports(seen, harness)


def _told(first: dict[str, Any] | None, words: Words) -> Line:
    name = "told the task whole"
    if first is None:
        return Line(name, "fail", "it never called the model")
    if _holds(first, words.mark):
        return Line(
            name, "ok", f"a policy of {POLICY_CHARACTERS // 1000} kB, to its last character"
        )
    if _holds(first, words.policy):
        return Line(name, "fail", f"its text arrived changed: {words.mark!r} is not in it")
    return Line(name, "fail", "the end of the policy is not in the first model call")


def _ours(tools: Iterable[str]) -> list[str]:
    return [name for name in tools if re.search(rf"(^|[^A-Za-z0-9]){TOOL}(_[0-9a-z]+)?$", name)]


def _sees(seen: Seen, harness: Harness) -> Line:
    name = "sees the tool"
    tools = [tool for body in seen.requests for tool in offered_tools(body)]
    ours = list(dict.fromkeys(_ours(tools)))
    if ours:
        return Line(name, "ok", f"as {', '.join(ours)}")
    if "shell" in harness.speaks and "mcp" not in harness.speaks:
        return Line(name, "ok" if seen.bridge else "fail", "by the command `tool`")
    if not seen.host.get("listed"):
        return Line(name, "fail", "it never listed the tools of its bridge")
    return Line(name, "fail", "it listed the tools, and did not offer them to the model")


def _other_tools(seen: Seen, harness: Harness) -> Line:
    """What it offers the model that the bridge does not know of, and whether its file says so."""
    name = "tools of its own"
    tools = {tool for body in seen.requests for tool in offered_tools(body)}
    own, said = tools - set(_ours(tools)), set(harness.native_tools)
    if own - said:
        unsaid = ", ".join(sorted(own - said))
        return Line(name, "warn", f"{unsaid}: its file does not say so (`native_tools`)")
    if said - own:
        unseen = ", ".join(sorted(said - own))
        return Line(name, "warn", f"{unseen}: said in `native_tools`, and not offered")
    return Line(name, "ok", f"{', '.join(sorted(own))}, as its file says" if own else "none")


def _answers(seen: Seen, harness: Harness, words: Words) -> Line:
    has_answer = "answer" in seen.record["files"]
    said = seen.bundle.text("answer" if has_answer else "stdout")
    if words.answer not in "".join(said.split()):
        where = "its answer" if has_answer else "its output"
        return Line("gives the answer", "fail", f"what the model said last is not in {where}")
    whole = has_answer or len(said) < 200
    return Line("gives the answer", "ok", "by itself" if whole else "in what it prints")


def _reports(seen: Seen, harness: Harness) -> Line:
    name = "reports its tokens"
    if not harness.telemetry:
        return Line(name, "none", "its file names no reader (`telemetry`)")
    told, metered = seen.record["reported"] or {}, seen.host.get("usage")
    if not told:
        return Line(name, "fail", f"{harness.telemetry.get('usage')} finds nothing in its output")
    if metered is None:
        return Line(name, "fail", "the gateway could not measure what it used")
    both = {kind: (told[kind], metered[kind]) for kind in USAGE if kind in told and kind in metered}
    wrong = [f"{kind} {says}, metered {is_}" for kind, (says, is_) in both.items() if says != is_]
    if wrong:
        return Line(name, "warn", "; ".join(wrong))
    figures = ", ".join(f"{kind} {says}" for kind, (says, _) in both.items() if says)
    return Line(name, "ok", f"as metered, to the token: {figures}")


def deadline(seen: Seen, seconds: float) -> Line:
    """Of the attempt whose model never answers."""
    name = "respects a deadline"
    late = seen.wall - seconds
    if seen.record["ending"] != "timeout" or seen.error:
        before = f"the model never answered, and it ended after {seen.wall:.1f} s"
        state: State = "warn" if not seen.error else "fail"
        return Line(name, state, f"{before} of {seconds:.1f}: {seen.how}")
    if seen.record["signal"] == 9:
        return Line(name, "warn", f"ignored SIGTERM and had to be killed, {late:.1f} s after it")
    return Line(name, "ok", f"ended on SIGTERM, {late:.1f} s after it")


def budget(seen: Seen) -> Line:
    """Of the attempt whose second model call is refused."""
    name = "spent budget"
    refused = sum(row.get("budget") is not None for row in seen.replies)
    if refused == 0 and not seen.error:
        return Line(name, "none", f"it never made the second call, to be refused; {seen.how}")
    if seen.record["ending"] != "budget" or seen.error:
        return Line(name, "fail", f"the second model call was refused; {seen.how}")
    if seen.record["signal"] is not None:
        return Line(name, "warn", f"asked {refused} times more and had to be stopped")
    if refused > 1:
        return Line(name, "warn", f"asked {refused} times more before it gave up: {seen.how}")
    return Line(name, "ok", f"told once, and it gave up: {seen.record['detail']}")


def failed(seen: Seen, name: str, wanted: str) -> Line:
    """Of an attempt whose endpoint fails: whether that is what it counts as.

    Args:
        wanted: the class of its infrastructure error.
    """
    tries = len(seen.replies)
    stopped = " until it was stopped" if seen.record["ending"] == "timeout" else ""
    made = f"{tries} model call{'s' if tries != 1 else ''} in {seen.wall:.1f} s{stopped}"
    if seen.error == wanted:
        return Line(name, "ok", f"{wanted}: {made}")
    found = seen.error or f"a result, {seen.record['ending']}"
    return Line(name, "fail", f"{found}, and not {wanted}: {made}; {seen.how}")
