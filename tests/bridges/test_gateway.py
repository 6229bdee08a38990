"""The gateway forwards byte for byte, meters what passes, holds budgets and limits, and says whose fault."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from http.client import HTTPException
from pathlib import Path
from threading import Semaphore
from typing import Any

import openai
import pytest
from gateway_parts import (
    COST,
    COUNTED,
    USAGE,
    Mounted,
    Reply,
    Upstream,
    answer,
    get,
    model,
    mounted,
    post,
    post_with_headers,
    request,
    start,
    until,
)

DELTA = {
    "choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}],
    "usage": None,
}
LAST = {
    "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}],
    "usage": None,
}
USAGE_EVENT = {"choices": [], "usage": USAGE}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with mounted(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    running.replies = [Reply.json(answer(usage=USAGE))]
    yield running
    running.stop()


# ---------------------------------------------------------------- forwarding


def test_a_request_goes_on_byte_for_byte(gateway: Mounted, upstream: Upstream) -> None:
    line = gateway.open(model(upstream.url))
    body = '{ "model":"model-1", "messages":[{"role":"user","content":"h\\u00e9 \\ud83d"}],'
    body += '"temperature":1.50e0, "x_unknown":{"b":1, "a":[ ]}, "n":1 ,"n":1}'
    status, data = post(line, body.encode(), path="/chat/completions?api-version=7", X_Trace="t1")
    assert (status, json.loads(data)) == (200, answer(usage=USAGE))
    assert upstream.bodies == [body.encode()]
    assert upstream.paths == ["/v1/chat/completions?api-version=7"]
    assert upstream.headers[0]["x-trace"] == "t1"
    row = line.rows("request")[0]
    assert (row["body"], row["edits"], row["stream"]) == (body, [], False)


def test_what_the_model_file_forces_is_forced_and_journaled(
    gateway: Mounted, upstream: Upstream
) -> None:
    line = gateway.open(model(upstream.url, parameters={"temperature": 0, "seed": 7}))
    post(line, b'{"model":"gpt-x","messages":[],"temperature":0.7,"seed":7,"x":1.0}')
    assert upstream.bodies == [
        b'{"model":"model-1","messages":[],"temperature":0,"seed":7,"x":1.0}'
    ]
    row = line.rows("request")[0]
    assert row["edits"] == ["model", "parameters.temperature"]
    assert row["model"] == "gpt-x"
    assert '"temperature":0.7' in row["body"], "the journal shows what the harness sent"


def test_a_request_that_is_nested_too_deeply_goes_nowhere_and_is_journaled(
    gateway: Mounted, upstream: Upstream
) -> None:
    line = gateway.open(model(upstream.url))
    deep = "[" * 20_000 + "]" * 20_000
    body = f'{{"model":"gpt-x","messages":[],"tools":{deep}}}'
    status, data = post(line, body.encode())
    assert status == 400
    assert "nested too deeply" in json.loads(data)["error"]["message"]
    assert upstream.bodies == [], "its model could not be forced"
    assert [row["status"] for row in line.rows("response")] == [400]
    assert line.rows("request")[0]["body"].startswith('{"model":"gpt-x"')
    summary = line.close()
    assert (summary["model_calls"], summary["cost"], summary["upstream_error"]) == (1, 0.0, None)


def test_the_key_goes_upstream_and_nowhere_else(
    gateway: Mounted, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_VENDOR_KEY", "sk-secret-1")
    upstream.replies = [
        Reply.json({"error": {"message": "Incorrect API key provided: sk-secret-1."}}, 401)
    ]
    line = gateway.open(model(upstream.url, api_key_env="TEST_VENDOR_KEY"))
    status, data = post(line, request(), Authorization="Bearer token-of-the-harness")
    assert upstream.headers[0]["authorization"] == "Bearer sk-secret-1"
    assert status == 401
    assert b"sk-secret-1" not in data
    summary = line.close()
    assert summary["upstream_error"]["class"] == "upstream_auth"
    everything = json.dumps([summary, gateway.events]) + (line.folder / "model.jsonl").read_text()
    assert "sk-secret" not in everything
    assert "token-of-the-harness" not in everything
    assert "authorization" in line.rows("request")[0]["edits"]


def test_a_missing_key_is_said_by_its_name(gateway: Mounted, upstream: Upstream) -> None:
    line = gateway.open(model(upstream.url, api_key_env="TEST_KEY_NOT_SET"))
    status, data = post(line, request())
    assert (status, upstream.bodies) == (401, [])
    assert "TEST_KEY_NOT_SET" in json.loads(data)["error"]["message"]
    assert line.close()["upstream_error"]["class"] == "upstream_auth"


def test_headers_of_the_reply_reach_the_harness(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [Reply.json(answer(), x_request_id="r-1", set_cookie="a=b")]
    _, _, headers = post_with_headers(gateway.open(model(upstream.url)), request())
    assert headers["x-request-id"] == "r-1"
    assert "set-cookie" not in headers


def test_a_reply_that_comes_compressed_unasked_is_understood(
    gateway: Mounted, upstream: Upstream
) -> None:
    packed = gzip.compress(json.dumps(answer(usage=USAGE)).encode())
    kind = {"content-type": "application/json", "content-encoding": "gzip"}
    upstream.replies = [Reply([packed], headers=kind)]
    line = gateway.open(model(upstream.url))
    _, data = post(line, request(), Accept_Encoding="gzip, br, zstd")
    assert json.loads(data) == answer(usage=USAGE)
    assert upstream.headers[0]["accept-encoding"] == "identity"
    assert line.rows("response")[0]["usage"] == COUNTED


def test_blank_lines_that_keep_the_connection_open_pass_at_once(
    gateway: Mounted, upstream: Upstream
) -> None:
    body = json.dumps(answer(usage=USAGE)).encode()
    gate = Semaphore(0)
    upstream.replies = [Reply([b"\n", b"\n", body[:50], body[50:]], gate=gate)]
    line = gateway.open(model(upstream.url))
    reply = start(line, request()).getresponse()
    assert reply.read1(10).strip() == b""
    assert not line.rows("response")
    gate.release(3)
    assert json.loads(reply.read()) == answer(usage=USAGE)
    assert line.rows("response")[0]["usage"] == COUNTED


def test_paths_that_are_not_served_are_named_in_the_wires_own_error(
    gateway: Mounted, upstream: Upstream
) -> None:
    line = gateway.open(model(upstream.url))
    status, data = get(line, "/responses")
    assert status == 404
    assert "POST /v1/chat/completions" in data["error"]["message"]
    assert get(line, "/models") == (
        200,
        {"object": "list", "data": [get(line, "/models/model-1")[1]]},
    )
    line.close()
    assert get(line, "/models")[0] == 404


# ---------------------------------------------------------------- metering


def test_a_call_is_metered_and_priced(gateway: Mounted, upstream: Upstream) -> None:
    line = gateway.open(model(upstream.url))
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}] * 2
    upstream.replies = [Reply.json(answer(usage=USAGE, tool_calls=calls))]
    _, data = post(line, request())
    row = line.rows("response")[0]
    assert row["usage"] == COUNTED
    assert row["cost"] == pytest.approx(COST)
    assert (row["status"], row["complete"], row["tool_calls"], row["error"]) == (200, True, 2, None)
    assert row["body"] == data.decode()
    assert row["call"] == line.rows("request")[0]["seq"]
    summary = line.close()
    assert summary["usage"] == COUNTED
    assert summary["cost"] == pytest.approx(COST)
    assert (summary["model_calls"], summary["upstream_error"]) == (1, None)
    assert summary["first_contact_at"] <= summary["last_activity_at"] <= time.time()


def test_a_stream_is_metered_and_its_usage_event_taken_out(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply.events(DELTA, LAST, USAGE_EVENT)]
    line = gateway.open(model(upstream.url))
    _, data = post(line, request(stream=True))
    assert json.loads(upstream.bodies[0])["stream_options"] == {"include_usage": True}
    assert data == b"".join(Reply.events(DELTA, LAST).chunks)
    row = line.rows("response")[0]
    assert (row["usage"], row["complete"], row["error"]) == (COUNTED, True, None)
    assert row["body"] == data.decode()
    assert line.rows("request")[0]["edits"] == ["stream_options.include_usage"]


def test_a_client_that_asks_for_usage_gets_it_and_no_edit_is_made(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply.events(DELTA, LAST, USAGE_EVENT)]
    line = gateway.open(model(upstream.url))
    asked = request(stream=True, stream_options={"include_usage": True})
    _, data = post(line, asked)
    assert data == b"".join(Reply.events(DELTA, LAST, USAGE_EVENT).chunks)
    assert json.loads(upstream.bodies[0]) == asked
    assert line.rows("request")[0]["edits"] == []
    assert line.rows("response")[0]["usage"] == COUNTED


def test_a_stream_passes_chunk_by_chunk(gateway: Mounted, upstream: Upstream) -> None:
    gate = Semaphore(0)
    upstream.replies = [Reply.events(DELTA, LAST)]
    upstream.replies[0].gate = gate
    reply = start(gateway.open(model(upstream.url)), request(stream=True)).getresponse()
    for chunk in upstream.replies[0].chunks:
        assert reply.read1(100_000) == chunk, "it comes before the next one is sent"
        gate.release()
    assert reply.read1(1) == b""


def test_the_response_is_journaled_before_the_client_can_act_on_it(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(answer(usage=USAGE)), Reply.events(DELTA, LAST, USAGE_EVENT)]
    line = gateway.open(model(upstream.url))
    for number, stream in enumerate((False, True), start=1):
        post(line, request(stream=stream))
        assert len(line.rows("response")) == number


def test_a_reply_without_usage_is_unmeasured_and_not_free(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json(answer(usage=USAGE)), Reply.json(answer())]
    line = gateway.open(model(upstream.url))
    post(line, request())
    post(line, request())
    assert [row["cost"] is None for row in line.rows("response")] == [False, True]
    summary = line.close()
    assert (summary["usage"], summary["cost"], summary["model_calls"]) == (None, None, 2)


def test_an_error_reply_costs_nothing(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [Reply.json({"error": {"message": "too long"}}, 400)]
    line = gateway.open(model(upstream.url))
    assert post(line, request())[0] == 400
    summary = line.close()
    assert summary["usage"]["input"] == 0
    assert summary["cost"] == 0.0
    assert summary["upstream_error"] is None, "a request that is wrong is not the upstream's fault"


def test_a_model_without_prices_has_tokens_and_no_cost(
    gateway: Mounted, upstream: Upstream
) -> None:
    line = gateway.open(model(upstream.url, prices=None))
    post(line, request())
    summary = line.close()
    assert (summary["usage"], summary["cost"]) == (COUNTED, None)


# ---------------------------------------------------------------- who hangs up, and what breaks


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_when_the_harness_hangs_up_the_reply_is_read_to_its_end(
    gateway: Mounted, upstream: Upstream, stream: bool
) -> None:
    body = json.dumps(answer(usage=USAGE)).encode()
    gate = Semaphore(0)
    whole = Reply([body[:20], body[20:40], body[40:]])
    upstream.replies = [Reply.events(DELTA, LAST, USAGE_EVENT) if stream else whole]
    upstream.replies[0].gate = gate
    line = gateway.open(model(upstream.url))
    connection = start(line, request(stream=stream))
    until(lambda: upstream.in_flight)
    connection.close()
    running = gateway.gateway._lines[line.url.split("/")[-2]].running
    until(lambda: any(call.client_gone for call in running.values()))
    gate.release(9)
    row = until(lambda: line.rows("response"))[0]
    assert (row["usage"], row["complete"]) == (COUNTED, False)
    assert line.close()["cost"] == pytest.approx(COST)


def test_closing_an_attempt_cuts_off_what_would_never_end(
    gateway: Mounted, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.gateway.CLOSE", 0.2)
    upstream.replies = [Reply.events(DELTA, LAST)]
    upstream.replies[0].pause = 30
    line = gateway.open(model(upstream.url))
    connection = start(line, request(stream=True))
    until(lambda: upstream.in_flight)
    began = time.monotonic()
    summary = line.close()
    assert time.monotonic() - began < 5
    assert (summary["usage"], summary["cost"]) == (None, None)
    row = line.rows("response")[0]
    assert (row["complete"], row["usage"]) == (False, None)
    assert "cut off" in row["error"]
    connection.close()


STRANGE: dict[str, tuple[Reply, str]] = {
    "empty": (Reply([]), "empty body"),
    "html": (Reply([b"<html>down</html>"], headers={"content-type": "text/html"}), "not JSON"),
    "error in 200": (Reply.json({"error": {"message": "overloaded"}}), "overloaded"),
    "no choices": (Reply.json({"id": "x", "choices": []}), "without choices"),
    "500": (Reply.json({"error": {"message": "boom"}}, 500), "status 500: boom"),
    "404": (Reply.json({"error": {"message": "no such model"}}, 404), "no such model"),
    "redirect": (Reply([], status=307, headers={"location": "http://127.0.0.1:1/"}), "status 307"),
    "error in stream": (Reply.events({"error": {"message": "cut"}}), "error inside the stream"),
    "stream without end": (Reply.events(DELTA, done=False), "before the reply was finished"),
    "stream of junk": (
        Reply([b"data: {broken\n\n"], headers={"content-type": "text/event-stream"}),
        "not JSON",
    ),
    "stream that breaks": (Reply.events(DELTA, done=False, cut=True), "the stream broke"),
    "reply that breaks": (
        Reply([b'{"id"'], headers={"content-type": "application/json", "content-length": "99"}, cut=True),
        "broke off",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_broken_upstream_is_passed_on_and_blamed(
    gateway: Mounted, upstream: Upstream, name: str
) -> None:
    reply, said = STRANGE[name]
    upstream.replies = [reply]
    line = gateway.open(model(upstream.url))
    connection = start(line, request(stream="stream" in name))
    response = connection.getresponse()
    assert response.status == reply.status
    received = b""
    with suppress(OSError, HTTPException) if reply.cut else nullcontext():
        while data := response.read1(10_000):
            received += data
    assert received == b"".join(reply.chunks)
    row = until(lambda: line.rows("response"))[0]
    assert said in row["error"]
    summary = line.close()
    assert summary["upstream_error"]["class"] == "upstream_error"
    assert said in summary["upstream_error"]["detail"]


def test_a_failure_that_a_later_call_made_good_is_no_excuse(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply.json({}, 500), Reply.json(answer(usage=USAGE))]
    line = gateway.open(model(upstream.url))
    assert [post(line, request())[0] for _ in range(2)] == [500, 200]
    assert line.close()["upstream_error"] is None


def test_an_endpoint_out_of_reach_is_told_as_such(
    gateway: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    for url in ("http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"):
        line = gateway.open(model(url))
        status, data = post(line, request())
        assert (status, json.loads(data)["error"]["code"]) == (502, "upstream_unreachable")
        summary = line.close()
        assert summary["upstream_error"]["class"] == "upstream_unreachable"
        assert summary["cost"] == 0.0, "nothing was asked of anybody"


def test_the_openai_sdk_works_through_it(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [Reply.json(answer("Hello.", USAGE)), Reply.events(DELTA, LAST, USAGE_EVENT)]
    client = openai.OpenAI(base_url=gateway.open(model(upstream.url)).url, api_key="token")
    messages: Any = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(model="model-1", messages=messages)
    assert whole.choices[0].message.content == "Hello."
    stream = client.chat.completions.create(model="model-1", messages=messages, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "Hello"


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("which", "limit"), [("model_calls", 2), ("tokens", 2000), ("dollars", COST * 1.5)]
)
def test_a_spent_budget_is_told_in_the_harness_own_error(
    gateway: Mounted, upstream: Upstream, which: str, limit: float
) -> None:
    line = gateway.open(model(upstream.url), {which: limit})
    gateway.events.clear()
    replies = [post(line, request()) for _ in range(4)]
    assert [status for status, _ in replies] == [200, 200, 402, 402]
    assert json.loads(replies[-1][1]) == {"error": {"code": "budget_exceeded"}}
    assert len(upstream.bodies) == 2
    told = [event for event in gateway.events if event["event"] == "budget"]
    assert [(event["which"], event["try"]) for event in told] == [(which, 1)], "once, not for each"
    assert [row["budget"] for row in line.rows("response")] == [None, None, which, which]
    summary = line.close()
    assert (summary["budget"], summary["model_calls"]) == (which, 2)
    assert summary["cost"] == pytest.approx(2 * COST)


def test_a_limit_in_dollars_without_prices_is_refused(gateway: Mounted, upstream: Upstream) -> None:
    with pytest.raises(ValueError, match="no prices"):
        gateway.open(model(upstream.url, prices=None), {"dollars": 1.0})


# ---------------------------------------------------------------- waiting


def shed(status: int = 429, **headers: str) -> Reply:
    return Reply.json({"error": {"message": "slow down"}}, status, **headers)


@pytest.mark.parametrize("status", [429, 529])
def test_a_shed_request_is_repeated_and_the_wait_counted_apart(
    gateway: Mounted, upstream: Upstream, status: int
) -> None:
    answered = Reply.json(answer(usage=USAGE))
    upstream.replies = [
        shed(status, retry_after_ms="100"),
        shed(status, retry_after="0.1"),
        answered,
    ]
    line = gateway.open(model(upstream.url))
    gateway.events.clear()
    assert post(line, request())[0] == 200
    row = line.rows("response")[0]
    assert (row["upstream_tries"], row["upstream_statuses"]) == (3, [status, status, 200])
    assert row["queued_ms"] >= 200
    assert [event["waiting"] for event in gateway.events] == [True, False, True, False]
    summary = line.close()
    assert summary["model_calls"] == 1
    assert summary["waited_seconds"] == pytest.approx(row["queued_ms"] / 1000, abs=0.05)
    assert summary["upstream_error"] is None


def test_a_long_retry_after_holds_nobody_else_up(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [shed(retry_after="30"), Reply.json(answer(usage=USAGE))]
    limited = model(upstream.url, model="shared-1", rate_limits={"concurrency": 1})
    slow, quick = gateway.open(limited), gateway.open(limited)
    connection = start(slow, request())
    until(lambda: len(upstream.bodies) == 1)
    until(lambda: any(event["event"] == "waiting" for event in gateway.events))
    assert post(quick, request())[0] == 200
    summary = slow.close()
    assert summary["usage"]["input"] == 0, "what was shed used nothing"
    assert summary["cost"] == 0.0
    assert slow.rows("response")[0]["complete"] is False
    connection.close()


def test_patience_has_an_end_and_then_the_harness_is_told(
    tmp_path: Path, upstream: Upstream
) -> None:
    upstream.replies = [shed(retry_after="5")]
    with mounted(tmp_path, patience=1.0) as gateway:
        line = gateway.open(model(upstream.url))
        status, data, headers = post_with_headers(line, request())
        assert (status, headers["retry-after"]) == (429, "5")
        assert b"slow down" in data
        assert line.close()["upstream_error"]["class"] == "upstream_error"


def test_an_empty_account_is_not_waited_for(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [
        Reply.json({"error": {"code": "insufficient_quota", "message": "pay"}}, 429)
    ]
    line = gateway.open(model(upstream.url))
    assert post(line, request())[0] == 429
    assert len(upstream.bodies) == 1
    assert "pay" in line.close()["upstream_error"]["detail"]


def test_rate_limits_hold_over_all_attempts_of_a_model(
    gateway: Mounted, upstream: Upstream
) -> None:
    upstream.replies = [Reply([b" ", json.dumps(answer(usage=USAGE)).encode()], pause=0.05)]
    limited = model(upstream.url, model="shared-2", rate_limits={"concurrency": 2})
    lines = [gateway.open(limited) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert {status for status, _ in pool.map(lambda line: post(line, request()), lines)} == {
            200
        }
    assert upstream.most_in_flight == 2
    assert max(line.close()["waited_seconds"] for line in lines) >= 0.05


def test_a_200_call_session_leaves_no_call_out(gateway: Mounted, upstream: Upstream) -> None:
    upstream.replies = [Reply.events(DELTA, LAST, USAGE_EVENT)]
    line = gateway.open(model(upstream.url))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: post(line, request(stream=True)), range(200)))
    summary = line.close()
    assert summary["usage"] == {kind: 200 * count for kind, count in COUNTED.items()}
    rows = line.rows()
    assert [row["seq"] for row in rows] == list(range(1, 401))
    asked = {row["seq"] for row in rows if row["event"] == "request"}
    assert {row["call"] for row in rows if row["event"] == "response"} == asked
