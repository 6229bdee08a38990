"""`dyno import`: what somebody else published, as attempts beside our own."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

from flows.cli import say
from suites.errors import InputError
from suites.home import evidence_root
from suites.loading_suites import list_suites, load_suite
from suites.schema import LoadedSuite
from tasks.imports.mapping import Mapped, Mapping, map_simulations
from tasks.imports.results import Results, read_results
from tasks.imports.writing import Imported, write_import
from warehouse.evidence import Evidence

FORMATS = ("tau2",)


def import_file(form: str, file: str, name: str | None) -> None:
    """Import a results file, and print what its simulations are of.

    Args:
        form: whose format it has: `tau2`.
        file: its path.
        name: what the agent is called in results; None: as the file calls it.

    Raises:
        InputError: no such format, no results file, or one of a domain that there is no suite of.
    """
    from tasks.load import load

    if form not in FORMATS:
        raise InputError(f"there is no import from {form!r}", mend=f"known: {', '.join(FORMATS)}")
    path = Path(file).expanduser()
    results = read_results(path)
    suite = _suite(results)
    mapping = map_simulations(results, suite.tasks)
    print_mapping(results, mapping, suite)
    made = write_import(results, mapping, suite, Evidence(evidence_root()), name)
    load()
    _say_what_came_of_it(made, mapping, path)


def _suite(results: Results) -> LoadedSuite:
    """The suite of the file's domain, converted first where it is not there yet.

    Of several (telecom and its parts) the smallest that has most of the file's tasks.

    Raises:
        InputError: the benchmark has no such domain.
    """
    from tasks.convert.tau2 import describe_benchmark

    offered = describe_benchmark().categories
    named = sorted(
        (name for name, category in offered.items() if category.domain == results.domain),
        key=lambda name: (name != results.domain, len(name)),
    )
    if not named:
        domains = ", ".join(sorted({category.domain for category in offered.values()}))
        raise InputError(
            f"is {results.domain!r}, and no suite is made of such a domain",
            where=f"{results.path}: info.environment_info.domain_name",
            mend=f"known: {domains}",
        )
    asked = {str(task["id"]) for task in results.tasks} or {
        simulation.named for simulation in results.simulations
    }
    present = list_suites()
    best: tuple[int, int, LoadedSuite] | None = None
    for name in named:
        reference = f"tau2-{name}"
        if reference not in present:
            if name != named[0]:
                continue
            _convert(name)
        suite = load_suite(reference)
        has = {str(task.grade.spec["task"]["id"]) for task in suite.tasks}
        # Most of the file's tasks first, then the smallest suite.
        rank = (len(asked & has), -len(has))
        if best is None or rank > best[:2]:
            best = (*rank, suite)
    assert best is not None
    return best[2]


def _convert(category: str) -> None:
    from flows.commands import convert

    convert("tau2", None, [category])


# ---------------------------------------------------------------- what is told


def print_mapping(results: Results, mapping: Mapping, suite: LoadedSuite) -> None:
    """A line a simulation whose task is not the one it names, and counts of all."""
    say(
        f"{results.path.name}: {len(results.simulations)} simulations, {results.trials} trial(s) of "
        f"{results.domain}; τ² commit {results.commit}"
    )
    say(f"suite {suite.suite.name} {suite.suite.version}: {len(suite.tasks)} tasks")
    if mapping.changed or mapping.foreign:
        say(
            f"the file's tasks are not all the suite's: {len(mapping.changed)} differ"
            f"{_some(mapping.changed)}, {len(mapping.foreign)} are not in it{_some(mapping.foreign)}; "
            "it was made with another version of the dataset"
        )
    if mapping.names_hold:
        say("no simulation contradicts the task it names")
    else:
        wrong = sum(one.renamed for one in mapping.all)
        say(f"the file's task ids are not to be trusted: {wrong} simulations are of another task\n")
        say(f"{'simulation':>10}  {'named':>8}  {'task':>8}  by")
        for one in mapping.all:
            say(_line(one))
        say("")
    counts = Counter(one.by for one in mapping.mapped)
    told = "; ".join(f"{count} by {by}" for by, count in counts.most_common())
    say(f"mapped {len(mapping.mapped)} of {len(mapping.all)}" + (f": {told}" if told else ""))
    lost = [one for one in mapping.all if one.task is None]
    if lost:
        say(
            f"{len(lost)} without a task; they count in the published figure, and are left out of "
            "regrading and comparing:"
        )
        for one in lost:
            say(f"  simulation {one.simulation.number} (named {one.simulation.named}): {one.by}")


def _line(one: Mapped) -> str:
    mark = " " if one.task is not None and not one.renamed else "*"
    return f"{one.simulation.number:>10}  {one.simulation.named:>8}  {one.task or '?':>8}{mark} {one.by}"


def _some(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    return f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})"


def _say_what_came_of_it(made: Imported, mapping: Mapping, path: Path) -> None:
    if made.again:
        redone = f"; {made.new} attempts were missing and are there again" if made.new else ""
        say(f"this file was imported before, as {made.sweep_id}: nothing is new{redone}")
    else:
        say(f"imported {made.new} attempts as {made.sweep_id}")
    say(
        "  next: dyno scorecard · "
        + (f"dyno regrade {made.sweep_id} · " if mapping.mapped else "")
        + f"dyno show {_example(mapping)}"
    )


def _example(mapping: Mapping) -> str:
    return shlex.quote(mapping.mapped[0].task or "") if mapping.mapped else "ATTEMPT"
