"""Oracles for τ²-bench tasks: gold as calls and one answer, proven by upstream's own world and grader.

Claim: an oracle that is not marked `unsolvable` passes, because its conversation has been played and
judged; one that is marked fails for the reason it carries. A vandal's call is one that was seen to cost
the task, by the grader, or by the world it leaves (`tau2_upstream.Domain._costs`); only where none of
those offered does, it is merely legal.

The conversation that is judged is the shortest there is: greeting, what the user wants, the gold calls of
both in their order with the results that upstream's world gave, the answer, and the user's stop.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from suites.canonical import canonical_json
from suites.errors import InputError
from suites.schema import Oracle, OracleCall, Task, UserScript
from tasks.convert.tau2_asking import Upstream
from tasks.grade.client import Grading
from tasks.grade.jobs import Job, native_names

REQUESTORS: dict[str, Literal["agent", "user"]] = {"assistant": "agent", "user": "user"}
"""Upstream's word to ours."""
NEEDS_JUDGE = "NL_ASSERTION"
STOP = "###STOP###"
FOR_TWO = 500
"""Tasks from which on two processes judge them: to start the second takes as long as some hundred."""
SHARE = 32
"""Conversations a judge is given at once."""


def make_oracle(task: Mapping[str, Any]) -> Oracle:
    """Gold of a task, as its file has it: all actions in order, and an answer with all that must be said."""
    criteria = task.get("evaluation_criteria") or {}
    facts = criteria.get("communicate_info") or []
    answer = f"That is all done. To sum up: {'; '.join(facts)}." if facts else "That is all done."
    return Oracle(calls=tuple(_calls(task)), answer=answer)


def make_script(task: Mapping[str, Any]) -> UserScript:
    """What a scripted user opens with, and its gold calls in order."""
    asked = task["user_scenario"]["instructions"]
    if not isinstance(asked, str):
        keys = ("reason_for_call", "known_info", "task_instructions")
        asked = "\n\n".join(asked[key].strip() for key in keys if asked.get(key))
    return UserScript(
        opening=asked, calls=tuple(call for call in _calls(task) if call.requestor == "user")
    )


def _calls(task: Mapping[str, Any]) -> Iterator[OracleCall]:
    for action in (task.get("evaluation_criteria") or {}).get("actions") or []:
        yield OracleCall.model_construct(
            tool=action["name"],
            arguments=action["arguments"],
            requestor=REQUESTORS[action.get("requestor", "assistant")],
        )


# ---------------------------------------------------------------- proof


@dataclass(frozen=True)
class Proven:
    """A task whose oracle was played and judged.

    Attributes:
        judged: True where a part of its reward needs a judge model; the rest is proven.
        unspoilt: True where gold passes, and no forbidden write was found to cost the task.
    """

    task: Task
    judged: bool = False
    unspoilt: bool = False


class Proof:
    """Proves oracles, each task once.

    Args:
        upstream: plays them.
        dataset: version of the package.
    """

    def __init__(self, upstream: Upstream, dataset: str) -> None:
        self._upstream, self._dataset = upstream, dataset
        self._judges = (Grading(), Grading())
        self._known: dict[tuple[str, int], Proven] = {}

    def prove(self, domain: str, tasks: Sequence[tuple[int, Task]]) -> list[Proven]:
        """The tasks with what became of their oracles.

        Args:
            domain: upstream's name.
            tasks: each with its place in the task file.

        Raises:
            InputError: the grader could not judge.
        """
        fresh = [(n, task) for n, task in tasks if (domain, n) not in self._known]
        cases: list[_Case] = []

        def played() -> Iterator[_Case]:
            runs = self._upstream.playing(domain, [(n, 0) for n, _ in fresh])
            for (n, task), run in zip(fresh, runs, strict=True):
                cases.append(_Case(n, task, run))
                if run["failed"] is None:
                    yield cases[-1]

        judges = self._judges if len(fresh) >= FOR_TWO else self._judges[:1]
        reasons = self._reasons(played(), judges, vandal=False)
        solved = []
        for case in cases:
            reason = case.failed or reasons[case.number]
            self._known[domain, case.number] = case.proven(unsolvable=reason)
            if reason is None:
                solved.append(case)
        self._find_vandals(domain, solved)
        return [self._known[domain, n] for n, _ in tasks]

    def close(self) -> None:
        """End the judges."""
        for judge in self._judges:
            judge.close()

    def _find_vandals(self, domain: str, cases: list[_Case]) -> None:
        """For each case the first forbidden write that costs its task, else the first legal one."""
        spared: dict[int, Mapping[str, Any]] = {}
        while cases := [case for case in cases if case.write is not None]:
            unknown = [case for case in cases if case.write and case.write["costs"] is None]
            reasons = self._reasons(unknown, self._judges[:1], vandal=True)
            left = []
            for case in cases:
                assert case.write is not None
                first = spared.setdefault(case.number, case.write)
                costs = bool(case.write["costs"]) or reasons.get(case.number) is not None
                chosen = case.write if costs else first
                self._known[domain, case.number] = case.proven(vandal=chosen, unspoilt=not costs)
                if case.write["costs"] is None and not costs:
                    left.append(case)
            asked = [(case.number, case.write["place"] + 1) for case in left if case.write]
            runs = self._upstream.run(domain, asked)
            cases = [replace(case, run=run) for case, run in zip(left, runs, strict=True)]

    def _reasons(
        self, cases: Iterable[_Case], judges: Sequence[Grading], *, vandal: bool
    ) -> dict[int, str | None]:
        """Why the grader did not pass each case, by its number; None where it did.

        Cases are judged while those after them are still being played.
        """

        def judged(judge: Grading, share: Sequence[_Case]) -> dict[int, str | None]:
            grades = judge.grade_bundles(case.job(self._dataset, vandal=vandal) for case in share)
            return {
                case.number: reason_of(case.task.id, grade)
                for case, grade in zip(share, grades, strict=True)
            }

        waiting, turns = iter(cases), itertools.cycle(judges)
        found: dict[int, str | None] = {}
        with ThreadPoolExecutor(len(judges)) as pool:
            answers = []
            while share := list(itertools.islice(waiting, SHARE)):
                answers.append(pool.submit(judged, next(turns), share))
            for answer in answers:
                found |= answer.result()
        return found


@dataclass(frozen=True)
class _Case:
    """A task and what upstream's world answered to its gold."""

    number: int
    task: Task
    run: Mapping[str, Any]

    @property
    def failed(self) -> str | None:
        reason = self.run["failed"]
        return None if reason is None else f"its world cannot be set up: {reason}"

    @property
    def write(self) -> Mapping[str, Any] | None:
        """The forbidden write that was made after gold."""
        write: Mapping[str, Any] | None = self.run.get("vandal")
        return write

    @property
    def judged(self) -> bool:
        """True where a model has to judge a part."""
        criteria = self.task.grade.spec["task"].get("evaluation_criteria") or {}
        return NEEDS_JUDGE in (criteria.get("reward_basis") or ())

    def proven(
        self,
        unsolvable: str | None = None,
        vandal: Mapping[str, Any] | None = None,
        unspoilt: bool | None = None,
    ) -> Proven:
        """The task with what was found."""
        assert self.task.oracle is not None  # every task made here has one
        call = vandal and OracleCall(tool=vandal["tool"], arguments=vandal["arguments"])
        oracle = self.task.oracle.model_copy(update={"unsolvable": unsolvable, "vandal": call})
        if unspoilt is None:
            unspoilt = unsolvable is None
        return Proven(self.task.model_copy(update={"oracle": oracle}), self.judged, unspoilt)

    def job(self, dataset: str, *, vandal: bool) -> Job:
        """The job that judges gold, with the forbidden write after it or without."""
        assert self.task.oracle is not None
        calls = [*self.run["gold"], *([self.write] if vandal and self.write else [])]
        spec = self.task.grade.spec
        if self.judged:
            criteria = spec["task"]["evaluation_criteria"]
            basis = [part for part in criteria["reward_basis"] if part != NEEDS_JUDGE]
            proven = {**criteria, "reward_basis": basis}
            spec = {**spec, "task": {**spec["task"], "evaluation_criteria": proven}}
        return Job(
            id=self.task.id,
            grader=self.task.grade.grader,
            spec=spec,
            tools=native_names(self.task),
            dataset=dataset,
            rows=rows_of(self.task, calls, self.task.oracle.answer),
        )


def rows_of(task: Task, calls: Iterable[Mapping[str, Any]], answer: str) -> dict[str, Any]:
    """The rows of a conversation in which these calls were made, in the order they are given.

    Args:
        task: its opening messages and its scripted user's.
        calls: `{"tool", "arguments", "requestor", "text", "error"}` of each, as upstream's world had it.
        answer: what the agent says at the end.
    """
    assert task.user is not None
    assert task.user.script is not None
    bridge: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []

    def seq() -> int:
        return len(bridge) + len(said) + 1

    def says(role: str, content: str, *, opening: bool = False) -> None:
        who = REQUESTORS[role]
        said.append(
            {
                "seq": seq(),
                "event": "message",
                "role": role,
                "requestor": who,
                "content": content,
                "opening": opening,
            }
        )

    for message in task.messages:
        says(message.role, message.content, opening=True)
    says("user", task.user.script.opening)
    server = task.environments[0].name
    for call in calls:
        who, at = REQUESTORS[call["requestor"]], seq()
        text = canonical_json(call["arguments"]).decode()
        row = {"server": server, "requestor": who}
        bridge.append(
            {
                **row,
                "seq": at,
                "event": "call",
                "tool": call["tool"],
                "native": call["tool"],
                "arguments": text,
            }
        )
        status = "tool_error" if call["error"] else "ok"
        result = {"event": "result", "call": at, "status": status, "is_error": call["error"]}
        bridge.append({**row, **result, "seq": seq(), "text": call["text"]})
    says("assistant", answer)
    says("user", STOP)
    said.append({"seq": seq(), "event": "end", "reason": "user_stop", "requestor": "user"})
    return {"bridge": bridge, "model": [], "conversation": said}


def reason_of(task_id: str, grade: Mapping[str, Any]) -> str | None:
    """Why the grader did not pass a conversation; None if it did.

    Raises:
        InputError: it could not judge.
    """
    if grade["error"] is not None:
        raise InputError(
            f"{task_id} could not be graded: {grade['error']['message']}",
            mend="the source's evaluators must be those of τ²-bench",
        )
    if grade["solved"]:
        return None
    failed = [c for c in grade["checks"] if c["headline"] and c["passed"] is False]
    return "; ".join(f"{c['error_type'] or c['name']}: {c['finding']}" for c in failed) or "failed"
