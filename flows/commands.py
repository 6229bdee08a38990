"""The commands that run something: each prepares in the foreground, then hands over to a Prefect flow.

The local Prefect server is started first thing and waited for last, so that its start-up passes while
files are read and benchmarks converted. A sweep with nothing left to run needs no server at all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from flows import server
from flows.cli import HAS_ERRORS, OK, STOPPED, say
from suites.errors import InputError
from suites.home import evidence_root
from suites.loading import Located, adhoc_harness, load_harness, load_model, load_sweep
from suites.schema import Sweep


@contextmanager
def prefect_ready(say: Callable[[str], None] = say) -> Iterator[None]:
    """Prefect is configured, quiet, and has a server, while this lasts."""
    server.configure_client()
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"  # what we say is enough
    with server.client_registered():
        configured = server.configured_url()
        if configured and not server.answers(configured, seconds=10):
            raise InputError(
                f"PREFECT_API_URL is {configured!r}, and no Prefect API answers there",
                mend="start that server, or unset PREFECT_API_URL to use a local one",
            )
        wait = server.start(say)
        import prefect.main  # noqa: F401  imported while the server starts: both take seconds

        try:
            wait()
        except RuntimeError as error:
            raise InputError(
                str(error), mend="set PREFECT_API_URL to a server of yours, or see `dyno doctor`"
            ) from error
        yield


def _finished(state: Any) -> Any:
    """A flow's result. Its InputError is raised as it is; None where it was cancelled."""
    if state.is_cancelled():
        return None
    return state.result()


def convert(benchmark: str, source: str | None, categories: list[str] | None) -> None:
    """`dyno convert`."""
    say(f"dyno convert {benchmark}")
    with prefect_ready():
        from flows.convert import convert as flow
        from flows.convert import said_by

        said_by(lambda text: say(f"  {text}"))
        _finished(flow(benchmark, source, categories, return_state=True))


def regrade(sweep: str | None) -> None:
    """`dyno regrade`."""
    say("grading stored evidence again")
    with prefect_ready():
        from flows.regrade import regrade as flow

        counts = _finished(flow(sweep, return_state=True))
    order = ("solved", "failed", "grader_error", "corrupt")
    text = ", ".join(f"{counts[name]} {name}" for name in order if counts.get(name))
    say(f"{text or 'nothing to grade'} in {counts['sweeps']} sweep(s)")
    say(f"{counts.get('new', 0)} new grades, {counts.get('unchanged', 0)} as they stood")


# ---------------------------------------------------------------- planning


def _changed(file: str, changes: dict[str, Any]) -> Sweep:
    from tasks.planning import with_changes

    return with_changes(load_sweep(file), **changes)


def plan(file: str, as_json: bool, fresh: bool, **changes: Any) -> None:
    """`dyno plan`."""
    from flows import planned
    from tasks.grade.graders import validate_grade
    from tasks.planning import make_plan

    made = make_plan(
        _changed(file, changes), fresh=fresh, validate_grade=validate_grade, need_keys=False
    )
    if as_json:
        click.echo(json.dumps(made.manifest, indent=1, ensure_ascii=False))
        return
    planned.print_plan(made)


# ---------------------------------------------------------------- running


def sweep(file: str, yes: bool, fresh: bool, **changes: Any) -> int:
    """`dyno sweep`: the exit code."""
    definition = _changed(file, changes)
    return _run(
        definition, None, fresh, yes, resume=f"dyno sweep {file}", file=file, changes=changes
    )


def run(
    suite: str,
    agent: str | None,
    harness: str | None,
    model: str,
    name: str | None,
    yes: bool,
    fresh: bool,
    **changes: Any,
) -> int:
    """`dyno run`: the exit code."""
    if (agent is None) == (harness is None):
        raise InputError("give either --agent or --harness", mend="--agent 'my-agent {prompt}'")
    located = load_harness(harness) if harness else adhoc_harness(agent or "")
    if name:
        changed = located.harness.model_copy(update={"name": name})
        located = Located(
            harness=type(changed).model_validate(changed.model_dump()), folder=located.folder
        )
    loaded = load_model(model)
    definition = Sweep(
        name="run",
        description=f"dyno run {suite}",
        suites=(suite,),
        harnesses=(located.harness,),
        models=(loaded,),
        **{key: value for key, value in changes.items() if value is not None},
    )
    return _run(definition, located, fresh, yes, resume="the same command")


def _run(
    definition: Sweep,
    located: Located | None,
    fresh: bool,
    yes: bool,
    *,
    resume: str,
    file: str | None = None,
    changes: dict[str, Any] | None = None,
) -> int:
    from flows import planned

    _look_before(definition, located, yes, planned.confirm)
    with prefect_ready():
        from flows.progress import Display
        from flows.sweep import displayed, run_definition
        from flows.sweep import sweep as sweep_flow

        with displayed(Display()):
            if file is not None:
                state: Any = sweep_flow(file, fresh=fresh, **(changes or {}), return_state=True)
            else:
                assert located is not None
                state = run_definition(
                    definition.description.removeprefix("dyno run "),
                    definition.model_dump(mode="json"),
                    located.folder,
                    fresh,
                    return_state=True,
                )
        result = _finished(state)
    if result is None:
        say(f"\n{state.message}; what was done is kept. To go on: {resume}")
        return STOPPED
    return _report(result, definition)


def _look_before(
    definition: Sweep, located: Located | None, yes: bool, confirm: Callable[..., None]
) -> None:
    """Find mistakes, and ask before money is spent, before anything slow is started."""
    from flows.needs import check_reachable, missing_suites
    from flows.planned import count
    from tasks.grade.graders import validate_grade
    from tasks.planning import check_configurations, make_plan

    check_configurations(definition, [located] if located else None)
    if missing_suites(definition.suites):
        if any(not load_model(m).is_scripted for m in definition.models):
            raise InputError(
                f"the suite {missing_suites(definition.suites)[0]!r} is not converted yet, so what this "
                "would cost cannot be told",
                mend="first: dyno convert bfcl",
            )
        return
    made = make_plan(
        definition, harnesses=[located] if located else None, validate_grade=validate_grade
    )
    confirm(made, yes)
    planned_models = {c.cell.model: c.cell.model_definition for c in count(made) if c.left}
    check_reachable(planned_models.values())


def _report(result: dict[str, Any], definition: Sweep) -> int:
    """Print the scorecard and what to do next."""
    from flows import reading
    from flows.newcomer import next_commands

    reading.scorecard(result["sweep_id"], None, None)
    models = [load_model(model) for model in definition.models]
    oracles = [model.name for model in models if model.behaviour == "oracle"]
    refused = reading.gold_failures(result["sweep_id"], oracles) if oracles else ""
    if refused:
        say(refused)
    missing = result["planned"] - result["done"]
    if missing:
        say(f"{missing} of {result['planned']} attempts have no result (infrastructure errors).")
        say('  why: dyno sql "select error_class, detail, count(*) from tries group by all"')
    say(next_commands(definition, result["sweep_id"]))
    return HAS_ERRORS if missing else OK


def is_interactive() -> bool:
    """True where somebody can be asked."""
    return sys.stdin.isatty()


def evidence_there() -> bool:
    """True once any sweep has been run."""
    return (evidence_root() / "sweeps").is_dir()
