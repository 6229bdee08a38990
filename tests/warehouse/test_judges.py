"""What a judge was asked and what that cost is in the figures, once; not measured, it makes them unknown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from made import NOISY, Maker, Planned, make_suite

from warehouse.evidence import Bundle
from warehouse.load import LoadReport
from warehouse.query import connect

Load = Callable[..., LoadReport]


def plan(maker: Maker, name: str = "made", spec: str = "a") -> Planned:
    """One planned attempt, which answers to grades of that spec."""
    [planned] = maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY], name=name)
    path = maker.root / "sweeps" / f"{planned.sweep_id}.json"
    manifest = json.loads(path.read_text())
    manifest["attempts"][0]["spec_hash"] = spec
    maker.write_manifest(manifest)
    return planned


def judge(
    maker: Maker,
    planned: Planned,
    bundle: Bundle,
    number: int,
    cost: float | None,
    *,
    solved: bool | None = True,
    spec: str = "a",
) -> None:
    """A grade with the record of its judge beside it."""
    folder = maker.evidence.attempt_folder(planned.key) / f"judge-{number}"
    folder.mkdir()
    usage = {"input": 5, "cache_read": 0, "cache_write": 0, "output": 2, "reasoning": 0}
    common = {"at": 1_770_000_100.0, "turn": 0, "requestor": "judge"}
    rows = [
        {"seq": 1, "event": "request", "wire": "chat", "model": "judge", **common},
        {"seq": 2, "event": "response", "call": 1, "status": 200, "complete": True, **common}
        | {"usage": usage if cost is not None else None, "cost": cost},
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "model.jsonl").write_bytes(data)
    maker.evidence.write_grade(
        planned.key,
        {
            "grader": "bfcl",
            "grader_version": "1",
            "spec_hash": spec,
            "bundle_hash": bundle.hash,
            "graded_at": f"2026-03-01T12:00:{number:02}+00:00",
            "solved": solved,
            "score": None if solved is None else float(solved),
            "error": {"type": "judge_failed", "message": "silent"} if solved is None else None,
            "judge": {
                "model": f"judge-of-{spec}",
                "model_calls": 1,
                "usage": usage,
                "cost": cost,
                "record": f"judge-{number}",
                "sha256": hashlib.sha256(data).hexdigest(),
            },
            "checks": [],
        },
    )


def ask(maker: Maker, query: str, sweep_id: str | None = None) -> list[tuple[Any, ...]]:
    with connect(maker.warehouse, sweep_id=sweep_id) as con:
        return con.execute(query).fetchall()


FIGURES = "select judge_model, judge_cost, cost - agent_cost, spend - agent_cost from attempts"


def test_the_current_judges_cost_is_in_the_cost_and_every_judges_in_the_spend(
    maker: Maker, loaded: Load
) -> None:
    planned = plan(maker)
    bundle = maker.attempt(planned, graded=False)
    judge(maker, planned, bundle, 1, 0.5, solved=None)
    judge(maker, planned, bundle, 2, 0.25)
    assert loaded(maker).problems == ()
    row = ("judge-of-a", 0.25, pytest.approx(0.25), pytest.approx(0.75))
    assert ask(maker, FIGURES) == [row]
    solved = "select cost_per_solved - (select agent_cost from attempts) from cost_per_solved"
    assert ask(maker, solved) == [(pytest.approx(0.25),)] * 2
    calls = (
        "select judge, try, requestor, output from model_calls where requestor = 'judge' order by 1"
    )
    assert ask(maker, calls) == [(1, None, "judge", 2), (2, None, "judge", 2)]
    assert not loaded(maker).published
    loaded(maker, rebuild=True)
    assert (ask(maker, FIGURES), len(ask(maker, calls))) == ([row], 2)


def test_a_judge_that_was_not_measured_makes_cost_and_spend_unknown(
    maker: Maker, loaded: Load
) -> None:
    planned = plan(maker)
    judge(maker, planned, maker.attempt(planned, graded=False), 1, None)
    loaded(maker)
    assert ask(maker, FIGURES) == [("judge-of-a", None, None, None)]
    assert ask(maker, "select distinct cost_per_solved, spend from scorecard") == [(None, None)]


def test_an_attempt_answers_to_the_judge_of_the_sweep_that_is_looked_at(
    maker: Maker, loaded: Load
) -> None:
    older, newer = plan(maker, "1", spec="z"), plan(maker, "2", spec="a")
    assert older.key == newer.key
    bundle = maker.attempt(older, graded=False)
    judge(maker, older, bundle, 1, 0.5, solved=False, spec="z")
    judge(maker, older, bundle, 2, 0.5, solved=True, spec="a")
    loaded(maker)
    outcome = "select outcome, judge_model from attempts"
    assert ask(maker, outcome) == [("solved", "judge-of-a")]
    assert ask(maker, outcome, newer.sweep_id) == [("solved", "judge-of-a")]
    assert ask(maker, outcome, older.sweep_id) == [("failed", "judge-of-z")]


def test_a_record_that_was_edited_is_named_and_its_grade_left_out(
    maker: Maker, loaded: Load
) -> None:
    planned = plan(maker)
    judge(maker, planned, maker.attempt(planned, graded=False), 1, 0.5)
    record = maker.evidence.attempt_folder(planned.key) / "judge-1" / "model.jsonl"
    record.write_bytes(record.read_bytes().replace(b"0.5", b"0.1"))
    [(path, reason)] = loaded(maker).problems
    assert path.endswith("judge-1/model.jsonl")
    assert reason == "its hash is not the one in the grade"
    assert ask(maker, "select outcome, error_class from attempts") == [("grader_error", "ungraded")]


def test_a_judges_folder_is_no_try(maker: Maker) -> None:
    planned = plan(maker)
    judge(maker, planned, maker.attempt(planned, graded=False), 1, 0.5)
    assert [path.name for path in maker.evidence.tries(planned.key)] == ["try-0001"]
    assert maker.evidence.claim_try(planned.key).name == "try-0002"
