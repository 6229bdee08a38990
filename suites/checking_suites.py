"""What a suite must be to be run: every rule that a schema of single fields cannot state.

Claim: nothing that passes here fails later for what its file says. Each rule is one function, and each
refusal names the place, what stands there, and what would be right.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from suites.canonical import canonical_json
from suites.errors import InputError
from suites.schema import Environment, Functions, Suite, Task, Tool
from suites.wording import closest

RUN = re.compile(r"^(?P<file>[\w./-]+\.py):(?P<function>[A-Za-z_]\w*)$")

ValidateGrade = Callable[[Task], None]
"""Refuses a task whose grader could not judge it: InputError, its `where` a key inside the task."""

Where = Callable[[int, str], str]
"""Says where a key of the nth task stands."""


def check_whole(suite: Suite, tasks: Sequence[Task], header: str, where: Where) -> None:
    """What no single task shows: ids twice, and weights that do not fit the categories."""
    if not tasks:
        raise InputError("has no task", where=header)
    first: dict[str, int] = {}
    for number, task in enumerate(tasks):
        if task.id in first:
            raise InputError(
                f"the id {task.id!r} is taken by {where(first[task.id], '')}",
                where=where(number, "id"),
            )
        first[task.id] = number
    if not suite.weights:
        return
    for name, weight in suite.weights.items():
        if not 0 < weight < math.inf:
            raise InputError(
                f"the weight is {weight}",
                where=f"{header}: weights.{name}",
                mend="a number above 0",
            )
    categories = {task.category for task in tasks}
    for name in suite.weights.keys() - categories:
        raise InputError(
            f"no task is of the category {name!r}",
            where=f"{header}: weights.{name}",
            mend=closest(name, categories) or f"the tasks have {', '.join(sorted(categories))}",
        )
    for name in categories - suite.weights.keys():
        raise InputError(
            f"leaves out the category {name!r}, whose tasks would then count for nothing",
            where=f"{header}: weights",
            mend="give each category a weight, or none at all to weigh them alike",
        )


def check_runs(tasks: Sequence[Task], where: Where) -> None:
    """Code that a tool runs must lie beside the suite and hold that function (it is not run here)."""
    defined: dict[Path, set[str]] = {}
    for number, key, environment, tool in _each_tool(tasks):
        if tool.run is None or not isinstance(environment, Functions):
            continue
        match = RUN.match(tool.run)
        if match is None or ".." in match["file"].split("/") or match["file"].startswith("/"):
            raise InputError(
                f"{tool.run!r} does not name code",
                where=where(number, f"{key}.run"),
                mend="file.py:function, the file beside the suite",
            )
        path = Path(environment.root or ".") / match["file"]
        if path not in defined:
            defined[path] = _functions_in(path, where(number, f"{key}.run"))
        if match["function"] not in defined[path]:
            raise InputError(
                f"{path} defines no function {match['function']!r}",
                where=where(number, f"{key}.run"),
                mend=closest(match["function"], defined[path]),
            )


def _functions_in(path: Path, where: str) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", where=where) from error
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is not Python: {error}", where=where) from error
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def check_tools(tasks: Sequence[Task], where: Where) -> None:
    """Each tool answers, its schema is one, and gold calls fit it."""
    sound: set[bytes] = set()
    for number, key, environment, tool in _each_tool(tasks):
        answers = [tool.result, tool.run]
        if not isinstance(environment, Functions):
            if answers != [None, None]:
                raise InputError(
                    f"the world answers a call of {tool.name!r}; `result` and `run` have no place here",
                    where=where(number, key),
                )
        elif all(answer is None for answer in (*answers, environment.result)):
            raise InputError(
                f"nothing answers a call of {tool.name!r}",
                where=where(number, key),
                mend="give the tool a `result` or `run`, or its environment a `result`",
            )
        elif None not in answers:
            raise InputError("has both `result` and `run`", where=where(number, key))
        if tool.input_schema.get("type") != "object":
            raise InputError(
                f"the arguments of a tool are an object, not {tool.input_schema.get('type')!r}",
                where=where(number, f"{key}.input_schema.type"),
                mend="type: object",
            )
        form = canonical_json(tool.input_schema)
        if form in sound:
            continue
        try:
            Draft202012Validator.check_schema(tool.input_schema)
        except SchemaError as error:
            inside = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.path)
            raise InputError(
                f"is not valid JSON Schema: {error.message}",
                where=where(number, f"{key}.input_schema{inside}"),
            ) from error
        sound.add(form)
    for number, task in enumerate(tasks):
        _check_oracle(number, task, where)


def _check_oracle(number: int, task: Task, where: Where) -> None:
    if task.oracle is None or task.oracle.unsolvable:
        return
    tools = {tool.name: tool for environment in task.environments for tool in environment.tools}
    worlds = [e for e in task.environments if not isinstance(e, Functions)]
    tools |= {tool.name: tool for world in worlds for tool in world.user_tools}
    calls = [(f"oracle.calls[{n}]", call) for n, call in enumerate(task.oracle.calls)]
    if task.oracle.vandal is not None:
        calls.append(("oracle.vandal", task.oracle.vandal))
    for key, call in calls:
        if call.tool not in tools:
            raise InputError(
                f"the task has no tool {call.tool!r}",
                where=where(number, f"{key}.tool"),
                mend=closest(call.tool, tools),
            )
        if worlds:
            continue  # a benchmark's gold is judged by its own world, which is laxer than its schemas
        validator = Draft202012Validator(tools[call.tool].input_schema)
        error = next(iter(validator.iter_errors(call.arguments)), None)
        if error is not None:
            raise InputError(
                f"do not fit the tool's schema: {error.message}",
                where=where(number, f"{key}.arguments"),
            )


def check_grades(tasks: Sequence[Task], where: Where, validate: ValidateGrade | None) -> None:
    if validate is None:
        return
    for number, task in enumerate(tasks):
        try:
            validate(task)
        except InputError as error:
            at = where(number, error.where or "grade")
            raise InputError(error.what, where=at, mend=error.mend) from error


def _each_tool(tasks: Sequence[Task]) -> Iterator[tuple[int, str, Environment, Tool]]:
    """(number of the task, key of the tool in it, its environment, the tool); shared worlds once."""
    seen: set[int] = set()
    for number, task in enumerate(tasks):
        for e, environment in enumerate(task.environments):
            if id(environment) in seen:
                continue
            if not isinstance(environment, Functions):
                seen.add(id(environment))
                for t, tool in enumerate(environment.user_tools):
                    yield number, f"environments[{e}].user_tools[{t}]", environment, tool
            for t, tool in enumerate(environment.tools):
                yield number, f"environments[{e}].tools[{t}]", environment, tool
