"""What harnesses say of themselves, read from the forms in which they say it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from suites.errors import InputError
from suites.schema import Harness
from tasks.attempt.telemetry import READERS, Left, answer, check_telemetry, read
from tests.tasks.attempt.conftest import Bench

CALL = 'tool get_weather \'{"city": "Oslo"}\' > /dev/null; '


def harness(usage: str) -> Harness:
    """A harness with this reader."""
    return Harness.model_validate({"name": "h", "command": ["x"], "telemetry": {"usage": usage}})


def lines(*events: dict[str, Any]) -> str:
    """Events as JSON lines."""
    return "".join(json.dumps(event) + "\n" for event in events)


CLAUDE = {
    "type": "result",
    "subtype": "success",
    "result": "It rains.",
    "total_cost_usd": 1.5,
    "usage": {
        "input_tokens": 30,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 400,
        "output_tokens": 20,
    },
}
CODEX = (
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.completed", "item": {"type": "error", "message": "no metadata"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Let me see."}},
    {"type": "item.completed", "item": {"type": "mcp_tool_call", "tool": "get_weather"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "It rains."}},
    {
        "type": "turn.completed",
        "usage": {
            "input_tokens": 435,
            "cached_input_tokens": 400,
            "cache_write_input_tokens": 5,
            "output_tokens": 20,
            "reasoning_output_tokens": 8,
        },
    },
)


def tokens(**changes: Any) -> dict[str, Any]:
    """The tokens of one step of OpenCode."""
    return {"input": 15, "output": 6, "reasoning": 4, "cache": {"read": 200, "write": 0}} | changes


OPENCODE = (
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"text": "Let me see."}},
    {"type": "step_finish", "part": {"tokens": tokens()}},
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"text": "It rains."}},
    {"type": "step_finish", "part": {"tokens": tokens(cache={"read": 200, "write": 5})}},
)
QWEN = (
    {"type": "system", "subtype": "init"},
    {"type": "assistant", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
    {
        "type": "result",
        "result": "It rains.",
        "usage": {"input_tokens": 430, "cache_read_input_tokens": 400, "output_tokens": 20},
    },
)


@pytest.mark.parametrize(
    ("reader", "stdout", "reasoning", "cache_write"),
    [
        ("claude_result_json", json.dumps(CLAUDE), None, 5),
        ("codex_jsonl", lines(*CODEX), 8, 5),
        ("opencode_jsonl", lines(*OPENCODE), 8, 5),
        ("qwen_json", lines(*QWEN), None, None),
        ("qwen_json", json.dumps(QWEN), None, None),
    ],
)
def test_every_reader_speaks_one_convention(
    reader: str, stdout: str, reasoning: int | None, cache_write: int | None
) -> None:
    told = read(harness(reader), Left(stdout))
    usage = {"input": 30, "cache_read": 400, "cache_write": cache_write, "output": 20}
    usage["reasoning"] = reasoning
    assert told.usage == {kind: count for kind, count in usage.items() if count is not None}
    assert told.text == "It rains."


@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.parametrize(
    "stdout", ["", "Segmentation fault", "{", '[{"type": "result"', "[1, 2]", "null", '{"type": 1}']
)
def test_output_that_is_no_such_tells_no_usage(reader: str, stdout: str) -> None:
    usage = read(harness(reader), Left(stdout)).usage
    assert usage is None or reader == "last_line_json"


def test_an_answer_that_failed_is_empty_and_not_the_events() -> None:
    failed = lines({"type": "error", "message": "12 degrees"}, {"type": "turn.failed"})
    told = read(harness("codex_jsonl"), Left(failed))
    assert (told.usage, told.text) == (None, "")
    assert answer(harness("codex_jsonl"), Left(failed)) == ""


def test_an_unknown_reader_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean `codex_jsonl`"):
        check_telemetry(harness("codex_json"), "h.yaml")
    with pytest.raises(InputError, match="no key 'use'"):
        check_telemetry(
            Harness.model_validate({"name": "h", "command": ["x"], "telemetry": {"use": "x"}}), "h"
        )


def test_text_checks_look_at_the_answer_and_not_at_the_events_around_it(
    bench: Bench, shell: Callable[..., Harness]
) -> None:
    from tasks.grading import grade_cell

    said = {"type": "item.completed", "item": {"type": "agent_message", "text": "I do not know."}}
    events = lines({"type": "turn.started", "id": "12"}, said, *CODEX[-1:])
    script = CALL + f"cat <<'E'\n{events}E\n"
    plan = bench.plan(shell(script, telemetry={"usage": "codex_jsonl"}))
    assert bench.run_all(plan) == ["clean"]
    bundle = bench.evidence.published(next(iter(plan.by_key)))
    assert bundle is not None
    assert "12" in bundle.text("stdout")
    assert bundle.text("answer") == "I do not know."
    assert bundle.record["reported"]["input"] == 30
    assert grade_cell(plan, 0, bench.evidence)["failed"] == 1
    said["item"]["text"] = "12 degrees."  # type: ignore[index]
    script = CALL + f"cat <<'E'\n{lines(said, *CODEX[-1:])}E\n"
    plan = bench.plan(shell(script, telemetry={"usage": "codex_jsonl"}))
    assert bench.run_all(plan) == ["clean"]
    assert grade_cell(plan, 0, bench.evidence)["solved"] == 1
