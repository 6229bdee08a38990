"""All wires through the real gateway over HTTP: bytes, keys, hang-ups, budgets, upstreams that shed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from threading import Semaphore
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from gateway_parts import (
    COUNTED,
    Line,
    Mounted,
    Reply,
    Upstream,
    get,
    model,
    mounted,
    post,
    post_with_headers,
    start,
    until,
)

from bridges.gateway import WIRES
from bridges.metering import Usage
from bridges.scripted import WIRES as PLAYED
from bridges.scripted_behaviours import Step, ToolCall

SPENT = Usage(**COUNTED)
SPOKEN = Step(text="Let me see, " * 5, calls=(ToolCall("add", '{"a": 1}'),))
EVENTS = {"content-type": "text/event-stream"}


@dataclass(frozen=True)
class Spoken:
    """A wire with replies of its own."""

    name: str

    @property
    def path(self) -> str:
        return f"/{WIRES[self.name].path}"

    def request(self, stream: bool = False, **fields: Any) -> dict[str, Any]:
        said = "input" if self.name == "responses" else "messages"
        asked = {"model": "model-1", said: [{"role": "user", "content": "Say hello."}], **fields}
        if stream and self.name == "chat":
            asked["stream_options"] = {"include_usage": True}
        return asked | ({"stream": True} if stream else {})

    def reply(self, stream: bool = False) -> Reply:
        played = PLAYED[f"v1/{WIRES[self.name].path}"]
        asked = self.request(stream)
        if stream:
            return Reply(list(played.events(asked, "m", "id", SPOKEN, SPENT)), headers=EVENTS)
        return Reply.json(played.whole(asked, "m", "id", SPOKEN, SPENT))

    def error(self, status: int, message: str = "slow down") -> dict[str, Any]:
        return PLAYED[f"v1/{WIRES[self.name].path}"].error(status, message)

    def model(self, upstream: Upstream, **fields: Any) -> dict[str, Any]:
        return model(upstream.url, wire=self.name, **fields)


@pytest.fixture(params=list(WIRES))
def wire(request: pytest.FixtureRequest) -> Spoken:
    return Spoken(request.param)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with mounted(tmp_path_factory.mktemp("wires")) as running:
        yield running


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    running = Upstream()
    yield running
    running.stop()


STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@STREAMED
def test_bytes_pass_unchanged_both_ways(
    gateway: Mounted, upstream: Upstream, wire: Spoken, stream: bool
) -> None:
    upstream.replies = [wire.reply(stream)]
    line = gateway.open(wire.model(upstream))
    asked = json.dumps(wire.request(stream, x_unknown={"b": 1.50, "a": []}), indent=1)
    asked = asked.replace("1.5", "1.50e0").replace("Say", "S\\u00e9\\ud800y")
    status, data = post(line, asked.encode(), f"{wire.path}?beta=true", X_Trace="t1")
    assert status == 200
    assert upstream.bodies == [asked.encode()]
    assert upstream.paths == [f"/v1{wire.path}?beta=true"]
    assert upstream.headers[0]["x-trace"] == "t1"
    assert data == b"".join(upstream.replies[0].chunks)
    row = line.rows("request")[0]
    assert (row["wire"], row["stream"], row["edits"]) == (wire.name, stream, [])
    row = line.rows("response")[0]
    assert (row["usage"], row["tool_calls"], row["error"]) == (COUNTED, 1, None)
    assert row["body"].encode() == data


def test_the_key_goes_upstream_in_the_wires_own_header_and_the_harnesss_does_not(
    gateway: Mounted, upstream: Upstream, wire: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_VENDOR_KEY", "sk-secret-1")
    upstream.replies = [wire.reply()]
    line = gateway.open(wire.model(upstream, api_key_env="TEST_VENDOR_KEY"))
    own = {"Authorization": "Bearer own-1", "X_API_Key": "own-2", "Anthropic_Version": "2023-06-01"}
    post(line, wire.request(), wire.path, **own, Anthropic_Beta="a,b")
    sent = upstream.headers[0]
    keys = {name: sent[name] for name in ("authorization", "x-api-key") if name in sent}
    messages = {"x-api-key": "sk-secret-1"}
    assert keys == (
        messages if wire.name == "messages" else {"authorization": "Bearer sk-secret-1"}
    )
    assert (sent["anthropic-version"], sent["anthropic-beta"]) == ("2023-06-01", "a,b")
    assert line.rows("request")[0]["edits"] == ["authorization"]
    assert "own-" not in (line.folder / "model.jsonl").read_text()


def test_a_line_serves_its_own_wire_only(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    line = gateway.open(wire.model(upstream))
    for other in WIRES.values():
        if other.name != wire.name:
            status, data = post(line, {}, f"/{other.path}")
            assert (status, upstream.bodies) == (404, [])
            assert f"POST /v1{wire.path}" in json.loads(data)["error"]["message"]
    assert get(line, "/models")[1]["data"] == [get(line, "/models/model-1")[1]]
    line.close()
    status, data = post(line, {}, wire.path)
    assert status == 404
    assert (json.loads(data).get("type") == "error") == (wire.name == "messages")


def test_a_stream_passes_event_by_event(gateway: Mounted, upstream: Upstream, wire: Spoken) -> None:
    reply = wire.reply(stream=True)
    reply.gate = Semaphore(0)
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    response = start(line, wire.request(stream=True), wire.path).getresponse()
    for chunk in reply.chunks:
        assert response.read1(100_000) == chunk, "it comes before the next one is sent"
        reply.gate.release()
    assert response.read1(1) == b""


def test_the_record_is_written_before_the_end_is_passed_on(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    reply = wire.reply(stream=True)
    reply.gate = Semaphore(len(reply.chunks) - 1)
    reply.chunks.append(b": the line stays open\n\n")
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    response = start(line, wire.request(stream=True), wire.path).getresponse()
    received = b""
    while len(received) < sum(map(len, reply.chunks[:-1])):
        received += response.read1(100_000)
    assert [row["usage"] for row in line.rows("response")] == [COUNTED]
    reply.gate.release()


@STREAMED
def test_when_the_harness_hangs_up_the_reply_is_read_to_its_end(
    gateway: Mounted, upstream: Upstream, wire: Spoken, stream: bool
) -> None:
    reply = wire.reply(stream)
    if not stream:
        reply.chunks = [reply.chunks[0][:20], reply.chunks[0][20:]]
    reply.gate = Semaphore(0)
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    connection = start(line, wire.request(stream), wire.path)
    until(lambda: upstream.in_flight)
    connection.close()
    running = gateway.gateway._lines[line.url.split("/")[-2]].running
    until(lambda: any(call.client_gone for call in running.values()))
    reply.gate.release(len(reply.chunks))
    row = until(lambda: line.rows("response"))[0]
    assert (row["usage"], row["complete"]) == (COUNTED, False)


def test_a_stream_that_breaks_is_blamed_and_unmeasured(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    reply = wire.reply(stream=True)
    reply.chunks, reply.cut = reply.chunks[:4], True
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    response = start(line, wire.request(stream=True), wire.path).getresponse()
    received = b""
    with suppress(OSError, HTTPException):
        while data := response.read1(10_000):
            received += data
    assert received == b"".join(reply.chunks)
    row = until(lambda: line.rows("response"))[0]
    assert (row["complete"], row["usage"]) == (False, None)
    assert "the stream broke" in row["error"]
    assert line.close()["upstream_error"]["class"] == "upstream_error"


def test_a_line_that_breaks_once_all_was_said_is_nobodys_failure(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    reply = wire.reply(stream=True)
    reply.chunks, reply.cut = [b"".join(reply.chunks)], True
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    assert post(line, wire.request(stream=True), wire.path) == (200, reply.chunks[0])
    row = line.rows("response")[0]
    assert (row["usage"], row["error"], row["complete"]) == (COUNTED, None, True)
    assert line.close()["upstream_error"] is None


def test_what_had_arrived_before_the_line_broke_is_passed_on(
    gateway: Mounted, upstream: Upstream, wire: Spoken, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = wire.reply(stream=True)
    reply.chunks, reply.cut = [b"".join(reply.chunks[:4])], True
    upstream.replies = [reply]
    read = aiohttp.StreamReader.readany

    async def late(stream: aiohttp.StreamReader) -> bytes:
        await asyncio.sleep(0.3)  # by then the line is known to be broken
        return await read(stream)

    monkeypatch.setattr(aiohttp.StreamReader, "readany", late)
    line = gateway.open(wire.model(upstream))
    response = start(line, wire.request(stream=True), wire.path).getresponse()
    received = b""
    with suppress(OSError, HTTPException):
        while data := response.read1(10_000):
            received += data
    assert received == reply.chunks[0]
    row = until(lambda: line.rows("response"))[0]
    assert "the stream broke" in row["error"]
    assert row["body"].encode() == received


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply([]), "empty body"),
        (Reply([b"<html>down</html>"], headers={"content-type": "text/html"}), "not JSON"),
        (Reply.json({"error": {"type": "api_error", "message": "boom"}}), "boom"),
        (Reply.json({}), "status 200 without"),
        (Reply.json({"error": {"message": "gone"}}, 500), "status 500: gone"),
        (Reply([b"data: {broken\n\n"], headers=EVENTS), "not JSON"),
        (Reply([b"\x00\xff" * 50], headers=EVENTS), "no event that can be read"),
        (Reply([], headers=EVENTS), "no event that can be read"),
    ],
    ids=["empty", "html", "error in 200", "no content", "500", "junk", "bytes", "empty stream"],
)
def test_a_strange_reply_is_passed_on_and_blamed(
    gateway: Mounted, upstream: Upstream, wire: Spoken, reply: Reply, said: str
) -> None:
    upstream.replies = [reply]
    line = gateway.open(wire.model(upstream))
    assert post(line, wire.request(), wire.path) == (reply.status, b"".join(reply.chunks))
    assert said in line.rows("response")[0]["error"]
    failed = line.close()["upstream_error"]
    assert failed["class"] == "upstream_error"
    assert said in failed["detail"]


def test_a_spent_budget_is_told_as_the_harness_wants_it(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    upstream.replies = [wire.reply()]
    line = gateway.open(wire.model(upstream), {"tokens": SPENT.total})
    assert [post(line, wire.request(), wire.path)[0] for _ in range(2)] == [200, 402]
    assert len(upstream.bodies) == 1
    assert [row["budget"] for row in line.rows("response")] == [None, "tokens"]
    assert line.close()["budget"] == "tokens"


# ---------------------------------------------------------------- upstreams that shed


@STREAMED
@pytest.mark.parametrize("status", [429, 529])
def test_a_shed_request_is_repeated(
    gateway: Mounted, upstream: Upstream, wire: Spoken, stream: bool, status: int
) -> None:
    shed = Reply.json(wire.error(status), status, retry_after_ms="20")
    upstream.replies = [shed, shed, wire.reply(stream)]
    line = gateway.open(wire.model(upstream))
    assert post(line, wire.request(stream), wire.path)[0] == 200
    row = line.rows("response")[0]
    assert (row["upstream_statuses"], row["usage"]) == ([status, status, 200], COUNTED)
    assert line.close()["waited_seconds"] >= 0.04


OVERLOADED = {
    "chat": b'data: {"error":{"message":"busy","code":429}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","code":"server_is_overloaded","message":"busy"}\n\n',
    "messages": (
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    ),
}


@pytest.mark.parametrize("size", [10, 1000], ids=["in pieces", "at once"])
def test_a_stream_that_begins_with_overload_is_repeated(
    gateway: Mounted, upstream: Upstream, wire: Spoken, size: int
) -> None:
    said = OVERLOADED[wire.name]
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    good = wire.reply(stream=True)
    upstream.replies = [Reply(pieces, headers=EVENTS | {"retry-after-ms": "20"}), good]
    line = gateway.open(wire.model(upstream))
    _, data = post(line, wire.request(stream=True), wire.path)
    assert data == b"".join(good.chunks), "nothing of the first one was passed on"
    row = line.rows("response")[0]
    assert row["upstream_statuses"] == [429 if wire.name == "chat" else 529, 200]
    assert (row["usage"], row["error"]) == (COUNTED, None)
    summary = line.close()
    assert (summary["model_calls"], summary["usage"], summary["upstream_error"]) == (
        1,
        COUNTED,
        None,
    )


def test_an_overload_later_in_the_stream_is_told_as_it_is(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    first = wire.reply(stream=True).chunks[0]
    upstream.replies = [Reply([first + OVERLOADED[wire.name]], headers=EVENTS)]
    line = gateway.open(wire.model(upstream))
    assert post(line, wire.request(stream=True), wire.path)[1] == first + OVERLOADED[wire.name]
    row = line.rows("response")[0]
    assert (row["usage"], row["upstream_tries"]) == (None, 1)
    assert "busy" in row["error"]


def test_patience_with_an_overloaded_stream_has_an_end(
    tmp_path_factory: pytest.TempPathFactory, upstream: Upstream, wire: Spoken
) -> None:
    said = OVERLOADED[wire.name]
    upstream.replies = [Reply([said], headers=EVENTS | {"retry-after": "5"})]
    with mounted(tmp_path_factory.mktemp("short"), patience=1.0) as gateway:
        line = gateway.open(wire.model(upstream))
        assert post(line, wire.request(stream=True), wire.path) == (200, said)
        assert "busy" in line.close()["upstream_error"]["detail"]


def test_a_first_event_that_never_ends_is_passed_on(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    upstream.replies = [Reply([b"data: " + b"x" * 40_000] * 5, headers=EVENTS)]
    line = gateway.open(wire.model(upstream))
    _, data = post(line, wire.request(stream=True), wire.path)
    assert data == b"".join(upstream.replies[0].chunks)


# ---------------------------------------------------------------- the real SDKs


def test_sdks_understand_dynos_own_errors(gateway: Mounted, upstream: Upstream) -> None:
    line = gateway.open(model(upstream.url, wire="responses", api_key_env="TEST_KEY_NOT_SET"))
    client = openai.OpenAI(base_url=line.url, api_key="t", max_retries=0)
    with pytest.raises(openai.AuthenticationError, match="TEST_KEY_NOT_SET"):
        client.responses.create(model="m", input="Hi.")
    line = gateway.open(model(upstream.url, wire="messages", api_key_env="TEST_KEY_NOT_SET"))
    claude = anthropic_client(line)
    with pytest.raises(anthropic.AuthenticationError, match="TEST_KEY_NOT_SET"):
        claude.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi."}]
        )
    assert claude.models.list().data[0].id == "model-1"


def anthropic_client(line: Line) -> anthropic.Anthropic:
    root = line.url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=root, api_key="t", max_retries=0)


@pytest.mark.parametrize("body", [b"", b"{broken"])
def test_a_request_that_cannot_be_read_is_the_upstreams_to_refuse(
    gateway: Mounted, upstream: Upstream, wire: Spoken, body: bytes
) -> None:
    upstream.replies = [Reply.json(wire.error(400), 400)]
    line = gateway.open(wire.model(upstream, parameters={"temperature": 0}))
    assert post(line, body, wire.path)[0] == 400
    assert upstream.bodies == [body]
    assert line.close()["upstream_error"] is None, "the request is the harness's doing"
    line = gateway.open(model("scripted:null", wire=wire.name))
    status, data = post(line, body, wire.path)
    assert (status, "cannot be read" in json.loads(data)["error"]["message"]) == (400, True)


def test_a_reply_that_is_nested_too_deep_is_passed_on(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    deep = b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    for reply in (Reply([deep]), Reply([b"data: " + deep + b"\n\n"], headers=EVENTS)):
        upstream.replies = [reply]
        line = gateway.open(wire.model(upstream))
        assert post(line, wire.request(), wire.path) == (200, reply.chunks[0])
        assert "not JSON" in line.rows("response")[0]["error"]


def test_headers_of_the_reply_reach_the_harness(
    gateway: Mounted, upstream: Upstream, wire: Spoken
) -> None:
    upstream.replies = [
        Reply(wire.reply(stream=True).chunks, headers=EVENTS | {"request-id": "r-1"})
    ]
    line = gateway.open(wire.model(upstream))
    _, _, headers = post_with_headers(line, wire.request(stream=True), wire.path)
    assert (headers["request-id"], headers["content-type"]) == ("r-1", "text/event-stream")
