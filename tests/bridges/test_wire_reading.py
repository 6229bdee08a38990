"""What each wire says of its bytes: usage by its own convention, ends, errors, edits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridges.gateway import WIRES
from bridges.metering import NOTHING, Usage
from bridges.scripted import WIRES as PLAYED
from bridges.scripted_behaviours import Step, ToolCall
from bridges.wires import Wire, messages, responses

RESPONSES, MESSAGES = WIRES["responses"], WIRES["messages"]
EVERY = pytest.mark.parametrize("wire", WIRES.values(), ids=list(WIRES))


def response(**usage: Any) -> dict[str, Any]:
    return {"usage": usage}


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        pytest.param(
            response(input_tokens=10, output_tokens=5), Usage(input=10, output=5), id="plain"
        ),
        pytest.param(
            response(
                input_tokens=10,
                input_tokens_details={"cached_tokens": 4, "cache_write_tokens": 3},
                output_tokens=5,
                output_tokens_details={"reasoning_tokens": 2},
                total_tokens=15,
            ),
            Usage(input=3, cache_read=4, cache_write=3, output=5, reasoning=2),
            id="cached is inside input and reasoning inside output",
        ),
        pytest.param(
            response(input_tokens=10, output_tokens=5, total_tokens=40),
            Usage(input=10, output=30),
            id="only the total has reasoning",
        ),
        pytest.param(response(input_tokens=10), None, id="half"),
        pytest.param(response(input_tokens=-1, output_tokens=5), None, id="impossible"),
        pytest.param({"usage": None}, None, id="null"),
        pytest.param({"usage": [1]}, None, id="nonsense"),
        pytest.param({}, None, id="absent"),
    ],
)
def test_usage_of_a_response(document: dict[str, Any], usage: Usage | None) -> None:
    assert responses.usage_of(document) == usage


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        pytest.param(
            {"input_tokens": 10, "output_tokens": 5}, Usage(input=10, output=5), id="plain"
        ),
        pytest.param(
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 400,
                "cache_creation_input_tokens": 30,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 2},
            },
            Usage(input=10, cache_read=400, cache_write=30, output=5, reasoning=2),
            id="cached is beside input",
        ),
        pytest.param(
            {
                "input_tokens": 10,
                "output_tokens": 5,
                "iterations": [
                    {"type": "compaction", "input_tokens": 100, "output_tokens": 7},
                    {"type": "message", "input_tokens": 10, "output_tokens": 5},
                ],
            },
            Usage(input=110, output=12),
            id="a compaction is billed beside",
        ),
        pytest.param(
            {"input_tokens": 1, "cache_read_input_tokens": None, "output_tokens": 1},
            Usage(input=1, output=1),
            id="null is none",
        ),
        pytest.param({"input_tokens": 10}, None, id="half"),
        pytest.param({"input_tokens": 10, "output_tokens": 1e300}, None, id="impossible"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_usage_of_a_message(told: Any, usage: Usage | None) -> None:
    assert messages.usage_of(told) == usage


# ---------------------------------------------------------------- streams


def played(wire: Wire, step: Step, usage: Usage) -> bytes:
    """A step as the scripted models stream it."""
    request = {"stream": True, "stream_options": {"include_usage": True}}
    return b"".join(PLAYED[f"v1/{wire.path}"].events(request, "m", "id", step, usage))


SPENT = Usage(input=30, cache_read=20, cache_write=10, output=9, reasoning=4)
SPOKEN = Step(
    text="Let me see. " * 3, calls=(ToolCall("add", '{"a": "é\\n\\n"}'), ToolCall("f", "{}"))
)


@EVERY
@pytest.mark.parametrize("mark", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_a_stream_says_the_same_wherever_it_is_cut(wire: Wire, mark: bytes) -> None:
    stream = played(wire, SPOKEN, SPENT).replace(b"\n", mark)
    for at in range(1, len(stream)):
        reader = wire.reader(strip_usage=False)
        assert reader.feed(stream[:at]) + reader.feed(stream[at:]) == stream
        said = reader.said()
        assert (said.usage, said.tool_calls, said.error, said.complete) == (SPENT, 2, None, True)
    reader = wire.reader(strip_usage=False)
    assert b"".join(reader.feed(bytes([byte])) for byte in stream) == stream
    assert reader.ended
    assert reader.said().usage == SPENT


@EVERY
def test_a_stream_is_never_taken_for_whole_before_its_end(wire: Wire) -> None:
    stream = played(wire, SPOKEN, SPENT)
    last = stream.rstrip().rfind(b"\n\n") + 2
    if wire.name == "chat":  # its last event says nothing, `finish_reason` and usage came before
        last = stream.index(b'"finish_reason":"tool_calls"')
    for at in range(0, last, 7):
        reader = wire.reader(strip_usage=False)
        reader.feed(stream[:at])
        reader.finish()
        said = reader.said()
        assert not said.complete
        assert said.error is not None
        if wire.name != "messages" or b"message_delta" not in stream[:at]:
            assert said.usage is None, "what was not read to the end is unmeasured"


@EVERY
def test_an_event_without_its_blank_line_still_counts(wire: Wire) -> None:
    reader = wire.reader(strip_usage=False)
    reader.feed(played(wire, SPOKEN, SPENT).rstrip())
    reader.finish()
    assert (reader.said().usage, reader.said().error) == (SPENT, None)


def streamed(wire: Wire, *values: Any) -> Any:
    reader = wire.reader(strip_usage=False)
    for value in values:
        data = value if isinstance(value, str) else json.dumps(value)
        reader.feed(f"event: x\ndata: {data}\n\n".encode())
    reader.finish()
    return reader.said()


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"content": [], "usage": usage}}


def delta(**usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


STOP = {"type": "message_stop"}


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        pytest.param(
            (
                start(input_tokens=9, output_tokens=1),
                delta(output_tokens=3),
                delta(output_tokens=7),
            ),
            Usage(input=9, output=7),
            id="output counts from the beginning",
        ),
        pytest.param(
            (
                start(input_tokens=0, output_tokens=0),
                delta(input_tokens=9, cache_read_input_tokens=4, output_tokens=7),
            ),
            Usage(input=9, cache_read=4, output=7),
            id="an imitator tells all at the end",
        ),
        pytest.param(
            (
                start(input_tokens=9, cache_read_input_tokens=4, output_tokens=1),
                delta(input_tokens=0, cache_read_input_tokens=None, output_tokens=7),
            ),
            Usage(input=9, cache_read=4, output=7),
            id="an imitator forgets the input at the end",
        ),
        pytest.param(
            (start(input_tokens=9, output_tokens=1),),
            None,
            id="the beginning's output is no output",
        ),
        pytest.param((start(), delta(output_tokens=7)), None, id="no input told"),
    ],
)
def test_usage_of_a_streamed_message(told: tuple[Any, ...], usage: Usage | None) -> None:
    assert streamed(MESSAGES, *told, STOP).usage == usage


FAILED = {"type": "response.failed", "response": {"error": {"message": "boom"}, "usage": None}}
CREATED = {"type": "response.created", "response": {"error": None}}


@pytest.mark.parametrize(
    ("wire", "values", "said", "usage"),
    [
        ("responses", (CREATED, FAILED), "the response failed: boom", None),
        ("responses", ({"type": "error", "message": "no"},), "inside the stream: no", NOTHING),
        ("responses", (CREATED, {"type": "error", "error": {"message": "no"}}), "stream: no", None),
        ("responses", (CREATED,), "before the reply was finished", None),
        ("responses", ("{broken",), "not JSON", None),
        ("messages", ({"type": "error", "error": {"message": "no"}},), "stream: no", NOTHING),
        ("messages", (start(), {"type": "error", "error": {"message": "no"}}), "stream: no", None),
        ("messages", (start(),), "before the reply was finished", None),
        ("messages", ("[1]", STOP), "not JSON", None),
        ("messages", (), "no event that can be read", None),
        ("messages", ("[" * 100_000,), "not JSON", None),
    ],
)
def test_what_is_wrong_with_a_stream(
    wire: str, values: tuple[Any, ...], said: str, usage: Usage | None
) -> None:
    found = streamed(WIRES[wire], *values)
    assert said in found.error
    assert found.usage == usage


def test_an_incomplete_response_is_a_sound_one_and_is_measured() -> None:
    whole = {"status": "incomplete", "output": [], **response(input_tokens=3, output_tokens=2)}
    said = streamed(RESPONSES, CREATED, {"type": "response.incomplete", "response": whole})
    assert (said.usage, said.error, said.complete) == (Usage(input=3, output=2), None, True)


def test_only_what_the_harness_carries_out_is_a_tool_call() -> None:
    kinds = ["function_call", "custom_tool_call", "web_search_call", "mcp_call", "reasoning"]
    output = [{"type": kind} for kind in kinds]
    body = json.dumps({"output": output, **response(input_tokens=1, output_tokens=1)}).encode()
    assert RESPONSES.read(200, "application/json", body).tool_calls == 2
    content = [{"type": kind} for kind in ("text", "tool_use", "server_tool_use", "thinking")]
    told = {"content": content, "usage": {"input_tokens": 1, "output_tokens": 1}}
    assert MESSAGES.read(200, "application/json", json.dumps(told).encode()).tool_calls == 1


@EVERY
@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {"type": {}}, {"usage": 1, "choices": 1, "output": 1, "content": 1},
              {"type": "message_start", "message": 1}, {"type": "response.completed", "response": 1},
              {"type": "message_delta", "usage": {"output_tokens": {}}}, {"error": [1]},
              {"choices": [{"index": [], "delta": {"tool_calls": [{"index": {}}, 1]}}, 1]},
              {"type": "content_block_start", "content_block": [], "index": {}},
              {"type": "response.output_item.added", "item": {"type": []}},
              {"type": "error", "error": {"type": []}, "code": {}}],
)  # fmt: skip
def test_nothing_that_an_upstream_says_breaks_the_reading(wire: Wire, value: Any) -> None:
    body = json.dumps(value).encode()
    wire.read(200, "application/json", body)
    assert wire.read(400, "application/json", body).error
    wire.is_final(body)
    wire.shed_by(body)
    streamed(wire, value)


# ---------------------------------------------------------------- requests


@EVERY
def test_forced_parameters_leave_every_other_byte_alone(wire: Wire) -> None:
    body = '{ "model":"m","x_unknown" : [1.50e0,{"é":"\\ud800"}],"reasoning":{"effort":"high",'
    body += '"summary":"auto"}, "temperature":1 }'
    forced = {"reasoning.effort": "low", "temperature": None, "metadata.a.b": 1, "none.such": None}
    prepared = wire.prepare(body.encode(), "m", forced)
    assert prepared.body.decode() == (
        '{"model":"m","x_unknown" : [1.50e0,{"é":"\\ud800"}],'
        '"reasoning":{"effort":"low","summary":"auto"},"metadata":{"a":{"b":1}}}'
    )
    names = ("reasoning.effort", "temperature", "metadata.a.b")
    assert prepared.edits == tuple(f"parameters.{name}" for name in names)
    already = wire.prepare(body.encode(), "m", {"reasoning.effort": "high", "temperature": 1})
    assert (already.body, already.edits) == (body.encode(), ())


@EVERY
@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"a":' + b"[" * 100_000])
def test_a_request_that_is_no_object_goes_on_as_it_is(wire: Wire, body: bytes) -> None:
    prepared = wire.prepare(body, "m", {"temperature": 0})
    assert (prepared.body, prepared.edits) == (body, ())


@EVERY
def test_errors_of_dyno_are_in_the_wires_own_form(wire: Wire) -> None:
    for status in (401, 404, 413, 502):
        error = wire.error(status, "why", "code")
        assert error["error"]["message"] == "why"
        assert (error.get("type") == "error") == (wire.name == "messages")
        assert wire.read(status, "application/json", json.dumps(error).encode()).error


def test_an_empty_account_is_known_by_its_words() -> None:
    assert RESPONSES.is_final(b'{"error":{"code":"insufficient_quota"}}')
    assert MESSAGES.is_final(b'{"type":"error","error":{"type":"billing_error"}}')
    assert not RESPONSES.is_final(b'{"error":{"code":"rate_limit_exceeded"}}')
    assert not MESSAGES.is_final(b'{"type":"error","error":{"type":"rate_limit_error"}}')
