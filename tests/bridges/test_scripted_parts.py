"""A model that does the part it is asked for: the same gold, whoever does it and in how many contexts."""

from __future__ import annotations

import json
from typing import Any

from bridges.scripted_behaviours import Asked, Script
from bridges.scripted_parts import next_of_part

TOOLS = ("read", "enter")
GOLD = [
    {"tool": tool, "arguments": {"ledger": ledger, **({"sum": n} if tool == "enter" else {})}}
    for n, ledger in enumerate(["A1", "A2", "A10"], 1)
    for tool in TOOLS
]


def script(seed: int = 1, **settings: Any) -> Script:
    return Script.of(
        {
            "behaviour": "parts",
            "seed": seed,
            "settings": {"part": "ledger", **settings},
            "oracle": {"calls": GOLD, "answer": "All done."},
        }
    )


def played(
    prompt: str, played_by: Script | None = None
) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """All calls that are made for a prompt in one loop, and what is said in the end."""
    calls: list[tuple[str, dict[str, Any]]] = []
    while True:
        asked = Asked(made=len(calls), assistants=len(calls), last_user=prompt, tools=TOOLS)
        step = next_of_part(played_by or script(), asked)
        if not step.calls:
            return calls, step.text or ""
        (call,) = step.calls
        calls.append((call.tool, json.loads(call.arguments)))


def gold_of(*parts: str) -> list[tuple[str, dict[str, Any]]]:
    return [(g["tool"], g["arguments"]) for g in GOLD if g["arguments"]["ledger"] in parts]


def test_whole_task_is_done_in_one_loop_a_call_at_a_time() -> None:
    assert played("Settle A1, A2 and A10.") == (gold_of("A1", "A2", "A10"), "All done.")


def test_part_is_done_and_no_other() -> None:
    assert played("Settle A10, please") == (gold_of("A10"), "Done: A10.")
    assert played("Settle XA1 and A22") == ([], "Done: nothing.")


def test_plan_has_a_part_of_its_own_for_each_that_is_named() -> None:
    asked = Asked(made=0, assistants=0, last_user="Split up: A1 and A10.", tools=())
    parts = json.loads(next_of_part(script(), asked).text or "")["parts"]
    assert [played(part)[0] for part in parts] == [gold_of("A1"), gold_of("A10")]


def test_part_that_errs_errs_alike_in_one_loop_and_in_its_own() -> None:
    erring = script(error_rate=0.5, seed=3)
    whole, _ = played("Settle A1, A2 and A10.", erring)
    apart = [call for part in ("A1", "A2", "A10") for call in played(part, erring)[0]]
    assert whole == apart
    wrong = [
        got for got, gold in zip(whole, gold_of("A1", "A2", "A10"), strict=True) if got != gold
    ]
    assert 0 < len(wrong) < 3
    assert all(tool == "enter" for tool, _ in wrong)
    assert played("A1", script(error_rate=1.0))[0] != gold_of("A1")
