"""Oracles for BFCL tasks: gold as calls, proven by upstream's own checker.

Claim: an oracle that is not marked `unsolvable` passes, because it has been run; one that is marked
fails for the reason it carries, in the checker's words, and no other way of writing its gold does better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suites.errors import InputError
from suites.schema import Oracle, OracleCall, Task, Tool
from tasks.convert.bfcl_gold import GoldCall, made_up
from tasks.grade.calls import rows_of
from tasks.grade.client import Grading
from tasks.grade.jobs import Job, native_names


def make_oracle(category: str, tools: Sequence[Tool], gold: Sequence[GoldCall]) -> Oracle:
    """Gold steps, and one legal call that must cost the task where there can be one."""
    wire = {tool.native_name or tool.name: tool.name for tool in tools}
    calls = [OracleCall(tool=wire.get(name, name), arguments=given) for name, given in gold]
    spare = next((tool for tool in tools if tool.name not in {c.tool for c in calls}), None)
    if "irrelevance" in category:
        answer, vandal = "None of the tools at hand can do this.", _made_up_call(spare)
    elif "relevance" in category:
        # Any call passes here and none can spoil it, so there is nothing for a vandal to break.
        return Oracle(calls=tuple(filter(None, [_made_up_call(spare)])))
    else:
        # Upstream counts calls: one more of any kind is wrong.
        answer, vandal = "Done.", _made_up_call(spare) or calls[0]
    return Oracle(calls=tuple(calls), vandal=vandal, answer=answer)


def _made_up_call(tool: Tool | None) -> OracleCall | None:
    if tool is None:
        return None
    return OracleCall(tool=tool.name, arguments=made_up(tool.input_schema))


def mended(
    task: Task,
    ways: Iterable[Sequence[GoldCall]],
    reason: str,
    dataset: str,
    grading: Grading,
) -> tuple[Task, str | None]:
    """The task with the first other rendering of gold that the grader passes, and None.

    Where none passes, it keeps the preferred one, and why that failed stands in its oracle.
    """
    gold = oracle_of(task)
    wire = {native: name for name, native in native_names(task).items()}
    for way in list(ways)[1:]:
        calls = tuple(OracleCall(tool=wire.get(n, n), arguments=given) for n, given in way)
        if reason_of(task.id, grading.grade(oracle_job(task, calls, dataset))) is None:
            return task.model_copy(
                update={"oracle": gold.model_copy(update={"calls": calls})}
            ), None
    oracle = gold.model_copy(update={"unsolvable": reason})
    return task.model_copy(update={"oracle": oracle}), reason


def reason_of(task_id: str, grade: Mapping[str, Any]) -> str | None:
    """Why the grader did not pass the calls it was given; None if it did.

    Raises:
        InputError: it could not judge.
    """
    if grade["error"] is not None:
        raise InputError(
            f"{task_id} could not be graded: {grade['error']['message']}",
            mend="the source's checkers must be those of bfcl-eval",
        )
    headline = next(check for check in grade["checks"] if check["headline"])
    return None if headline["passed"] else f"{headline['error_type']}: {headline['finding']}"


def oracle_of(task: Task) -> Oracle:
    assert task.oracle is not None  # every task made here has one
    return task.oracle


def oracle_job(task: Task, calls: Iterable[OracleCall], dataset: str) -> Job:
    """The job that grades calls nobody made yet, as if a bridge had accepted each."""
    return Job(
        id=task.id,
        grader=task.grade.grader,
        spec=task.grade.spec,
        tools=native_names(task),
        dataset=dataset,
        rows={"bridge": rows_of((call.tool, call.arguments) for call in calls), "model": []},
    )
