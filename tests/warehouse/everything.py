"""Evidence of all that can become of an attempt, in several suites, sweeps and configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from made import NOISY, NULL, ORACLE, SHELL, Config, Maker, make_suite, run_all, run_as

from tasks.imports.mapping import map_simulations
from tasks.imports.writing import imported_sweeps, write_import
from tests.published import results_file, simulation, small_suite


def make_everything(home: Path) -> Maker:
    """Evidence of all that can become of an attempt, in several suites, sweeps and configurations."""
    maker = Maker(home, shards=True)
    python = make_suite(categories={"simple_python": 6})
    mixed = make_suite(
        "bfcl-mixed",
        {"multiple": 4, "parallel": 3, "irrelevance": 2},
        weights={"multiple": 2.0, "parallel": 1.0},
    )
    edited = make_suite(categories={"simple_python": 5})
    wide = make_suite("wide", {"one": 6, "many": 7, "few": 3}, benchmark="wide", difficulties=True)
    once = Config(harness="agentd-once", harness_version="9")
    fanout = Config(harness="agentd-fanout", harness_version="9", mode="fanout", call_cost=0.0003)
    unmetered = Config(
        harness="own-login", model="label", behaviour=None, unmetered=True, prices=None
    )
    refused = Config(harness="no-wire", model="noisy", refused="speaks a wire the model does not")

    first = maker.sweep(
        [python, mixed], [ORACLE, NOISY, NULL, SHELL, refused], name="first", repeats=3
    )
    second = maker.sweep([python], [NOISY, unmetered], name="second", repeats=4)
    cut = maker.sweep([mixed], [Config(harness="cut", model="noisy")], name="cut", limit=5)
    modes = maker.sweep([wide], [once, fanout], name="modes")
    maker.sweep([edited], [NOISY], name="unrun", repeats=2, seed=5)

    broken, whole = [one for one in first if one.config == SHELL], []
    for one in first:
        if one not in broken:
            whole.append(one)
    run_all(maker, whole)
    for number, one in enumerate(broken):
        _misfortune(maker, one, number)
    done = {one.key for one in first}
    run_all(maker, [one for one in second if one.key not in done], rate=0.4)
    run_all(maker, cut)
    run_all(maker, modes)
    _published(maker, home)
    return maker


def _published(maker: Maker, home: Path) -> None:
    """Two trials that somebody else published: one simulation has no task, and one was regraded."""
    suite = small_suite()
    natives = [task.grade.spec["task"] for task in suite.tasks]
    told = [
        simulation(natives[number], named=str((number + 1) % 3), trial=trial, reward=reward)
        for trial in (0, 1)
        for number, reward in ((0, 1.0), (1, 0.0))
    ]
    told.append(simulation(natives[2], named="0", trial=0, judged=False, messages=[]))
    results = results_file(home, told)
    mapping = map_simulations(results, suite.tasks)
    made = write_import(results, mapping, suite, maker.evidence)
    first = imported_sweeps(maker.evidence)[made.sweep_id]["attempts"][0]
    bundle = maker.evidence.published(first["key"])
    assert bundle is not None
    maker.grade(first["key"], bundle, False, "26.3+1", grader="tau2")
    run_as(maker, suite, Config(user_model="scripted"), solved=("1",))


def _misfortune(maker: Maker, one: Any, number: int) -> None:
    """One of all that can go wrong."""
    kinds: list[Callable[[], Any]] = [
        lambda: maker.attempt(one, True, statuses=("ok", "refused", "unknown_tool", "tool_error")),
        lambda: maker.attempt(
            one, False, ending="timeout", statuses=("timeout", "crashed", "unfinished")
        ),
        lambda: maker.attempt(
            one,
            None,
            ledger={
                "requests": 2,
                "input": 200,
                "cache_read": 0,
                "cache_write": 0,
                "output": 100,
                "reasoning": 0,
            },
        ),
        lambda: maker.attempt(one, True, graded=False),
        lambda: maker.attempt(one, error="upstream_unreachable"),
        lambda: (maker.attempt(one, error="host_lost"), maker.attempt(one, True)),
        lambda: maker.attempt(one, error="cancelled"),
        lambda: maker.interrupted(one),
        lambda: (maker.interrupted(one), maker.attempt(one, False, measured=False)),
        lambda: maker.attempt(one, True, graders=("2026.3.9+1", "2026.3.23+1")),
        lambda: maker.attempt(one, True, graders=("2026.3.9+1",)),
        lambda: maker.attempt(one, False, scopes={"attempt_strict": False, "first_response": None}),
        lambda: maker.attempt(one, True, reported={"input": 200, "output": 90, "cost": 0.1}),
        lambda: None,
    ]
    kinds[number % len(kinds)]()
