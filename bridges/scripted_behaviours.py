"""What a scripted model does next, apart from any wire.

Scripted models are the known quantities that dyno is checked with: the oracle must score 1, the
null floor is what doing nothing earns, the vandal must lose, noisy lies between. They keep no state
inside an attempt: the next step is read from the request (how many tool calls the messages already
hold), so a request that is repeated gets the same answer, and a harness that makes one call at a
time is served as well as one that makes all at once.

Where the script says that there is a user to talk to (bridges/scripted_talk.py), what they say is
part of that.

All chance comes from the attempt's seed. Faults of noisy's endpoint (429, 500) also depend on the
try and on the number of the request, for a repeated request must be able to succeed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

REFUSAL = "I cannot help with that."
"""All that the null model ever says."""


@dataclass(frozen=True)
class ToolCall:
    """A call as it goes over the wire."""

    tool: str
    arguments: str
    """JSON, or whatever a playbook wants sent in its place."""


@dataclass(frozen=True)
class Step:
    """One response of a scripted model, or one fault of its endpoint."""

    calls: tuple[ToolCall, ...] = ()
    text: str | None = None
    status: int = 200
    """Other than 200: an error, in the wire's own form, with `text` for a message."""
    body: Any = None
    """Sent as it stands instead of a response: text, or JSON."""
    headers: dict[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    hang: bool = False
    """Never answer."""
    cut_stream_after: int | None = None
    """Drop the connection after so many events of a stream, or within a reply in one piece."""
    chunk_delay_seconds: float = 0.0
    """Pause before each event of a stream."""


@dataclass(frozen=True)
class Asked:
    """What a behaviour needs to know of a request, on any wire."""

    made: int
    """Tool calls that the messages already hold."""
    assistants: int
    """Assistant messages so far."""
    last_user: str
    """Text of the last user message."""
    tools: tuple[str, ...]
    """Names of the tools offered, as this harness names them."""
    parallel: bool = True
    """Whether several calls in one response are allowed."""
    called: tuple[str, ...] = ()
    """Names of the tool calls that the messages already hold, as this harness names them."""
    texts: int = 0
    """Assistant messages so far that say something and call nothing."""
    written_calls: int = 0
    written_texts: int = 0
    """The same two where a conversation is written out in a prompt (tasks/attempt/converse.py)."""


@dataclass(frozen=True)
class Script:
    """One attempt's script, as the gateway registers it."""

    behaviour: str
    seed: int
    try_number: int
    settings: Mapping[str, Any]
    gold: tuple[Mapping[str, Any], ...]
    """The oracle's calls: `{tool, arguments}`, in a conversation also `requestor`."""
    vandal: Mapping[str, Any] | None
    answer: str
    tools: tuple[Mapping[str, Any], ...]
    """The attempt's tools: `{name, input_schema, …}`."""
    conversation: Mapping[str, Any] | None = None
    """Where there is a user: `{way, given: {made, said}}`, with how many tool calls and how many texts
    of the assistant the prompt already holds from before the conversation."""

    @classmethod
    def of(cls, script: Mapping[str, Any]) -> Script:
        """Read what the gateway sent.

        Raises:
            ValueError: an unknown behaviour, or settings it does not have.
        """
        behaviour = script["behaviour"]
        known = SETTINGS.get(behaviour)
        if known is None:
            raise ValueError(f"no scripted model {behaviour!r}; there are {', '.join(SETTINGS)}")
        settings = script.get("settings") or {}
        wrong = sorted(set(settings) - known)
        if wrong:
            raise ValueError(
                f"scripted:{behaviour} has no setting {wrong[0]!r}; it has "
                + ", ".join(sorted(known))
            )
        oracle = script.get("oracle") or {}
        return cls(
            behaviour=behaviour,
            seed=int(script.get("seed") or 0),
            try_number=int(script.get("try") or 1),
            settings=settings,
            gold=tuple(oracle.get("calls") or ()),
            vandal=oracle.get("vandal"),
            answer=oracle.get("answer") or "Done.",
            tools=tuple(script.get("tools") or ()),
            conversation=script.get("conversation"),
        )

    def random(self, purpose: str) -> Random:
        """Chance for one purpose, the same whenever it is asked for."""
        return Random(f"{self.seed}/{purpose}")


_EVERYONES = {"delay_seconds", "cache_read", "cache_write", "reasoning"}
"""`cache_read` and `cache_write` are shares of the input that usage tells as such, `reasoning` is tokens
that it tells on top of what was said."""

SETTINGS: dict[str, set[str]] = {
    "oracle": _EVERYONES,
    "null": _EVERYONES,
    "vandal": _EVERYONES,
    "noisy": _EVERYONES | {"error_rate", "rate_429", "rate_500"},
    "parts": _EVERYONES | {"part", "error_rate"},
    "playbook": _EVERYONES | {"playbook", "plays", "steps", "loop"},
}

ERROR_RATE = 0.3
"""Share of noisy's attempts that go wrong: pass@1 of about 0.7, so pass^3 of about 0.34."""
RATE_429 = 0.03
RATE_500 = 0.02
"""Share of noisy's requests; a harness that tries three times loses one call in 125,000."""


def planned_calls(script: Script) -> list[Mapping[str, Any]]:
    """All calls the model makes in this attempt, in order."""
    if script.behaviour == "null":
        return []
    calls = list(script.gold)
    if script.behaviour == "vandal":
        calls += _wrong_call(script)
    elif script.behaviour == "noisy":
        calls = _with_noise(script, calls)
    return calls


def next_step(script: Script, calls: Sequence[Mapping[str, Any]], asked: Asked) -> Step:
    """All behaviours but playbook: the planned calls not yet made, else the final text."""
    remaining = calls[asked.made :]
    if not remaining:
        return Step(text=REFUSAL if script.behaviour == "null" else script.answer)
    if not asked.parallel:
        remaining = remaining[:1]
    return Step(
        calls=tuple(
            ToolCall(offered(c["tool"], asked.tools), json.dumps(c.get("arguments") or {}))
            for c in remaining
        )
    )


def fault(script: Script, request: int) -> Step | None:
    """Noisy's 429 or 500 for the attempt's request of that number; None when it is answered."""
    if script.behaviour != "noisy":
        return None
    often_429 = script.settings.get("rate_429", RATE_429)
    often_500 = script.settings.get("rate_500", RATE_500)
    chance = script.random(f"fault/{script.try_number}/{request}").random()
    if chance < often_429:
        headers = {"retry-after-ms": "50", "retry-after": "1"}
        return Step(status=429, headers=headers, text="Rate limit reached (scripted).")
    if chance < often_429 + often_500:
        return Step(status=500, text="The server had an error (scripted).")
    return None


def is_agents(call: Mapping[str, Any]) -> bool:
    """Whether a gold call is the agent's own, and not one that it asks the user for."""
    return (call.get("requestor") or "agent") == "agent"


def offered(wire_name: str, names: Sequence[str]) -> str:
    """The name by which a harness offers a tool: itself, or it with a prefix (`mcp__bridge__x`)."""
    if wire_name in names:
        return wire_name
    endings = [name for name in names if name.endswith(wire_name)]
    parted = [n for n in endings if not n[: -len(wire_name)][-1:].isalnum()]
    return min(parted or endings, key=len, default=wire_name)


def plausible(schema: Mapping[str, Any]) -> Any:
    """A made-up value that fits a JSON Schema of the plain kind; required members only."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return plausible(schema[choice][0])
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties") or {}
        return {
            name: plausible(properties.get(name) or {}) for name in schema.get("required") or ()
        }
    if kind == "array":
        return [plausible(schema.get("items") or {})] * (schema.get("minItems") or 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True, "null": None}.get(
        str(kind), "x" * max(schema.get("minLength") or 1, 1)
    )


def altered(value: Any, chance: Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + chance.randint(1, 9)
    if isinstance(value, str):
        return f"{value} or so" if value else "something"
    if isinstance(value, list):
        return [*value[:-1], altered(value[-1], chance)] if value else ["something"]
    if isinstance(value, dict) and value:
        key = chance.choice(sorted(value))
        return {**value, key: altered(value[key], chance)}
    return "something"


def _wrong_call(script: Script) -> list[Mapping[str, Any]]:
    """One legal call too many: the suite's own, a gold call again, or any tool at all."""
    if script.vandal:
        return [script.vandal]
    own = [call for call in script.gold if is_agents(call)]
    if own:
        return [own[-1]]
    return [_made_up(tool) for tool in script.tools[:1]]


def _with_noise(script: Script, calls: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    chance = script.random("noise")
    if chance.random() >= script.settings.get("error_rate", ERROR_RATE):
        return calls
    kinds: list[Callable[[], list[Mapping[str, Any]]]] = []
    if calls:
        kinds.append(lambda: _dropped(calls, chance))
    if any(call.get("arguments") for call in calls):
        kinds.append(lambda: _changed(calls, chance))
    if script.tools:
        kinds.append(lambda: [*calls, _made_up(chance.choice(script.tools))])
    return chance.choice(kinds)() if kinds else calls


def _dropped(calls: list[Mapping[str, Any]], chance: Random) -> list[Mapping[str, Any]]:
    left_out = chance.randrange(len(calls))
    return [call for at, call in enumerate(calls) if at != left_out]


def _changed(calls: list[Mapping[str, Any]], chance: Random) -> list[Mapping[str, Any]]:
    at = chance.choice([at for at, call in enumerate(calls) if call.get("arguments")])
    changed = {**calls[at], "arguments": altered(calls[at]["arguments"], chance)}
    return [*calls[:at], changed, *calls[at + 1 :]]


def _made_up(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = plausible(tool.get("input_schema") or {})
    return {"tool": tool["name"], "arguments": arguments if isinstance(arguments, dict) else {}}
