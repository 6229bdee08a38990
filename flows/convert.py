"""Converting benchmarks to suites, as a flow with a task a category."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.needs import missing_suites
from suites.errors import InputError
from tasks.convert import bfcl
from tasks.convert.fetch import Package
from tasks.grade.client import Grading

BENCHMARKS = ("bfcl",)


@task(name="fetch", task_run_name="fetch {benchmark}", cache_policy=NO_CACHE)
def fetch(benchmark: str, source: str | None, say: Callable[[str], None]) -> Package:
    """The benchmark's package, verified and unpacked."""
    return bfcl.fetch_bfcl(source, say)


@task(name="convert", task_run_name="convert {category}", cache_policy=NO_CACHE)
def convert_category(package: Package, category: str, grading: Grading) -> str:
    """One category to one suite on disk; what it came to, in a line."""
    converted = bfcl.convert_category(package, category, grading)
    bfcl.write(converted)
    return bfcl.summary(converted)


@flow(name="convert", flow_run_name="convert {benchmark}", log_prints=False)
def convert(
    benchmark: str = "bfcl",
    source: str | None = None,
    categories: list[str] | None = None,
) -> list[str]:
    """Turn a benchmark's dataset into suites under DYNO_HOME.

    Args:
        benchmark: `bfcl`.
        source: a local wheel, folder or checkout instead of the pinned package.
        categories: names as the benchmark has them; none: all.
    """
    return convert_with(benchmark, source, categories, _logger())


def convert_with(
    benchmark: str,
    source: str | None,
    categories: Iterable[str] | None,
    say: Callable[[str], None],
) -> list[str]:
    """As `convert`, inside whatever flow is running, telling `say` as it goes.

    Raises:
        InputError: an unknown benchmark or category, or a source that cannot be used.
    """
    if benchmark not in BENCHMARKS:
        raise InputError(
            f"there is no benchmark {benchmark!r} to convert",
            mend=f"known: {', '.join(BENCHMARKS)}",
        )
    chosen = bfcl.choose_categories(categories)
    package = fetch(benchmark, source, say)
    lines = []
    with Grading() as grading:
        for category in chosen:
            line = convert_category(package, category, grading)
            say(line)
            lines.append(line)
    return lines


def convert_missing(suites: Iterable[str], say: Callable[[str], None]) -> None:
    """Convert BFCL if one of these suites is missing; all of it, since it takes seconds."""
    wanted = missing_suites(suites)
    if not wanted:
        return
    bfcl.choose_categories(wanted)  # a misspelt name is refused before anything is fetched
    say("converting BFCL (13 categories, 3,641 entries)")
    convert_with("bfcl", None, None, lambda _: None)


def _logger() -> Callable[[str], None]:
    if _say is not None:
        return _say
    from prefect.logging import get_run_logger

    return get_run_logger().info


_say: Callable[[str], None] | None = None


def said_by(say: Callable[[str], None]) -> None:
    """Where flows of this process tell what they do (the command line's own output)."""
    global _say
    _say = say


__all__ = ["convert", "convert_missing", "convert_with", "said_by"]
