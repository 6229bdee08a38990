"""The Berkeley Function-Calling Leaderboard: one suite of each single-turn category.

Claim: every entry becomes a task or is listed with the reason it did not; converting twice gives the
same bytes; and what the suite says of its gold is proven, not assumed: each oracle is run through
upstream's own checker here, and where gold itself fails it, the task says so in the checker's words
(`oracle.unsolvable`).

What upstream says of itself (version, hash, categories, weights) is data in
suites/benchmarks/bfcl.yaml. `REVISION` is ours and stands in each suite's version: results before and
after a change of what an agent is shown are never mixed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from suites.errors import InputError
from suites.home import PROJECT, dyno_home
from suites.loading_suites import collector_paused, save_suite
from suites.schema import (
    Dataset,
    Frozen,
    Functions,
    Grade,
    Message,
    Suite,
    Task,
    Tool,
)
from suites.wording import closest, read_yaml, refuse
from tasks.convert.bfcl_dialect import UnknownDialect, open_to, tools_of
from tasks.convert.bfcl_gold import accepted_values, renderings
from tasks.convert.bfcl_oracles import make_oracle, mended, oracle_job, oracle_of, reason_of
from tasks.convert.fetch import Package, Say, fetch, silent
from tasks.grade.client import Grading
from tasks.grade.graders import grader

REVISION = "1"
"""Of this converter: raised when the same entry becomes another task."""
DESCRIPTION = PROJECT / "suites" / "benchmarks" / "bfcl.yaml"


class Category(Frozen):
    """One category of the leaderboard."""

    entries: int = Field(gt=0)
    language: Literal["python", "java", "javascript"]


class Group(Frozen):
    """A part of the leaderboard's overall score."""

    weight: float = Field(gt=0)
    """Percent of the overall."""
    average: Literal["alike", "by_size"]
    parts: tuple[str | tuple[str, ...], ...]
    """Categories; a list among them is averaged first, its members alike."""


class Benchmark(Frozen):
    """suites/benchmarks/bfcl.yaml."""

    benchmark: str
    title: str
    package: str
    version: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    date: str
    licence: str
    result: str
    """What every accepted call returns."""
    categories: dict[str, Category]
    groups: dict[str, Group]


@dataclass(frozen=True)
class Converted:
    """One category as it was converted.

    Attributes:
        category: upstream's name.
        suite: the header.
        tasks: in upstream's order.
        omitted: `{"id", "reason"}` of each entry that became no task.
        unsolvable: task id to the checker's reason, where gold itself fails.
        opened: task id to the parameters whose schema contradicts gold and was opened.
    """

    category: str
    suite: Suite
    tasks: tuple[Task, ...]
    omitted: tuple[dict[str, str], ...] = ()
    unsolvable: dict[str, str] = field(default_factory=dict)
    opened: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the suite goes."""
        return dyno_home() / "suites" / self.suite.name


def describe_benchmark(path: Path = DESCRIPTION) -> Benchmark:
    """What upstream is, from its YAML.

    Raises:
        InputError: the file is wrong.
    """
    value, text = read_yaml(path)
    try:
        return Benchmark.model_validate(value)
    except ValidationError as error:
        raise refuse(error, Benchmark, path, text) from error


def convert_bfcl(
    source: Path | str | None = None,
    categories: Iterable[str] | None = None,
    say: Say = silent,
) -> list[Converted]:
    """Fetch the package if need be, convert categories and write their suites to DYNO_HOME.

    Args:
        source: a local wheel, folder or checkout instead of the pinned download.
        categories: names as upstream has them; None: all 13.
        say: called with one line of progress.

    Raises:
        InputError: an unknown category, or a source that cannot be used.
    """
    chosen = choose_categories(categories)
    package = fetch_bfcl(source, say)
    done = []
    with Conversion(package) as conversion:
        for name in chosen:
            converted = conversion.convert(name)
            write(converted)
            say(summary(converted))
            done.append(converted)
    return done


def choose_categories(names: Iterable[str] | None = None) -> list[str]:
    """Category names, checked; with `-` for `_` and a `bfcl-` before them they are known too.

    Raises:
        InputError: there is no such category.
    """
    known = describe_benchmark().categories
    if names is None:
        return list(known)
    chosen = []
    for name in names:
        plain = name.removeprefix("bfcl-").replace("-", "_")
        if plain not in known:
            raise InputError(
                f"BFCL has no single-turn category {name!r}",
                mend=closest(plain, known) or f"one of {', '.join(known)}",
            )
        chosen.append(plain)
    return list(dict.fromkeys(chosen))


def fetch_bfcl(source: Path | str | None = None, say: Say = silent) -> Package:
    """The package in the cache (see `tasks.convert.fetch`)."""
    upstream = describe_benchmark()
    return fetch(upstream.package, upstream.version, upstream.sha256, source, say)


class Conversion(contextlib.AbstractContextManager["Conversion"]):
    """One package's categories, with one grade worker for all of them."""

    def __init__(self, package: Package) -> None:
        self._package, self._grading = package, Grading()

    def present(self, names: Iterable[str]) -> list[str]:
        """All of them: a package without one of its categories is not whole."""
        return list(names)

    def convert(self, name: str) -> Converted:
        """One category (see `convert_category`)."""
        return convert_category(self._package, name, self._grading)

    def __exit__(self, *_exception: object) -> None:
        self._grading.close()


@collector_paused()
def convert_category(package: Package, category: str, grading: Grading) -> Converted:
    """One category's entries as a suite, its gold proven by the grader.

    Raises:
        InputError: the package has no such category, or its checkers cannot be used.
    """
    upstream = describe_benchmark()
    language = upstream.categories[category].language
    tasks, omitted = [], []
    unsolvable: dict[str, str] = {}
    opened: dict[str, tuple[str, ...]] = {}
    entries = {}
    for entry, answer in _entries(package, category):
        try:
            task, widened = convert_entry(entry, answer, category, language, upstream.result)
        except (UnknownDialect, ValidationError, KeyError, TypeError) as error:
            omitted.append({"id": str(entry.get("id")), "reason": f"{error!r}"})
            continue
        tasks.append(task)
        entries[task.id] = (entry, answer)
        if widened:
            opened[task.id] = widened
    jobs = (oracle_job(task, oracle_of(task).calls, package.version) for task in tasks)
    for place, grade in enumerate(grading.grade_bundles(jobs)):
        reason = reason_of(tasks[place].id, grade)
        if reason is not None:
            entry, answer = entries[tasks[place].id]
            ways = renderings(answer, entry["function"], language)
            tasks[place], reason = mended(tasks[place], ways, reason, package.version, grading)
        if reason is not None:
            unsolvable[tasks[place].id] = reason
    suite = Suite(
        name=f"bfcl-{category.replace('_', '-')}",
        version=f"{package.version}-{REVISION}",
        benchmark=upstream.benchmark,
        description=f"{upstream.title}, category {category}: {len(tasks)} tasks.",
        dataset=Dataset(
            source=package.name,
            version=package.version,
            sha256=package.sha256,
            date=upstream.date if package.pinned else None,
            licence=upstream.licence,
        ),
        grader=f"bfcl@{grader('bfcl').version(package.version)}",
    )
    return Converted(category, suite, tuple(tasks), tuple(omitted), unsolvable, opened)


@collector_paused()
def write(converted: Converted) -> str:
    """Put a converted suite into DYNO_HOME, all of it or none; its digest."""
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in converted.omitted)
    return save_suite(
        converted.folder,
        converted.suite,
        converted.tasks,
        beside={"omitted.jsonl": "".join(lines).encode()},
    )


def summary(converted: Converted) -> str:
    """One line on what became of a category."""
    parts = [f"{converted.suite.name}: {len(converted.tasks)} tasks"]
    if converted.omitted:
        parts.append(f"{len(converted.omitted)} omitted (see omitted.jsonl)")
    if converted.unsolvable:
        parts.append(f"gold fails upstream's own checker in {', '.join(converted.unsolvable)}")
    return "; ".join(parts)


# ---------------------------------------------------------------- entries


def _entries(package: Package, category: str) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Each entry with its possible answer ([] where the category has none), joined on `id`."""
    data = package.folder / package.name.replace("-", "_") / "data"
    name = f"BFCL_v4_{category}.json"
    if not (data / name).is_file():
        raise InputError(f"{package.name} {package.version} has no {name}", where=str(data))
    answers = {}
    if (data / "possible_answer" / name).is_file():
        answers = {
            line["id"]: line["ground_truth"] for line in _lines(data / "possible_answer" / name)
        }
    for entry in _lines(data / name):
        yield entry, answers.get(entry["id"], [])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                value = json.loads(line)
            except ValueError as error:
                raise InputError(f"not JSON: {error}", where=f"{path}:{number}") from error
            if not isinstance(value, dict) or "id" not in value:
                raise InputError("an entry without an `id`", where=f"{path}:{number}")
            yield value


def convert_entry(
    entry: Mapping[str, Any],
    answer: Sequence[Mapping[str, Any]],
    category: str,
    language: str,
    result: str,
) -> tuple[Task, tuple[str, ...]]:
    """One entry as a task, and the parameters whose schema was opened for its gold.

    Args:
        entry: upstream's entry: `id`, `question` (one list of messages), `function`.
        answer: upstream's `ground_truth`; [] in the relevance categories.
        category: upstream's name.
        language: which language its arguments are judged as.
        result: what accepted calls return.

    Raises:
        UnknownDialect: something in it has no translation.
    """
    if len(entry["question"]) != 1:
        raise UnknownDialect(f"{len(entry['question'])} turns in a single-turn category")
    if not answer and "relevance" not in category:
        raise UnknownDialect("no possible answer")
    functions = entry["function"]
    tools, opened = _opened_for_gold(tools_of(functions, language), answer, language)
    gold = next(renderings(answer, functions, language)) if answer else []
    task = Task(
        id=entry["id"],
        category=category,
        messages=tuple(Message(**message) for message in entry["question"][0]),
        # An entry without functions keeps its environment: the agent finds that there is no tool.
        environments=(Functions(tools=tools, result=result),),
        grade=Grade(
            grader="bfcl",
            spec={
                "category": category,
                "language": language,
                "functions": functions,
                "possible_answer": list(answer),
            },
        ),
        oracle=make_oracle(category, tools, gold),
    )
    return task, opened


def _opened_for_gold(
    tools: Sequence[Tool], answer: Sequence[Mapping[str, Any]], language: str
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools, none of which refuses a value that upstream names as acceptable."""
    if language != "python":
        return tuple(tools), ()  # every parameter is a string, and so is every acceptable value
    named = [call for gold in answer for call in gold.items()]
    done, opened = [], []
    for tool in tools:
        native = tool.native_name or tool.name
        values = (
            {name: value}
            for function, options in named
            if function == native
            for name, acceptable in options.items()
            for value in accepted_values(acceptable)
        )
        tool, names = open_to(tool, values)
        done.append(tool)
        opened += [f"{tool.name}.{name}" for name in names]
    return tuple(done), tuple(opened)
