"""Upstream's own words on a domain: the process that holds τ²-bench's code while it is converted.

Claim: everything a suite says of a domain (policy, tools, tasks, what the simulated user is told, what
each gold call returns) is upstream's answer, and nobody else's process imports upstream for it; so two
versions can be converted side by side, and what upstream prints or leaves behind stays here.

    python -m tasks.convert.tau2_upstream FOLDER    stdin: a question a line; stdout: an answer a line
        {"ask": "describe", "domain", "split"}      policy, tools, tasks as they stand in the file
        {"ask": "run", "domain", "runs": [[n, k]]}  nth task: gold calls, then a forbidden write, of which
                                                    k are passed over

A question that cannot be answered is answered by `{"error", "where", "mend", "loading"}`, `loading` true
where upstream's code itself is at fault.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridges.tau2_package import OFFLINE_RETRIEVAL, Tau2, load
from suites.canonical import digest, file_sha256
from tasks.convert.tau2_vandals import forbidden_writes
from tasks.grade.tau2_worlds import Worlds


class Unanswerable(Exception):  # noqa: N818 - the condition
    """Why upstream cannot say: what, where and how to mend it."""

    def __init__(
        self, what: str, where: str | None = None, mend: str | None = None, loading: bool = False
    ) -> None:
        super().__init__(what)
        self.answer = {"error": what, "where": where, "mend": mend, "loading": loading}


class Domain:
    """One domain of the version at hand."""

    def __init__(self, upstream: Tau2, name: str) -> None:
        self.upstream, self.name = upstream, name
        if not upstream.has_domain(name):
            raise Unanswerable(
                f"this version has no domain {name!r}", str(upstream.data / "domains")
            )
        try:
            self.environment = upstream.pristine(name)
            self._module = upstream.module(f"domains.{name}.environment")
            self._user = upstream.module("user.user_simulator").UserSimulator
        except Exception as error:  # whatever its files or imports raise is the reason
            raise Unanswerable(
                f"upstream's code for the domain cannot be loaded: {type(error).__name__}: {error}",
                str(upstream.data / "domains" / name),
                loading=True,
            ) from error
        self._knowledge: Any = None
        self._worlds = Worlds(upstream, name)
        self.file = self._task_file()
        self.raw = list(self._read())
        self.tasks = [self._valid(number, raw) for number, raw in enumerate(self.raw)]

    def describe(self, split: str | None) -> dict[str, Any]:
        """What the domain's suite of that split is made of."""
        env, chosen = self.environment, self._chosen(split)
        user_tools = env.get_user_tools() if env.user_tools is not None else None
        files = [self.file] if self.file.is_file() else sorted(self.file.glob("task_*.json"))
        hashes = {file.name: file_sha256(file) for file in files}
        return {
            "policy": env.get_policy(),
            "tools": [_listed(tool) for tool in env.get_tools()],
            "user_tools": [_listed(tool) for tool in user_tools or ()],
            "file": self.file.relative_to(self.upstream.data).as_posix(),
            "sha256": hashes[self.file.name] if self.file.is_file() else digest(hashes),
            "tasks": [
                {
                    "n": n,
                    "task": self.raw[n],
                    "scenario": self._scenario(self.tasks[n], user_tools),
                    "policy": self._own_policy(self.tasks[n]),
                }
                for n in chosen
            ],
        }

    def run(self, number: int, vandal: int) -> dict[str, Any]:
        """Gold calls of a task in a world of its own, then a forbidden write.

        Args:
            number: of the task in its file.
            vandal: how many of the forbidden writes to pass over.

        Returns:
            `failed`: why the world cannot be set up, or None; `gold`: each call with its result;
            `vandal`: the first write that was carried out and is not known to leave the task unhurt, else
            the first that was carried out, with its `place` among them and whether it `costs` the task
            (None: only the grader can tell); None where there is none.
        """
        gold, spared = [], None
        while True:
            try:
                env = self._begun(number)
            except Exception as error:
                return {"failed": f"{type(error).__name__}: {error}"}
            gold = [self._call(env, *action) for action in self._actions(number)]
            written = self._write(env, number, vandal)
            if written is None or written["costs"] is not False:
                return {"failed": None, "gold": gold, "vandal": written or spared}
            spared = spared or written
            vandal = written["place"] + 1

    def _begun(self, number: int) -> Any:
        """A new environment in the state the task begins in."""
        self._worlds.begin()
        env = self._worlds.make().environment
        state = self.tasks[number].initial_state
        env.set_state(
            initialization_data=state and state.initialization_data,
            initialization_actions=state and state.initialization_actions,
            message_history=(state and state.message_history) or [],
        )
        return env

    def _actions(self, number: int) -> list[tuple[str, dict[str, Any], str]]:
        criteria = self.tasks[number].evaluation_criteria
        actions = (criteria and criteria.actions) or []
        return [(action.name, action.arguments, action.requestor) for action in actions]

    def _write(self, env: Any, number: int, passed_over: int) -> dict[str, Any] | None:
        """The next forbidden write that the world carries out."""
        gold = self._state(env) if self._is_compared(number) else None
        writes = list(enumerate(forbidden_writes(self.name, env, self.raw[number])))
        for place, (tool, arguments) in writes[passed_over:]:
            written = self._call(env, tool, arguments, "assistant")
            if not written["error"]:
                return {**written, "place": place, "costs": self._costs(env, number, gold)}
            gold = None  # a write that failed may have left something
        return None

    def _costs(self, env: Any, number: int, gold: tuple[Any, Any] | None) -> bool | None:
        """Whether a world so changed costs the task, if gold passes; None: only the grader can tell.

        A reward is a product: one part that fails makes it 0, whatever the rest. Gold that passes leaves
        the databases that upstream compares with, so a write that leaves others fails that comparison;
        and an assertion on the world that fails now fails then. Where nothing of the reward looks at
        databases, assertions that hold leave it as gold had it.
        """
        basis = self._basis(number)
        if gold is not None and self._state(env) != gold:
            return True
        if "ENV_ASSERTION" in basis:
            checks = self.tasks[number].evaluation_criteria.env_assertions or []
            if not all(env.run_env_assertion(c, raise_assertion_error=False) for c in checks):
                return True
        return None if "DB" in basis else False

    def _is_compared(self, number: int) -> bool:
        """Whether the reward rests on databases that upstream compares: only where gold is stated."""
        criteria = self.tasks[number].evaluation_criteria
        return "DB" in self._basis(number) and criteria.actions is not None

    def _basis(self, number: int) -> set[str]:
        """What the reward is a product of."""
        criteria = self.tasks[number].evaluation_criteria
        return {part.value for part in criteria.reward_basis} if criteria else set()

    @staticmethod
    def _state(env: Any) -> tuple[Any, Any]:
        """What upstream compares of two worlds, taken when it takes it: both sides in step."""
        env.sync_tools()
        return env.get_db_hash(), env.get_user_db_hash()

    def _call(
        self, env: Any, tool: str, arguments: Mapping[str, Any], requestor: str
    ) -> dict[str, Any]:
        made = self.upstream.module("data_model.message").ToolCall(
            id="", name=tool, arguments=copy.deepcopy(dict(arguments)), requestor=requestor
        )
        answer = env.get_response(made)
        return {
            "tool": tool,
            "arguments": dict(arguments),
            "requestor": requestor,
            "text": answer.content,
            "error": bool(answer.error),
        }

    def _task_file(self) -> Path:
        """What the domain's own code reads: a file, or a folder with a file a task."""
        utils = self.upstream.module(f"domains.{self.name}.utils")
        path = next(Path(v) for k, v in vars(utils).items() if k.endswith("_TASK_SET_PATH"))
        if not path.exists():
            raise Unanswerable("there is no such task file", str(path), "take the source whole")
        return path

    def _read(self) -> Iterator[dict[str, Any]]:
        files = [self.file] if self.file.is_file() else sorted(self.file.glob("task_*.json"))
        for file in files:
            try:
                value = json.loads(file.read_bytes())
            except ValueError as error:
                raise Unanswerable(f"not JSON: {error}", str(file)) from error
            if isinstance(value, dict) and "tasks" in value:
                value = value["tasks"]
            yield from value if isinstance(value, list) else [value]

    def _valid(self, number: int, raw: Any) -> Any:
        """The task as upstream's model has it."""
        model = self.upstream.module("data_model.tasks").Task
        try:
            return model.model_validate(raw)
        except ValidationError as error:
            name = raw.get("id") if isinstance(raw, dict) else None
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise Unanswerable(
                f"the task {name!r} is not one by upstream's own model: {key}: {first['msg']}",
                f"{self.file}: [{number}]{'.' if key else ''}{key}",
                "mend the file, or take another source",
            ) from error

    def _chosen(self, split: str | None) -> list[int]:
        if split is None:
            return list(range(len(self.tasks)))
        try:
            splits = self._module.get_tasks_split() or {}
        except (OSError, ValueError) as error:
            raise Unanswerable(f"its splits cannot be read: {error}", str(self.file)) from error
        if split not in splits:
            raise Unanswerable(
                f"the domain has no split {split!r}",
                str(self.file.parent / f"split_{self.file.stem}.json"),
                f"it has {', '.join(splits)}",
            )
        wanted = set(splits[split])
        if unknown := wanted - {task.id for task in self.tasks}:
            raise Unanswerable(
                f"the split {split!r} names tasks that are not there: {', '.join(sorted(unknown)[:3])}",
                str(self.file),
            )
        return [n for n, task in enumerate(self.tasks) if task.id in wanted]

    def _own_policy(self, task: Any) -> str | None:
        """The policy of a task that needs documents of its own; None where it is the domain's."""
        if not getattr(task, "required_documents", None):
            return None
        variant = self._module.resolve_variant(OFFLINE_RETRIEVAL)
        if self._knowledge is None:
            self._knowledge = self._module.get_knowledge_base()
        return str(self._module.build_policy(variant, self._knowledge, task))

    def _scenario(self, task: Any, tools: Any) -> str:
        """The system prompt of upstream's user simulator."""
        user = self._user(instructions=str(task.user_scenario), tools=tools, llm="none")
        return str(user.system_prompt)


def _listed(tool: Any) -> dict[str, Any]:
    function = tool.openai_schema["function"]
    return {
        "name": function["name"],
        "description": function.get("description") or "",
        "input_schema": function["parameters"],
    }


def answer_to(question: Mapping[str, Any], upstream: Tau2, known: dict[str, Domain]) -> Any:
    """The answer, of JSON values."""
    name = question["domain"]
    if name not in known:
        known[name] = Domain(upstream, name)
    if question["ask"] == "describe":
        return known[name].describe(question["split"])
    return [known[name].run(number, vandal) for number, vandal in question["runs"]]


def main() -> None:
    """Keep the line for answers alone: what upstream prints goes to stderr."""
    line = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    sys.dont_write_bytecode = True  # the package in the cache stays as it was fetched
    upstream = load(Path(sys.argv[1]))
    known: dict[str, Domain] = {}
    for asked in sys.stdin.buffer:
        try:
            answer = answer_to(json.loads(asked), upstream, known)
        except Unanswerable as error:
            answer = error.answer
        line.write(json.dumps(answer).encode() + b"\n")
        line.flush()


if __name__ == "__main__":
    main()
