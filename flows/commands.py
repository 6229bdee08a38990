"""The commands that run something: each prepares in the foreground, then hands over to a Prefect flow.

The local Prefect server is started first thing and waited for last, so that its start-up passes while
files are read and benchmarks converted. A sweep with nothing left to run needs no server at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import click

from flows import server
from flows.cli import HAS_ERRORS, OK, STOPPED, say
from suites.errors import InputError
from suites.home import evidence_root
from suites.loading import adhoc_harness, load_harness, load_model, load_sweep
from suites.schema import Harness, Sweep
from tasks.plans import Plan
from warehouse.evidence import Evidence


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


def regrade(sweep: str | None, judge: str | None = None) -> int:
    """`dyno regrade`; its exit code."""
    say("grading stored evidence again")
    with prefect_ready():
        from flows.regrade import regrade as flow

        counts = _finished(flow(sweep, judge=judge, return_state=True))
    for line in counts.get("no_key", ()):
        say(line)
    if counts.get("unreadable"):
        say(
            f"{counts['unreadable']} sweep manifest(s) cannot be read; `dyno load --rebuild` names them"
        )
    order = ("solved", "failed", "grader_error", "corrupt")
    text = ", ".join(f"{counts[name]} {name}" for name in order if counts.get(name))
    if counts.get("no_task"):
        text += f"{', ' if text else ''}{counts['no_task']} left out: no task"
    if counts.get("unjudged"):
        text += f"{', ' if text else ''}{counts['unjudged']} left to judge"
    say(f"{text or 'nothing to grade'} in {counts['sweeps']} sweep(s)")
    say(f"{counts.get('new', 0)} new grades, {counts.get('unchanged', 0)} as they stood")
    for line in counts.get("agreement", ()):
        say(line)
    unsound = sum(counts.get(name) or 0 for name in ("grader_error", "corrupt", "unreadable"))
    return HAS_ERRORS if unsound else OK


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
    made = _look_before(definition, fresh, yes)
    return _run(
        definition, made, lambda flows: flows.sweep(file, fresh=fresh, **changes, return_state=True)
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
    told = located.harness.model_dump() | {"folder": located.folder}
    definition = Sweep(
        name="run",
        description=f"dyno run {suite}",
        suites=(suite,),
        harnesses=(Harness.model_validate(told | ({"name": name} if name else {})),),
        models=(load_model(model),),
        **{key: value for key, value in changes.items() if value is not None},
    )
    made = _look_before(definition, fresh, yes)
    described = definition.model_dump(mode="json")
    return _run(
        definition,
        made,
        lambda flows: flows.run_definition(suite, described, fresh, return_state=True),
    )


def controls(suites: list[str], harness: str, as_json: bool, fresh: bool, **changes: Any) -> int:
    """`dyno controls`: the exit code."""
    from flows.controls import controls_sweep, report_controls

    definition = controls_sweep(suites, harness, **changes)
    # standard output is the document's alone, where one was asked for
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        made = _look_before(definition, fresh, yes=True)
        result = _conducted(
            made,
            lambda flows: flows.controls(
                suites, harness, fresh=fresh, **changes, return_state=True
            ),
        )
    if result is None:
        return STOPPED
    return report_controls(result["sweep_id"], as_json)


def resume(sweep: str | None, yes: bool) -> int:
    """`dyno resume`: the exit code."""
    from flows import planned
    from flows.reading import newest_sweep

    sweep_id = newest_sweep(sweep, ours=True)
    say(f"resuming {sweep_id}")
    made = Plan.read(Evidence(evidence_root()), sweep_id)
    planned.confirm(made, yes)
    return _run(made.sweep, made, lambda flows: flows.resume(sweep_id, return_state=True))


def _run(definition: Sweep, made: Plan | None, call: Callable[[Any], Any]) -> int:
    """Run a flow on a plan, and print its scorecard; the exit code."""
    result = _conducted(made, call)
    return STOPPED if result is None else _report(result, definition)


def _conducted(made: Plan | None, call: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Run a flow on a plan.

    Args:
        made: the plan, where it could be made beforehand (its suites are there).
        call: calls the flow; handed the module `flows.sweep`, which imports Prefect.

    Returns:
        The sweep's summary; None where it was stopped, which has been said.
    """
    if made is not None and not _anything_left(made):
        return _finish_quietly(made)
    with prefect_ready():
        from flows import sweep as flows
        from flows.progress import Display

        with flows.displayed(Display(), made):
            state = call(flows)
        result = _finished(state)
    if result is None:
        reason, _, sweep_id = state.message.removesuffix(")").rpartition(" (")
        say(f"\n{reason}; what was done is kept. To go on: dyno resume {sweep_id}")
    return cast("dict[str, Any] | None", result)


def _anything_left(made: Plan) -> bool:
    evidence = Evidence(evidence_root())
    return any(not evidence.is_done(key) for key in made.by_key)


def _finish_quietly(made: Plan) -> dict[str, Any]:
    """A sweep of which every attempt is done: grade what is not graded, load; no Prefect is needed."""
    from tasks.grade.judging import own_host
    from tasks.grading import grade_cell
    from tasks.load import load

    evidence = Evidence(evidence_root())
    say(f"all {len(made.by_key)} attempts are done already; nothing is run")
    made.manifest["finished_at"] = time.time()
    made.write(evidence)
    with own_host() as host:
        for cell in made.cells:
            if cell.refused is None:
                grade_cell(made, cell.cell, evidence, host=host)
    load()
    planned = len(made.by_key)
    return {"sweep_id": made.sweep_id, "planned": planned, "done": planned}


def _look_before(definition: Sweep, fresh: bool, yes: bool) -> Plan | None:
    """Find mistakes, and ask before money is spent, before anything slow is started.

    Returns:
        The plan; None where its suites have to be converted first.
    """
    from flows import planned
    from flows.needs import benchmark_of, check_reachable, missing_suites
    from tasks.configurations import check_configurations
    from tasks.grade.graders import validate_grade
    from tasks.planning import make_plan

    configured = check_configurations(definition)
    missing = missing_suites(definition.suites)
    if missing:
        if any(not model.is_scripted for model in configured.called):
            raise InputError(
                f"the suite {missing[0]!r} is not converted yet, so what this would cost cannot be told",
                mend=f"first: dyno convert {benchmark_of(missing[0])}",
            )
        return None
    made = make_plan(definition, fresh=fresh, validate_grade=validate_grade)
    planned.confirm(made, yes)
    called = [model for c in planned.count(made) if c.left for model in planned.called(c.cell)]
    check_reachable({model.name: model for model in called}.values())
    return made


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
    ungraded = reading.ungraded(result["sweep_id"])
    if ungraded:
        say(f"{ungraded} of {result['planned']} attempts could not be graded; they are in no rate.")
        say(
            '  why: dyno sql "select error_class, error_message, count(*) from attempts group by all"'
        )
        say("  again: dyno regrade")
    say(next_commands(definition, result["sweep_id"]))
    return HAS_ERRORS if missing or ungraded else OK
