"""Evidence of all that can become of an attempt, in several suites, sweeps and configurations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from made import NOISY, NULL, ORACLE, SHELL, Config, Maker, make_suite, run_all


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
    unmetered = Config(
        harness="own-login", model="label", behaviour=None, unmetered=True, prices=None
    )
    refused = Config(harness="no-wire", model="noisy", refused="speaks a wire the model does not")

    first = maker.sweep(
        [python, mixed], [ORACLE, NOISY, NULL, SHELL, refused], name="first", repeats=3
    )
    second = maker.sweep([python], [NOISY, unmetered], name="second", repeats=4)
    cut = maker.sweep([mixed], [Config(harness="cut", model="noisy")], name="cut", limit=5)
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
    return maker


def _misfortune(maker: Maker, one: Any, number: int) -> None:
    """One of all that can go wrong."""
    kinds: list[Callable[[], Any]] = [
        lambda: maker.attempt(one, True, statuses=("ok", "refused", "unknown_tool", "tool_error")),
        lambda: maker.attempt(
            one, False, ending="timeout", statuses=("timeout", "crashed", "unfinished")
        ),
        lambda: maker.attempt(one, None),
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
