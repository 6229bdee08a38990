"""A conversation as a harness meets it: what the host is told of it, and what each launch is told.

Three ways, chosen by the harness file. In `tool` it runs once and reaches the user by the tool
`respond_to_user`. In `turns` and `resume` it runs once for each turn of the agent (`Turns`):

    launch ── what it printed ──► host.say ── the user's answer ──► launch ── … ──► the end

`turns` is told everything each time and keeps nothing; `resume` keeps its HOME and working directory
and need only be told what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from suites.schema import Harness, Model, SimulatedUser, Task
from tasks.attempt.endings import natural
from tasks.attempt.environment import Told, newest_of_user
from tasks.attempt.job import Job
from tasks.attempt.supervision import Watch
from tasks.attempt.telemetry import Left, answer

BY_TOOL = (
    "You are in a conversation with a user, who hears you only through the tool `respond_to_user`. Call "
    "it with everything that you want the user to know; its result is what the user answers. Whatever "
    "you write elsewhere reaches nobody. The conversation goes on until the tool says that it is over: "
    "stop then."
)
"""Added to the system message of a harness that talks by the tool; part of CONVERSATION_CONTRACT."""

IN_TURN = (
    "Give the assistant's next message to the user, and nothing else: what you answer is said to the "
    "user as it stands."
)
"""The end of the prompt of a harness that takes one text a turn; part of CONVERSATION_CONTRACT."""

Described = Callable[[Model, dict[str, Any]], dict[str, Any]]
"""A model as the host wants it, given what a scripted one has to know."""


def terms(job: Job, described: Described) -> dict[str, Any] | None:
    """The conversation as `host.open` takes it; None where the task is none."""
    user = job.task.user
    if user is None:
        return None
    return {
        "way": job.way,
        "messages": [message.model_dump() for message in job.task.messages],
        "stops": list(user.stops),
        "max_steps": user.max_steps,
        "max_errors": user.max_errors,
        "user": _player(job, user, described),
    }


def _player(job: Job, user: SimulatedUser, described: Described) -> dict[str, Any]:
    player = job.user
    if player is None:
        raise ValueError(f"nobody plays the user of {job.task.id}")
    if player.kind == "replay":
        return {"kind": "replay", "messages": player.said_of(job.task)}
    if player.model is not None:
        tools = [
            tool.model_dump(mode="json", exclude={"run", "result"})
            for environment in job.task.environments
            for tool in getattr(environment, "user_tools", ())
        ]
        model = described(player.model, {"oracle": {}, "tools": tools})
        return {"kind": "model", "scenario": user.scenario, "model": model, "seed": job.seed}
    if user.script is None:
        raise ValueError(f"the user of {job.task.id} has no script")
    calls = [call.model_dump(include={"tool", "arguments"}) for call in user.script.calls]
    return {"kind": "scripted", "opening": user.script.opening, "calls": calls}


def given(task: Task) -> dict[str, int]:
    """How many tool calls the agent made, and how often it spoke, before it was launched."""
    history = (task.setup or {}).get("message_history")
    if not history:
        said = sum(message.role == "assistant" for message in task.messages)
        return {"made": 0, "said": said}
    agents = [message for message in history if message.get("role") == "assistant"]
    made = sum(len(message.get("tool_calls") or ()) for message in agents)
    return {"made": made, "said": sum(not message.get("tool_calls") for message in agents)}


# ---------------------------------------------------------------- what a launch is told


def told_by_tool(task: Task, transcript: list[dict[str, Any]]) -> Told:
    """The one launch of a harness that talks by a tool."""
    system = f"{task.policy}\n\n{BY_TOOL}" if task.policy else BY_TOOL
    return Told(
        [{"role": "system", "content": system}, *transcript],
        f"{system}\n\n{written_out(transcript)}",
        newest_of_user(transcript),
    )


def told_in_turn(task: Task, transcript: list[dict[str, Any]], turn: int) -> Told:
    """One launch of a harness that runs once a turn."""
    system = [{"role": "system", "content": task.policy}] if task.policy else []
    parts = [task.policy, written_out(transcript), IN_TURN]
    return Told(
        [*system, *transcript],
        "\n\n".join(part for part in parts if part),
        newest_of_user(transcript),
        turn,
    )


def written_out(transcript: list[dict[str, Any]]) -> str:
    """Chat messages as one text, the agent's tool calls and their results among them."""
    parts, names = [], {}
    for message in transcript:
        if message.get("content") and message["role"] != "tool":
            parts.append(f"[{message['role']}]\n{message['content']}")
        for call in message.get("tool_calls") or ():
            function = call["function"]
            names[call["id"]] = function["name"]
            parts.append(f"[assistant calls {function['name']}]\n{function['arguments']}")
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id"), "the tool")
            parts.append(f"[{name} answers]\n{message['content']}")
    return "\n\n".join(parts)


# ---------------------------------------------------------------- turn by turn


class Turns:
    """A conversation in which the harness runs once for each turn of the agent.

    Args:
        launch: runs the harness as it is told, its output into the two files; the launcher's report.
        say: hands what it said to the host; the answer, or None if something cut the waiting short.
        folder: the try's folder; each turn leaves `turns/<nnn>.stdout` and `.stderr` in it, and the
            whole is in `stdout` and `stderr` as ever.

    Attributes:
        launches: what each turn came to, for the record.
    """

    def __init__(
        self,
        job: Job,
        watch: Watch,
        folder: Path,
        launch: Callable[[Told, Path, Path], dict[str, Any]],
        say: Callable[[str], dict[str, Any] | None],
    ) -> None:
        self.launches: list[dict[str, Any]] = []
        self._job = job
        self._watch = watch
        self._folder = folder
        self._launch = launch
        self._say = say

    def hold(self, talk: dict[str, Any] | None) -> None:
        """Go on until the conversation is over, or the harness or its surroundings end it.

        Args:
            talk: the conversation so far, as the host told it (`messages`, `ended`).
        """
        (self._folder / "turns").mkdir(exist_ok=True)
        while talk is not None and talk["ended"] is None:
            report, text = self._turn(talk["messages"])
            if natural(self._job.harness, report, self._watch.stopped_for).ending != "clean":
                return
            talk = self._say(text)

    def _turn(self, transcript: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
        turn = len(self.launches) + 1
        stdout = self._folder / "turns" / f"{turn:03d}.stdout"
        stderr = stdout.with_suffix(".stderr")
        report = self._launch(told_in_turn(self._job.task, transcript, turn), stdout, stderr)
        told = {"turn": turn, **{name: report.get(name) for name in RECORDED}}
        self.launches.append(told)
        join(self._folder, stdout, stderr)
        text = stdout.read_bytes().decode("utf-8", "replace") if stdout.exists() else ""
        return report, said(self._job.harness, text)


RECORDED = ("exit_code", "signal", "started_at", "ended_at", "cpu_s", "stdout_bytes")
"""What of a launch's report stands in the record, where there are several launches."""


def join(folder: Path, *parts: Path) -> None:
    """Add what one launch printed (`….stdout`, `….stderr`) to the whole (`stdout`, `stderr`)."""
    for part in parts:
        with (folder / part.suffix[1:]).open("ab") as whole:
            whole.write(part.read_bytes() if part.exists() else b"")


def said(harness: Harness, stdout: str) -> str:
    """What of its output the harness says to the user."""
    return answer(harness, Left(stdout)).strip()


def summed(told: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What all turns together say they used: numbers added up, of the rest the last; None for nothing."""
    total: dict[str, Any] = {}
    for one in told:
        for name, value in one.items():
            before = total.get(name, 0)
            total[name] = before + value if _number(value) and _number(before) else value
    return total or None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
