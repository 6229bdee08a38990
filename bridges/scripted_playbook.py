"""Playbooks: scripted models whose every response is written down, broken ones too.

    steps:                          # the first response, the second, …
      - calls: [{tool: get_weather, arguments: {city: Paris}}]
      - text: It is sunny in Paris.
    plays:                          # optional: other steps for a prompt that holds this text
      - when: Berlin
        steps: [{text: I do not know Berlin.}]
    loop: false                     # true: the last step again and again, instead of "Done."

A step may also have `status`, `body` (sent as it stands), `headers`, `delay_seconds`, `hang`,
`cut_stream_after` and `chunk_delay_seconds`, and `faults`: steps that are given first, one for each
request that arrives, before the step itself. Arguments given as text are sent as they stand, valid
or not.

The step is chosen by the number of assistant messages so far, not counting those of the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bridges.scripted_behaviours import Asked, Script, Step, ToolCall, offered

_STEP_KEYS = {field.name for field in fields(Step)} | {"faults"}


@dataclass(frozen=True)
class _Entry:
    step: Step
    faults: tuple[Step, ...]


class Playbook:
    """One attempt's playbook, and where in it the attempt is.

    Args:
        settings: `playbook` (a YAML file) or the same keys in place: `steps`, `plays`, `loop`.

    Raises:
        ValueError: a mistake in it, naming file and step.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._where = "playbook"
        book: Any = {k: settings[k] for k in ("steps", "plays", "loop") if k in settings}
        if "playbook" in settings:
            self._where = str(settings["playbook"])
            book = _read(Path(self._where))
        if not isinstance(book, dict) or not (book.get("steps") or book.get("plays")):
            raise ValueError(f"{self._where}: needs `steps` (a list) or `plays`")
        wrong = sorted(set(book) - {"steps", "plays", "loop"})
        if wrong:
            raise ValueError(
                f"{self._where}: unknown key {wrong[0]!r}; there are steps, plays, loop"
            )
        self._loop = book.get("loop") is True
        self._steps = self._entries(book.get("steps") or [], "steps")
        self._plays = [
            (str(play["when"]), self._entries(play["steps"], f"plays[{at}].steps"))
            for at, play in enumerate(book.get("plays") or [])
        ]
        self._prompt: int | None = None
        self._faults_given: dict[tuple[int, int], int] = {}

    def next(self, asked: Asked) -> Step:
        """The step for a request."""
        if self._prompt is None:
            self._prompt = asked.assistants
        steps = next((s for when, s in self._plays if when in asked.last_user), self._steps)
        at = max(asked.assistants - self._prompt, 0)
        if self._loop and steps:
            at = min(at, len(steps) - 1)
        if at >= len(steps):
            return Step(text="Done.")
        entry = steps[at]
        given = self._faults_given.get((id(steps), at), 0)
        if given < len(entry.faults):
            self._faults_given[id(steps), at] = given + 1
            return _named(entry.faults[given], asked)
        return _named(entry.step, asked)

    def _entries(self, steps: Any, where: str) -> list[_Entry]:
        if not isinstance(steps, list):
            raise self._wrong(f"{where} must be a list, not {steps!r}")
        return [self._entry(step, f"{where}[{at}]") for at, step in enumerate(steps)]

    def _entry(self, step: Any, where: str) -> _Entry:
        if not isinstance(step, dict):
            raise self._wrong(f"{where} must be a mapping, not {step!r}")
        wrong = sorted(set(step) - _STEP_KEYS)
        if wrong:
            known = ", ".join(sorted(_STEP_KEYS))
            raise self._wrong(f"{where}: unknown key {wrong[0]!r}; there are {known}")
        rest = {key: value for key, value in step.items() if key not in ("faults", "calls")}
        calls = tuple(self._call(call, where) for call in step.get("calls") or ())
        faults = tuple(e.step for e in self._entries(step.get("faults") or [], f"{where}.faults"))
        return _Entry(Step(calls=calls, **rest), faults)

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"{self._where}: {what}")

    def _call(self, call: Any, where: str) -> ToolCall:
        if not isinstance(call, dict) or "tool" not in call or set(call) - {"tool", "arguments"}:
            raise self._wrong(f"{where}: a call is {{tool, arguments}}, not {call!r}")
        arguments = call.get("arguments", {})
        return ToolCall(
            call["tool"], arguments if isinstance(arguments, str) else json.dumps(arguments)
        )


def _named(step: Step, asked: Asked) -> Step:
    calls = tuple(ToolCall(offered(c.tool, asked.tools), c.arguments) for c in step.calls)
    return Step(**{**{f.name: getattr(step, f.name) for f in fields(Step)}, "calls": calls})


def _read(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from error


def check_script(script: Mapping[str, Any]) -> None:
    """Find a mistake in a script's behaviour, settings or playbook before any attempt opens with it.

    Raises:
        ValueError: the same that opening would raise.
    """
    if Script.of(script).behaviour == "playbook":
        Playbook(script.get("settings") or {})
