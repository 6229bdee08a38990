"""Converting benchmarks to suites, as a flow with a task a category."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.needs import benchmark_of, missing_suites
from suites.errors import InputError
from tasks.convert import bfcl, tau2
from tasks.convert.fetch import Package, Say
from tasks.convert.tau2_asking import CannotLoad


class Conversion(Protocol):
    """One package, ready to be converted."""

    def present(self, names: Iterable[str]) -> list[str]: ...

    def convert(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Converter:
    """What a benchmark's module in tasks/convert/ offers.

    Attributes:
        choose: categories by name, checked; None: all.
        fetch: the package in the cache.
        conversion: opens a package.
        write: puts what was converted into DYNO_HOME.
        summary: what it came to, in a line.
        announce: what is said before suites are converted because a sweep names them.
        whole: True where one missing suite has all of them converted.
    """

    choose: Callable[[Iterable[str] | None], list[str]]
    fetch: Callable[[str | None, Say], Package]
    conversion: Callable[[Package], AbstractContextManager[Conversion]]
    write: Callable[[Any], str]
    summary: Callable[[Any], str]
    announce: Callable[[Collection[str]], str]
    whole: bool


CONVERTERS = {
    "bfcl": Converter(
        bfcl.choose_categories,
        bfcl.fetch_bfcl,
        bfcl.Conversion,
        bfcl.write,
        bfcl.summary,
        lambda _: "converting BFCL (13 categories, 3,641 entries)",
        whole=True,
    ),
    "tau2": Converter(
        tau2.choose_categories,
        tau2.fetch_tau2,
        tau2.Conversion,
        tau2.write,
        tau2.summary,
        lambda wanted: f"converting τ²-bench ({', '.join(wanted)})",
        whole=False,
    ),
}


@task(name="fetch", task_run_name="fetch {benchmark}", cache_policy=NO_CACHE)
def fetch(benchmark: str, source: str | None, say: Say) -> Package:
    """The benchmark's package, verified and unpacked."""
    return CONVERTERS[benchmark].fetch(source, say)


@task(name="convert", task_run_name="convert {category}", cache_policy=NO_CACHE)
def convert_category(benchmark: str, category: str, conversion: Conversion, named: bool) -> str:
    """One category to one suite on disk; what it came to, in a line.

    Args:
        benchmark: a key of `CONVERTERS`.
        category: its name.
        conversion: the open package.
        named: True where somebody asked for this category, so that it must come to something.
    """
    converter = CONVERTERS[benchmark]
    try:
        converted = conversion.convert(category)
    except CannotLoad as error:
        if named:
            raise
        return f"{benchmark}-{category}: not converted: {error}"
    converter.write(converted)
    return converter.summary(converted)


@flow(name="convert", flow_run_name="convert {benchmark}", log_prints=False)
def convert(
    benchmark: str = "bfcl",
    source: str | None = None,
    categories: list[str] | None = None,
) -> list[str]:
    """Turn a benchmark's dataset into suites under DYNO_HOME.

    Args:
        benchmark: `bfcl` or `tau2`.
        source: a local wheel, folder or checkout instead of the pinned package.
        categories: names as the benchmark has them; none: all.
    """
    return convert_with(benchmark, source, categories, _logger())


def convert_with(
    benchmark: str,
    source: str | None,
    categories: Iterable[str] | None,
    say: Say,
) -> list[str]:
    """As `convert`, inside whatever flow is running, telling `say` as it goes.

    Raises:
        InputError: an unknown benchmark or category, or a source that cannot be used.
    """
    if benchmark not in CONVERTERS:
        raise InputError(
            f"there is no benchmark {benchmark!r} to convert",
            mend=f"known: {', '.join(CONVERTERS)}",
        )
    converter = CONVERTERS[benchmark]
    chosen = converter.choose(categories)
    package = fetch(benchmark, source, say)
    lines = []
    with converter.conversion(package) as conversion:
        for category in chosen if categories is not None else conversion.present(chosen):
            line = convert_category(benchmark, category, conversion, categories is not None)
            say(line)
            lines.append(line)
    return lines


def convert_missing(suites: Iterable[str], say: Say) -> None:
    """Convert what is missing of these suites, and with one of BFCL's all of them: that takes seconds."""
    wanted = sorted(missing_suites(suites), key=benchmark_of)
    for benchmark, names in groupby(wanted, key=benchmark_of):
        converter, missing = CONVERTERS[benchmark], list(names)
        converter.choose(missing)  # a misspelt name is refused before anything is fetched
        say(converter.announce(missing))
        convert_with(benchmark, None, None if converter.whole else missing, lambda _: None)


def _logger() -> Say:
    if _say is not None:
        return _say
    from prefect.logging import get_run_logger

    return get_run_logger().info


_say: Say | None = None


def said_by(say: Say) -> None:
    """Where flows of this process tell what they do (the command line's own output)."""
    global _say
    _say = say


__all__ = ["convert", "convert_missing", "convert_with", "said_by"]
