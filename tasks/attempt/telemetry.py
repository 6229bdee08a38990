"""What a harness itself says of its run: tokens and cost, and its final answer where its output is a format.

Nobody believes the tokens: the gateway meters. They are kept beside (`reported`), and a view shows where
the two differ. The answer is what text checks and a conversation look at; where a harness prints events or
one JSON object, it is one part of that.

A reader is a pure function of what was left (`Left`), named in a harness file by `telemetry: {usage: NAME}`.
It speaks dyno's conventions, whatever the harness's are: `input` is uncached input, `output` includes
`reasoning`. What a harness does not tell is left out, never 0; a price that it guessed is left out too.
To add one, write the function and enter it in `READERS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suites.errors import InputError
from suites.schema import Harness
from suites.wording import closest


@dataclass(frozen=True)
class Left:
    """What one launch left.

    Attributes:
        root: the folders of the try, with `home/` and `work/`, still there; None where they are not.
    """

    stdout: str
    stderr: str = ""
    root: Path | None = None

    def file(self, name: str) -> str:
        """A file by its name as in a harness file's `files` (`home/…`, `work/…`); "" where there is none."""
        if self.root is None:
            return ""
        try:
            return (self.root / name).read_text("utf-8", "replace")
        except OSError:
            return ""


@dataclass(frozen=True)
class Told:
    """What the harness said.

    Attributes:
        usage: `input`, `cache_read`, `cache_write`, `output`, `reasoning`, `cost`, as far as it told
            them; None where it told nothing.
        text: its final answer; None where it gave none in its format.
        of_session: the usage is of the whole session, with what earlier launches of it used.
    """

    usage: dict[str, Any] | None = None
    text: str | None = None
    of_session: bool = False


Reader = Callable[[Left], Told]


def check_telemetry(harness: Harness, where: str) -> None:
    """Refuse a reader that does not exist.

    Raises:
        InputError: naming those that do.
    """
    wrong = sorted(set(harness.telemetry) - {"usage"})
    name = harness.telemetry.get("usage")
    if wrong or (name is not None and name not in READERS):
        what = f"`telemetry` has no key {wrong[0]!r}" if wrong else f"`telemetry.usage` is {name!r}"
        known = f"`usage` is one of {', '.join(READERS)}"
        mend = (closest(str(name), READERS) if not wrong else None) or known
        raise InputError(what, where=where, mend=mend)


def read(harness: Harness, left: Left) -> Told:
    """What a harness said of itself; nothing where its file names no reader, or its output is no such."""
    reader = READERS.get(harness.telemetry.get("usage", ""))
    if reader is None:
        return Told()
    try:
        return reader(left)
    except (ValueError, TypeError, AttributeError, LookupError):
        return Told()  # cut off, or not what this reader knows: it told nothing


def answer(harness: Harness, left: Left) -> str:
    """Its final answer: what its format says, else all that it printed."""
    if not harness.telemetry:
        return left.stdout
    text = read(harness, left).text
    return left.stdout if text is None else text


# ---------------------------------------------------------------- readers


def last_line_json(left: Left) -> Told:
    """The last line of stdout is a JSON object with the usage, in our conventions; the rest is text."""
    text = left.stdout.strip()
    before, _, last = text.rpartition("\n")
    try:
        usage = json.loads(last)
    except ValueError:
        return Told()
    return Told(usage, before.strip()) if isinstance(usage, dict) else Told()


def claude_result_json(left: Left) -> Told:
    """Claude Code, `--output-format json`: one object of type `result`.

    Its input is without what the cache gave; its output includes thinking. Of a model that it does not
    know it guesses the price.
    """
    told = _object(left.stdout, "result")
    if told is None:
        return Told()
    usage = told["usage"]
    return Told(
        {
            "input": usage["input_tokens"],
            "cache_read": usage.get("cache_read_input_tokens") or 0,
            "cache_write": usage.get("cache_creation_input_tokens") or 0,
            "output": usage["output_tokens"],
        },
        told.get("result") or "",
    )


def codex_jsonl(left: Left) -> Told:
    """Codex, `exec --json`: `turn.completed` has the sums, with the cached part in its input; those of
    `exec resume` begin with what the session had used before."""
    usage: dict[str, Any] | None = None
    text = ""
    for event in _lines(left.stdout):
        item = event.get("item") or {}
        if event.get("type") == "turn.completed":
            said = event["usage"]
            cached = said.get("cached_input_tokens") or 0
            written = said.get("cache_write_input_tokens") or 0
            usage = {
                "input": said["input_tokens"] - cached - written,
                "cache_read": cached,
                "cache_write": written,
                "output": said["output_tokens"],
                "reasoning": said.get("reasoning_output_tokens") or 0,
            }
        elif event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = item["text"]
    return Told(usage, text, of_session=True)


def opencode_jsonl(left: Left) -> Told:
    """OpenCode, `run --format json`: a `step_finish` for each model call, reasoning beside its output."""
    steps: list[dict[str, Any]] = []
    texts: list[str] = []
    for event in _lines(left.stdout):
        part = event.get("part") or {}
        if event.get("type") == "step_start":
            texts = []  # what was said beside tool calls is not the answer
        elif event.get("type") == "text":
            texts.append(part["text"])
        elif event.get("type") == "step_finish":
            steps.append(part["tokens"])
    if not steps:
        return Told(None, "\n".join(texts) if texts else "")
    reasoning = _sum(step.get("reasoning") for step in steps)
    return Told(
        {
            "input": _sum(step["input"] for step in steps),
            "cache_read": _sum(step["cache"]["read"] for step in steps),
            "cache_write": _sum(step["cache"]["write"] for step in steps),
            "output": _sum(step["output"] for step in steps) + reasoning,
            "reasoning": reasoning,
        },
        "\n".join(texts),
    )


def qwen_json(left: Left) -> Told:
    """Qwen Code, `-o json`: an array of events, or a line each; the last is the `result`.

    Its input includes the cached part.
    """
    told = _object(left.stdout, "result")
    if told is None:
        return Told()
    usage = told["usage"]
    cached = usage.get("cache_read_input_tokens") or 0
    return Told(
        {
            "input": usage["input_tokens"] - cached,
            "cache_read": cached,
            "output": usage["output_tokens"],
        },
        told.get("result") or "",
    )


def agentd_jsonl(left: Left) -> Told:
    """agentd: telemetry on stderr, a line an event, and the answer alone on stdout.

    Each loop tells its sums when it is done (`turn.done` of a worker; the supervisor's event of that name
    has no split), so the run's are those of all loops; one that was killed has told nothing. Its input
    includes what the cache gave, which it does not tell.
    """
    loops = [
        event
        for event in _lines(left.stderr)
        if event.get("event") == "turn.done" and "tokens_in" in event
    ]
    if not loops:
        return Told()
    return Told(
        {
            "input": _sum(loop["tokens_in"] for loop in loops),
            "output": _sum(loop["tokens_out"] for loop in loops),
        }
    )


READERS: dict[str, Reader] = {
    "last_line_json": last_line_json,
    "claude_result_json": claude_result_json,
    "codex_jsonl": codex_jsonl,
    "opencode_jsonl": opencode_jsonl,
    "qwen_json": qwen_json,
    "agentd_jsonl": agentd_jsonl,
}


# ---------------------------------------------------------------- parts


def _lines(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines of a text; a last line that was cut off is none."""
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def _object(text: str, kind: str) -> Mapping[str, Any] | None:
    """The last object of a type: in a JSON array, or among lines."""
    text = text.strip()
    found: Iterable[Any] = json.loads(text) if text.startswith("[") else _lines(text)
    chosen = [one for one in found if isinstance(one, dict) and one.get("type") == kind]
    return chosen[-1] if chosen else None


def _sum(numbers: Iterable[Any]) -> int:
    return sum(number or 0 for number in numbers)
