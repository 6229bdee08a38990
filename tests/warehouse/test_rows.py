"""A bundle tells its rows: calls joined with their answers, and NULL wherever something was not measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made import NOISY, Config, Maker, Planned, make_suite

from suites.canonical import digest
from warehouse.calls import TEXT_KEPT
from warehouse.evidence import Bundle, CorruptBundle
from warehouse.rows import ndjson, rows_of, rows_of_interrupted


@pytest.fixture
def planned(maker: Maker) -> Planned:
    """One attempt to let happen."""
    return maker.sweep([make_suite(categories={"simple_python": 1})], [NOISY])[0]


def sealed(
    maker: Maker,
    planned: Planned,
    bridge: list[Any],
    model: list[Any],
    conversation: list[Any] | None = None,
    **record: Any,
) -> Bundle:
    """A bundle with these journals."""
    bundle = maker.attempt(planned, True)
    folder = maker.evidence.claim_try(planned.key)
    journals = {"bridge": bridge, "model": model, "conversation": conversation or []}
    for name, rows in journals.items():
        common = {"turn": 0, "requestor": "agent", "try": 2, "at": 1_770_000_000.5}
        lines = [json.dumps({**common, **row}) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    kept = {k: v for k, v in bundle.record.items() if k not in ("format", "files")}
    return maker.evidence.finish(folder, {**kept, **record})


REQUEST = {
    "seq": 1,
    "event": "request",
    "wire": "chat",
    "stream": False,
    "model": "m",
    "edits": ["model"],
}
RESPONSE = {
    "seq": 2, "event": "response", "call": 1, "status": 200, "complete": True, "cost": 0.25,
    "usage": {"input": 10, "cache_read": 4, "cache_write": 0, "output": 6, "reasoning": 2},
}  # fmt: skip
CALL = {"seq": 3, "event": "call", "server": "functions", "tool": "area", "arguments": "{}"}
RESULT = {
    "seq": 4,
    "event": "result",
    "call": 3,
    "status": "ok",
    "is_error": False,
    "text": "Recorded.",
}


def test_a_call_and_its_answer_are_one_row(maker: Maker, planned: Planned) -> None:
    rows = rows_of(sealed(maker, planned, [CALL, RESULT], [REQUEST, RESPONSE]))
    [tool], [model] = rows["tool_calls"], rows["model_calls"]
    assert (tool["seq"], tool["result_seq"], tool["status"], tool["text"]) == (
        3,
        4,
        "ok",
        "Recorded.",
    )
    assert tool["called_at"] == "2026-02-02 02:40:00.500000"
    assert (model["seq"], model["status"], model["http_status"]) == (1, "ok", 200)
    assert (model["input_uncached"], model["output"], model["cost"]) == (10, 6, 0.25)


def test_a_call_without_an_answer_is_unfinished(maker: Maker, planned: Planned) -> None:
    rows = rows_of(sealed(maker, planned, [CALL], [REQUEST]))
    assert [row["status"] for row in rows["tool_calls"] + rows["model_calls"]] == ["unfinished"] * 2
    assert (rows["tries"][0]["cost"], rows["tries"][0]["output"]) == (None, None)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"status": 429}, "error"),
        ({"status": 200, "complete": False}, "incomplete"),
        ({"status": 402, "budget": "tokens"}, "budget"),
        ({"status": 200, "error": "broken JSON"}, "error"),
    ],
)
def test_the_status_of_a_model_call_is_one_word(
    maker: Maker, planned: Planned, answer: dict[str, Any], status: str
) -> None:
    rows = rows_of(sealed(maker, planned, [], [REQUEST, RESPONSE | answer]))
    assert rows["model_calls"][0]["status"] == status


def test_one_unmeasured_call_makes_the_sum_unknown(maker: Maker, planned: Planned) -> None:
    silent = {"seq": 6, "event": "response", "call": 5, "status": 200, "usage": None, "cost": None}
    rows = rows_of(sealed(maker, planned, [], [REQUEST, RESPONSE, REQUEST | {"seq": 5}, silent]))
    [row] = rows["tries"]
    assert (row["model_calls"], row["unmeasured_calls"]) == (2, 1)
    assert (row["input_uncached"], row["output"], row["cost"]) == (None, None, None)


def test_no_model_call_costs_nothing_unless_the_harness_has_its_own_login(maker: Maker) -> None:
    config = Config(harness="own-login", unmetered=True)
    metered, unmetered = (
        maker.sweep([make_suite(categories={"simple_python": 1})], [c], name=c.harness)[0]
        for c in (NOISY, config)
    )
    [free] = rows_of(sealed(maker, metered, [], []))["tries"]
    [unknown] = rows_of(sealed(maker, unmetered, [], []))["tries"]
    assert (free["cost"], free["output"]) == (0, 0)
    assert (unknown["cost"], unknown["output"]) == (None, None)


def test_a_journal_with_holes_measures_nothing(maker: Maker, planned: Planned) -> None:
    rows = rows_of(sealed(maker, planned, [RESULT], [REQUEST, RESPONSE], host={"dropped": True}))
    assert (rows["tries"][0]["dropped"], rows["tries"][0]["cost"]) == (True, None)


def test_the_user_and_the_judge_cost_money_but_use_no_tokens_of_the_agent(
    maker: Maker, planned: Planned
) -> None:
    judge = [REQUEST | {"seq": 5, "requestor": "judge"}, RESPONSE | {"seq": 6, "call": 5}]
    [row] = rows_of(sealed(maker, planned, [], [REQUEST, RESPONSE, *judge]))["tries"]
    assert (row["model_calls"], row["output"], row["cost"]) == (1, 6, 0.5)


def test_errors_of_tools_are_counted_by_what_the_bridge_did(maker: Maker, planned: Planned) -> None:
    statuses = ("ok", "refused", "unknown_tool", "tool_error", "timeout", "crashed", "cancelled")
    [row] = rows_of(maker.attempt(planned, True, statuses=statuses))["tries"]
    assert (row["tool_calls"], row["tool_errors"]) == (7, 5)


def test_long_texts_are_cut(maker: Maker, planned: Planned) -> None:
    rows = rows_of(sealed(maker, planned, [CALL, RESULT | {"text": "x" * 1_000_000}], []))
    assert len(rows["tool_calls"][0]["text"]) == TEXT_KEPT


@pytest.mark.parametrize(
    ("bridge", "model", "record"),
    [
        ([RESULT], [], {}),
        ([CALL | {"seq": "three"}], [], {}),
        ([CALL, RESULT | {"ms": "fast"}], [], {}),
        ([], [REQUEST, RESPONSE | {"usage": {"output": 2.5}}], {}),
        ([], [REQUEST, RESPONSE | {"cost": True}], {}),
        (["not an object"], [], {}),
        ([], [], {"exit_code": 2**70}),
        ([], [], {"ending": None}),
        ([], [], {"task": {}}),
        ([], [], {"stamp": "none"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_corrupt(
    maker: Maker, planned: Planned, bridge: list[Any], model: list[Any], record: dict[str, Any]
) -> None:
    if bridge == ["not an object"]:
        bundle = sealed(maker, planned, [], [])
        folder = maker.evidence.claim_try(planned.key)
        (folder / "bridge.jsonl").write_text('"not an object"\n')
        kept = {k: v for k, v in bundle.record.items() if k not in ("format", "files")}
        broken = maker.evidence.finish(folder, kept)
    else:
        broken = sealed(maker, planned, bridge, model, **record)
    with pytest.raises(CorruptBundle) as caught:
        rows_of(broken)
    assert caught.value.path == broken.folder


def test_a_bundle_in_another_attempts_folder_is_corrupt(maker: Maker) -> None:
    mine, yours = maker.sweep([make_suite(categories={"simple_python": 2})], [NOISY])
    copied = maker.evidence.attempt_folder(yours.key) / "try-0001"
    shutil.copytree(maker.attempt(mine, True).folder, copied)
    bundle = maker.evidence.bundle(copied)
    assert bundle is not None
    with pytest.raises(CorruptBundle, match=mine.key):
        rows_of(bundle)


def test_an_interrupted_try_tells_what_its_journals_hold(maker: Maker, planned: Planned) -> None:
    rows = rows_of_interrupted(maker.interrupted(planned, torn=True))
    [row] = rows["tries"]
    assert (row["ending"], row["bundle_hash"], row["cost"]) == ("interrupted", None, 0.0004)
    assert len(rows["tool_calls"]) == 1


def test_an_interrupted_try_may_have_left_anything(maker: Maker, planned: Planned) -> None:
    folder = maker.evidence.claim_try(planned.key)
    lines = [b"\xff\xfe", b"[]", b'{"event":"call"}', b'{"event":"call","seq":"x"}', b"{"]
    (folder / "bridge.jsonl").write_bytes(b"\n".join(lines))
    [row] = rows_of_interrupted(folder)["tries"]
    assert (row["tool_calls"], row["model_calls"], row["started_at"]) == (0, 0, None)


def test_an_empty_try_is_interrupted(maker: Maker, planned: Planned) -> None:
    folder = maker.evidence.claim_try(planned.key)
    assert rows_of_interrupted(folder)["tries"][0]["cost"] == 0


def test_what_utf_8_cannot_hold_is_replaced_and_what_json_cannot_is_refused() -> None:
    assert ndjson([{"text": "a\ud800b\x00"}]) == b'{"text":"a?b\\u0000"}\n'
    assert ndjson([{"seed": 2**100}]) == b'{"seed":%d}\n' % 2**100
    assert ndjson([]) == b""


def test_configurations_differ_where_their_stamps_do(maker: Maker, planned: Planned) -> None:
    from warehouse.rows import cell_id, configuration_id

    stamp = NOISY.stamp(planned.suite)
    same = {**stamp, "dyno_version": "9", "parameters": {}, "sealed": True}
    assert configuration_id(same) == configuration_id(stamp)
    others = [
        {**stamp, key: "other"} for key in ("harness", "model", "mode", "config_hash", "isolation")
    ]
    names = {configuration_id(other) for other in others}
    assert len(names | {configuration_id(stamp)}) == 6
    assert cell_id(digest("a"), stamp) != cell_id(digest("b"), stamp)


def test_folders_name_the_attempt_and_the_try(tmp_path: Path) -> None:
    folder = tmp_path / "ab" / "abcd" / "try-0012"
    folder.mkdir(parents=True)
    row = rows_of_interrupted(folder)["tries"][0]
    assert (row["attempt_key"], row["try"]) == ("abcd", 12)


def said(seq: int, role: str, content: str, **fields: Any) -> dict[str, Any]:
    who = "user" if role == "user" else "agent"
    row = {"seq": seq, "event": "message", "requestor": who, "role": role, "content": content}
    return {**row, "opening": False, **fields}


def test_a_conversations_texts_are_rows_and_its_user_has_figures_of_its_own(
    maker: Maker, planned: Planned
) -> None:
    talk = [
        said(11, "assistant", "Hi!", opening=True),
        said(12, "user", "x" * 30_000, turn=1),
        {"seq": 13, "event": "end", "reason": "user_stop", "detail": "", "blame": None},
    ]
    users = [{**REQUEST, "seq": 5, "requestor": "user"}, {**RESPONSE, "seq": 6, "call": 5}]
    failed = {**RESULT, "seq": 8, "call": 7, "status": "tool_error"}
    looked = [{**CALL, "seq": 7, "requestor": "user"}, failed]
    host = {"dropped": False, "conversation": {"ended": "user_stop", "turns": 1}}
    bundle = sealed(
        maker, planned, [CALL, RESULT, *looked], [REQUEST, RESPONSE, *users], talk, host=host
    )
    rows = rows_of(bundle)
    assert [(m["seq"], m["role"], m["opening"], m["turn"]) for m in rows["messages"]] == [
        (11, "assistant", True, 0),
        (12, "user", False, 1),
    ]
    assert len(rows["messages"][1]["content"]) == 20_000
    [row] = rows["tries"]
    assert (row["turns"], row["termination"]) == (1, "user_stop")
    assert (row["model_calls"], row["agent_cost"], row["input_uncached"]) == (1, 0.25, 10)
    assert (row["user_model_calls"], row["user_cost"], row["user_output"]) == (1, 0.25, 6)
    assert row["cost"] == 0.5
    assert (row["tool_calls"], row["tool_errors"]) == (1, 0)
    assert (row["user_tool_calls"], row["user_tool_errors"]) == (1, 1)


def test_an_agent_with_its_own_login_does_not_hide_what_its_user_cost(
    maker: Maker, planned: Planned
) -> None:
    users = [{**REQUEST, "seq": 5, "requestor": "user"}, {**RESPONSE, "seq": 6, "call": 5}]
    stamp = {**planned.config.stamp(planned.suite), "unmetered": True, "seed": 1}
    [row] = rows_of(sealed(maker, planned, [], users, stamp=stamp))["tries"]
    assert (row["cost"], row["agent_cost"], row["user_cost"]) == (None, None, 0.25)


def test_a_user_that_was_not_measured_costs_null_and_leaves_the_agents_cost(
    maker: Maker, planned: Planned
) -> None:
    users = [{**REQUEST, "seq": 5, "requestor": "user"}]
    [row] = rows_of(sealed(maker, planned, [], [REQUEST, RESPONSE, *users]))["tries"]
    assert (row["cost"], row["agent_cost"], row["user_cost"]) == (None, 0.25, None)


def test_without_a_conversation_nobody_took_a_turn(maker: Maker, planned: Planned) -> None:
    rows = rows_of(sealed(maker, planned, [CALL, RESULT], []))
    assert rows["messages"] == []
    assert (rows["tries"][0]["turns"], rows["tries"][0]["termination"]) == (None, None)


def test_an_interrupted_conversation_keeps_what_was_said(maker: Maker, planned: Planned) -> None:
    folder = maker.interrupted(planned)
    lines = [json.dumps({**said(20, "user", "Hello"), "turn": 1, "at": 1.0}), '{"seq": 21, "ev']
    (folder / "conversation.jsonl").write_text("\n".join(lines))
    rows = rows_of_interrupted(folder)
    assert [m["content"] for m in rows["messages"]] == ["Hello"]
    assert rows["tries"][0]["turns"] == 1
