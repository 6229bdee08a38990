"""Usage is read from what passes, whatever the upstream's dialect, and is never 0 for "unknown"."""

from __future__ import annotations

import json

import pytest

from bridges.budgets import Budget
from bridges.metering import NOTHING, Meter, Usage, cost_of
from bridges.splicing import REMOVE, members, with_changes
from bridges.wires.chat import Chat, ChatEvents, usage_of

PRICES = {"date": "2026-11-01", "input": 1.0, "cache_read": 0.1, "cache_write": 2.0, "output": 4.0}


def told(prompt: int, completion: int, total: int | None = None, **more: object) -> dict:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **more}
    return {"usage": usage | ({"total_tokens": total} if total is not None else {})}


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        pytest.param(told(10, 5, 15), Usage(input=10, output=5), id="plain"),
        pytest.param(
            told(10, 5, 15, prompt_tokens_details={"cached_tokens": 4}),
            Usage(input=6, cache_read=4, output=5),
            id="cached is inside prompt",
        ),
        pytest.param(
            told(10, 5, 15, prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 3}),
            Usage(input=3, cache_read=4, cache_write=3, output=5),
            id="cache write",
        ),
        pytest.param(
            told(10, 5, 15, prompt_cache_hit_tokens=8, prompt_cache_miss_tokens=2),
            Usage(input=2, cache_read=8, output=5),
            id="deepseek",
        ),
        pytest.param(
            told(10, 5, 15, completion_tokens_details={"reasoning_tokens": 4}),
            Usage(input=10, output=5, reasoning=4),
            id="reasoning is inside completion",
        ),
        pytest.param(
            told(10, 5, 19, completion_tokens_details={"reasoning_tokens": 4}),
            Usage(input=10, output=9, reasoning=4),
            id="reasoning is left out of completion",
        ),
        pytest.param(
            told(10, 5, 40), Usage(input=10, output=30), id="only the total has reasoning"
        ),
        pytest.param({"x_groq": told(10, 5)}, Usage(input=10, output=5), id="groq's stream"),
        pytest.param({"usage": None}, None, id="null"),
        pytest.param({"usage": {}}, None, id="empty"),
        pytest.param({"usage": {"prompt_tokens": "?"}}, None, id="nonsense"),
        pytest.param({}, None, id="absent"),
    ],
)
def test_usage_is_read_in_every_dialect(document: dict, usage: Usage | None) -> None:
    assert usage_of(document) == usage


def test_cost_counts_each_kind_at_its_price() -> None:
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=500_000, output=250_000)
    assert cost_of(usage, PRICES) == pytest.approx(1.0 + 0.2 + 1.0 + 1.0)


def test_cost_is_unknown_where_a_part_is() -> None:
    assert cost_of(None, PRICES) is None
    assert cost_of(Usage(input=1), None) is None
    assert cost_of(Usage(cache_read=1), {"date": "x", "input": 1.0, "output": 1.0}) is None
    assert cost_of(Usage(input=1), {"date": "x", "input": 1.0, "output": 1.0}) == 1e-6


def test_one_unmeasured_call_makes_the_sum_unknown() -> None:
    meter = Meter(PRICES)
    meter.add(Usage(input=5), 0.1)
    assert (meter.usage, meter.cost) == (Usage(input=5), 0.1)
    meter.add(None, None)
    meter.add(Usage(input=5), 0.1)
    assert (meter.usage, meter.cost) == (None, None)


def test_no_calls_cost_nothing_and_without_prices_the_cost_is_unknown() -> None:
    assert (Meter(PRICES).usage, Meter(PRICES).cost) == (NOTHING, 0.0)
    assert Meter(None).cost is None


def test_budget_refuses_once_a_limit_is_reached_and_says_which() -> None:
    budget = Budget({"model_calls": None, "tokens": 100, "dollars": None}, PRICES)
    assert budget.take_call() is None
    budget.count(Usage(input=60, output=39), 0, 0)
    assert budget.take_call() is None
    budget.count(Usage(cache_read=1), 0, 0)
    assert budget.take_call() == "tokens"
    assert budget.spent == "tokens"


def test_budget_counts_an_unmeasured_call_by_its_size() -> None:
    budget = Budget({"tokens": 100}, None)
    budget.take_call()
    budget.count(None, sent_bytes=200, received_bytes=300)
    assert budget.take_call() == "tokens"


def test_budget_in_dollars_needs_prices() -> None:
    with pytest.raises(ValueError, match="no prices"):
        Budget({"dollars": 1.0}, None)
    budget = Budget({"dollars": 0.000_1}, PRICES)
    budget.take_call()
    budget.count(Usage(output=25), 0, 0)
    assert budget.take_call() == "dollars"


def test_edits_leave_every_other_byte_alone() -> None:
    source = '{ "a" : 1.50e1,"b":"\\u00e9\\ud800 é", "model":"x" , "n":[1,  2], "a":2 }'
    changed = with_changes(members(source), {"model": "y", "new": {"k": True}})
    assert changed == (
        '{"a" : 1.50e1,"b":"\\u00e9\\ud800 é","model":"y","n":[1,  2],"a":2,"new":{"k":true}}'
    )
    assert with_changes(members(source), {"a": REMOVE, "n": REMOVE}) == (
        '{"b":"\\u00e9\\ud800 é","model":"x"}'
    )
    assert with_changes(members(" {} "), {"a": 1}) == '{"a":1}'


@pytest.mark.parametrize(
    "source", ["", "[]", "{", '{"a"}', '{"a":1', '{"a":1,}', '{"a":1}x', "{1:2}"]
)
def test_what_is_no_object_is_refused(source: str) -> None:
    with pytest.raises(ValueError):
        members(source)


def test_a_parameter_of_null_takes_the_member_out() -> None:
    body = b'{"model":"m","temperature":0.7,"messages":[]}'
    prepared = Chat().prepare(body, "m", {"temperature": None, "top_p": None, "seed": 7})
    assert prepared.body == b'{"model":"m","messages":[],"seed":7}'
    assert prepared.edits == ("parameters.temperature", "parameters.seed")


def test_a_request_that_is_not_json_goes_on_as_it_is() -> None:
    assert Chat().prepare(b"\xff{", "m", {"seed": 1}).body == b"\xff{"


def events(*values: object) -> list[bytes]:
    return [f"data: {json.dumps(value)}\n\n".encode() for value in values]


USAGE_EVENT = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
TEXT_EVENT = {"choices": [{"index": 0, "delta": {"content": "hi"}}], "usage": None}
END_EVENT = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None}


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize("mark", [b"\n\n", b"\r\n\r\n"])
def test_the_usage_event_is_taken_out_wherever_the_chunks_are_cut(size: int, mark: bytes) -> None:
    parts = [e.replace(b"\n\n", mark) for e in events(TEXT_EVENT, END_EVENT, USAGE_EVENT)]
    done = b"data: [DONE]" + mark
    stream = b": keep-alive" + mark + b"".join(parts) + done
    reader = ChatEvents(strip_usage=True)
    passed = [reader.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
    passed.append(reader.finish())
    assert b"".join(passed) == b": keep-alive" + mark + parts[0] + parts[1] + done
    assert reader.said().usage == Usage(input=3, output=2)
    assert reader.said().error is None
    assert reader.ended


def test_a_stream_goes_on_byte_for_byte_as_it_comes() -> None:
    reader = ChatEvents(strip_usage=False)
    chunks = [b'data: {"cho', b'ices": [], "usage": null}\n', b"\ndata: [DONE]\n\n"]
    assert [reader.feed(chunk) for chunk in chunks] == chunks


def test_tool_calls_of_a_stream_are_counted_once_each() -> None:
    def piece(index: int) -> dict:
        call = {"index": index, "function": {"arguments": "{"}}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}

    reader = ChatEvents(strip_usage=False)
    for event in events(piece(0), piece(0), piece(1), END_EVENT):
        reader.feed(event)
    assert reader.said().tool_calls == 2
    assert reader.said().complete, "a finish_reason ends a reply, [DONE] or not"


def test_a_stream_without_events_grows_no_memory() -> None:
    reader = ChatEvents(strip_usage=True)
    passed = sum(len(reader.feed(b"x" * 1_000_000)) for _ in range(20))
    assert passed > 19_000_000
    assert "longer than" in (reader.said().error or "")


@pytest.mark.parametrize(
    "document",
    [
        told(-10, 5, 15),
        told(10**30, 5),
        told(float("nan"), 5),  # type: ignore[arg-type]
        told(float("inf"), 5),  # type: ignore[arg-type]
        told(10, 5, 15, prompt_tokens_details={"cached_tokens": -4}),
    ],
)
def test_counts_that_cannot_be_are_no_measurement(document: dict) -> None:
    assert usage_of(document) is None
