"""Suites from disk, refused before anything is spent on them, and back to disk.

A suite is a folder (`suite.yaml` and `tasks.jsonl`, as converters write it) or one YAML file written by
hand with its `tasks` inline. Either is named by a path, or by its name: first among the converted ones
in DYNO_HOME, then among those that ship with dyno.

    DYNO_HOME/suites/bfcl-multiple/   suite.yaml  tasks.jsonl  omitted.jsonl  digest
    suites/benchmarks/hello-tools.yaml  hello_tools.py

Everything that cannot be run is refused here with the file, the line and the key. Checking every tool's
schema against the metaschema takes seconds for the large converted suites, so `save_suite`, which is for
suites that have passed, leaves the suite's `digest` beside it: as long as it is that suite's digest still,
the check is known to have passed. Edit a converted suite and it is checked in full.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from suites.canonical import canonical_json, file_sha256
from suites.checking_suites import ValidateGrade, check_grades, check_runs, check_tools, check_whole
from suites.drafts import draft_of
from suites.errors import InputError
from suites.home import PROJECT, dyno_home
from suites.schema import Environment, Functions, LoadedSuite, Shared, Suite, Task
from suites.wording import closest, explain, place, read_yaml, refuse

SHIPPED = PROJECT / "suites" / "benchmarks"


def load_suite(ref: str | Path, validate_grade: ValidateGrade | None = None) -> LoadedSuite:
    """A suite by name or path, ready to be run.

    Args:
        ref: a suite's name, its folder, or its YAML file.
        validate_grade: checks each task's `grade` (`tasks.grade.graders.validate_grade`); graders
            live above this package, so it is handed in.

    Raises:
        InputError: there is no such suite, or it cannot be run.
    """
    path = find_suite(ref)
    with collector_paused():
        load = _load_folder if path.is_dir() else _load_file
        return load(path, validate_grade)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Run a block that makes many long-lived values without cycles; looking for cycles doubles its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def list_suites() -> dict[str, Path]:
    """The suites that can be named: name to folder or file."""
    found: dict[str, Path] = {}
    if SHIPPED.is_dir():
        found |= {path.stem: path for path in sorted(SHIPPED.glob("*.yaml")) if _has_tasks(path)}
    converted = dyno_home() / "suites"
    if converted.is_dir():
        for folder in sorted(converted.iterdir()):
            if not folder.name.startswith(".") and (folder / "suite.yaml").is_file():
                found[folder.name] = folder
    return found


def find_suite(ref: str | Path) -> Path:
    """The folder or file a reference means.

    Raises:
        InputError: there is none.
    """
    text = str(ref)
    if isinstance(ref, Path) or "/" in text or text.startswith((".", "~")) or text.endswith("ml"):
        path = Path(ref).expanduser()
        if path.name == "suite.yaml" and path.is_file():
            return path.parent
        if path.is_file() or (path / "suite.yaml").is_file():
            return path
        raise InputError(
            "there is no suite here",
            where=text,
            mend="a suite is a folder with suite.yaml and tasks.jsonl, or one YAML file with `tasks`",
        )
    known = list_suites()
    if text in known:
        return known[text]
    raise InputError(f"there is no suite named {text!r}", mend=_mend_name(text, known))


def save_suite(
    folder: Path,
    suite: Suite,
    tasks: Sequence[Task],
    beside: Mapping[str, bytes] | None = None,
) -> str:
    """Write a suite that passes the checks as a folder; the same suite gives the same bytes.

    All of it or none: a draft beside it is filled and renamed over what was there. The code that its
    tools run goes with it, and its digest, by which `load_suite` knows that it was checked.

    Args:
        folder: where it goes.
        suite: the header.
        tasks: in their order.
        beside: further files, by name.

    Returns:
        The suite's digest.

    Raises:
        InputError: the folder cannot be written.
    """
    header = suite.model_dump(mode="json", exclude_defaults=True)
    code = run_files(tasks)
    lines: list[bytes] = []

    def kept() -> Iterator[dict[str, Any]]:
        for value in _plain_tasks(suite, tasks):
            lines.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
            yield value

    found = _digest(header, kept(), code)
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=100)
    files = {
        "suite.yaml": text.encode(),
        "tasks.jsonl": b"\n".join(lines) + b"\n",
        "digest": f"{found}\n".encode(),
        **{relative: path.read_bytes() for relative, path in code.items()},
        **(beside or {}),
    }
    with draft_of(folder, replace=True) as draft:
        for relative, data in files.items():
            (draft / relative).parent.mkdir(parents=True, exist_ok=True)
            (draft / relative).write_bytes(data)
    return found


def suite_digest(suite: Suite, tasks: Sequence[Task]) -> str:
    """sha256 over the header, all tasks and the code their tools run; no path of this machine in it.

    Fields at their default are left out, so that a new optional field does not change old digests.
    """
    header = suite.model_dump(mode="json", exclude_defaults=True)
    return _digest(header, _plain_tasks(suite, tasks), run_files(tasks))


def _digest(
    header: dict[str, Any], tasks: Iterable[dict[str, Any]], code: Mapping[str, Path]
) -> str:
    """Over canonical lines, one after the other: a list of all of them would double the time."""
    found = hashlib.sha256(canonical_json(header) + b"\n")
    for task in tasks:
        found.update(canonical_json(task) + b"\n")
    if code:
        found.update(canonical_json({name: file_sha256(path) for name, path in code.items()}))
    return found.hexdigest()


def run_files(tasks: Sequence[Task]) -> dict[str, Path]:
    """The code files that the tasks' tools run: path beside the suite to path on this machine."""
    return {
        relative: Path(environment.root) / relative
        for task in tasks
        for environment in task.environments
        if isinstance(environment, Functions) and environment.root is not None
        for tool in environment.tools
        if tool.run is not None
        for relative in (tool.run.partition(":")[0],)
    }


# ---------------------------------------------------------------- reading


def _load_folder(folder: Path, validate_grade: ValidateGrade | None) -> LoadedSuite:
    suite, tasks, lines = _read_folder(folder)
    tasks = _rooted(tasks, folder)

    def where(number: int, key: str) -> str:
        at = f"{folder / 'tasks.jsonl'}:{lines[number]}"
        return f"{at}: {key}" if key else at

    check_whole(suite, tasks, str(folder / "suite.yaml"), where)
    check_runs(tasks, where)
    found = suite_digest(suite, tasks)
    checked = folder / "digest"
    if not checked.is_file() or checked.read_text().strip() != found:
        check_tools(tasks, where)
    check_grades(tasks, where, validate_grade)
    return LoadedSuite.model_construct(
        suite=suite, tasks=tuple(tasks), digest=found, path=str(folder)
    )


def _read_folder(folder: Path) -> tuple[Suite, list[Task], list[int]]:
    """Header, tasks, and the line each task stands on."""
    header = folder / "suite.yaml"
    value, text = read_yaml(header)
    try:
        suite = Suite.model_validate(value)
    except ValidationError as error:
        raise refuse(error, Suite, header, text) from error
    path = folder / "tasks.jsonl"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    tasks, lines = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            tasks.append(_filled_in(Task.model_validate_json(line), suite.shared))
        except ValidationError as error:
            keys, what, mend = explain(error, Task)
            at = place(path, "", keys) if keys else str(path)
            raise InputError(
                what, where=at.replace(str(path), f"{path}:{number}"), mend=mend
            ) from error
        lines.append(number)
    return suite, tasks, lines


def _load_file(path: Path, validate_grade: ValidateGrade | None) -> LoadedSuite:
    value, text = read_yaml(path)
    if not isinstance(value, dict) or "tasks" not in value:
        raise InputError(
            "is not a suite: it has no `tasks`", where=str(path), mend=_mend_file(value)
        )
    listed = value.pop("tasks")
    if not isinstance(listed, list):
        raise InputError("must be a list", where=place(path, text, ["tasks"]))
    value.setdefault("dataset", {"source": path.name, "version": str(value.get("version", ""))})
    try:
        suite = Suite.model_validate(value)
    except ValidationError as error:
        raise refuse(error, Suite, path, text) from error
    tasks = []
    for number, entry in enumerate(listed):
        try:
            tasks.append(_filled_in(Task.model_validate(entry), suite.shared))
        except ValidationError as error:
            raise refuse(error, Task, path, text, ["tasks", number]) from error
    tasks = _rooted(tasks, path.parent)

    def where(number: int, key: str) -> str:
        keys = [int(k) if k.isdigit() else k for k in re.findall(r"[^.\[\]]+", key)]
        return place(path, text, ["tasks", number, *keys])

    check_whole(suite, tasks, str(path), where)
    check_runs(tasks, where)
    check_tools(tasks, where)
    check_grades(tasks, where, validate_grade)
    return LoadedSuite(
        suite=suite, tasks=tuple(tasks), digest=suite_digest(suite, tasks), path=str(path)
    )


def _rooted(tasks: list[Task], folder: Path) -> list[Task]:
    """The tasks, with the folder set where their tools run code."""

    def rooted(environment: Environment) -> Environment:
        if not isinstance(environment, Functions) or not any(t.run for t in environment.tools):
            return environment
        return environment.model_copy(update={"root": str(folder.absolute())})

    return [
        task.model_copy(update={"environments": tuple(map(rooted, task.environments))})
        if any(tool.run for environment in task.environments for tool in environment.tools)
        else task
        for task in tasks
    ]


# ---------------------------------------------------------------- forms and names


def _filled_in(task: Task, shared: Shared | None) -> Task:
    """The task with the suite's shared fields, where it states none of its own."""
    if shared is None:
        return task
    missing = {
        name: getattr(shared, name)
        for name in Shared.model_fields.keys() & shared.model_fields_set
        if name not in task.model_fields_set
    }
    return task.model_copy(update=missing)


def _plain_tasks(suite: Suite, tasks: Iterable[Task]) -> Iterator[dict[str, Any]]:
    return (_plain(task, suite.shared) for task in tasks)


def _plain(task: Task, shared: Shared | None = None) -> dict[str, Any]:
    """A task as JSON values: no field at its default, no path of this machine, kinds always named.

    What the suite states for all tasks is left out; what differs from it is written, default or not.
    """
    alike: set[str] = set()
    differ: set[str] = set()
    for name in (Shared.model_fields.keys() & shared.model_fields_set) if shared else ():
        same = getattr(task, name) == getattr(shared, name)
        (alike if same else differ).add(name)
    value = task.model_dump(mode="json", exclude_defaults=True, exclude=alike)
    value |= task.model_dump(mode="json", include=differ)
    for environment in value.get("environments", ()):
        environment.pop("root", None)
        environment["kind"] = environment.get("kind", "functions")
    return value


def _has_tasks(path: Path) -> bool:
    """True for a suite; a benchmark's description lies in the same folder."""
    return any(line.startswith("tasks:") for line in path.read_text("utf-8").splitlines())


def _mend_name(name: str, known: Mapping[str, Path]) -> str:
    categories = {
        (path.stem, category): described
        for path in sorted(SHIPPED.glob("*.yaml"))
        if not _has_tasks(path)
        for category, described in read_yaml(path)[0].get("categories", {}).items()
    }
    named = {
        f"{stem}-{category}".replace("_", "-"): (stem, category) for stem, category in categories
    }
    convertible = {suite: stem for suite, (stem, _) in named.items()}
    if name in convertible:
        command = f"dyno convert {convertible[name]}"
        if categories[named[name]].get("tasks", 0) is None:
            return f"the package does not have it: run `{command} --source PATH/TO/A/CHECKOUT`"
        return f"it is not converted yet: run `{command}`"
    if name in convertible.values():
        names = ", ".join(other for other in convertible if convertible[other] == name)
        return f"that is a benchmark; its suites are {names} (made by `dyno convert {name}`)"
    near = closest(name, {**known, **convertible})
    return near or f"known: {', '.join(known)}"


def _mend_file(value: Any) -> str:
    if isinstance(value, dict) and "categories" in value:
        return (
            f"it describes a benchmark; its suites are made by `dyno convert {value['benchmark']}`"
        )
    return "a suite has `name`, `version`, `benchmark` and `tasks`; see suites/benchmarks/hello-tools.yaml"
