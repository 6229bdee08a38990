from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from host_parts import ANYTHING, WEATHER, Bare, Opened, RunningHost, coded

from bridges.channel import ChannelClosed, RemoteError
from bridges.journal import CONTRACT

WAITS = "import time\ndef wait():\n    time.sleep(1000)\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(WAITS)
    return tmp_path


def wait_for_row(opened: Opened, event: str) -> None:
    deadline = time.monotonic() + 10
    while not opened.rows(event):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---------------------------------------------------------------- open and close


def test_it_says_where_it_is_and_which_contract_it_keeps(host: RunningHost) -> None:
    assert host.ready == {"event": "ready", "port": host.port, "contract": CONTRACT}


def test_an_attempt_has_its_own_unguessable_address_and_only_its_own_tools(
    host: RunningHost,
) -> None:
    first = host.open({"name": "one", "input_schema": ANYTHING})
    second = host.open({"name": "two", "input_schema": ANYTHING})
    assert first.url != second.url
    token = first.answer["model_token"]
    assert len(token) >= 32
    assert first.url == f"http://127.0.0.1:{host.port}/t/{token}/functions/mcp"
    assert first.answer["model_url"] is None
    assert [tool["name"] for tool in first.client().tools()] == ["one"]
    assert [tool["name"] for tool in second.client().tools()] == ["two"]
    assert first.client().call("two")["isError"]
    assert [row["tool"] for row in first.rows("call")] == ["two"]
    assert not second.rows("call")


def test_closing_sums_up_and_takes_the_address_away_while_others_run(host: RunningHost) -> None:
    closed, other = host.open(WEATHER), host.open(WEATHER)
    client = closed.client()
    client.tools()
    client.call("weather_get", '{"city": "x"}')
    client.call("weather_get", "{}")
    client.call("nothing")
    summary = closed.close()
    now = time.time()
    assert now - 60 < summary["first_contact_at"] < summary["last_activity_at"] <= now
    assert {key: summary[key] for key in ("listed", "tool_calls", "tool_errors", "dropped")} == {
        "listed": True,
        "tool_calls": 3,
        "tool_errors": 2,
        "dropped": False,
    }
    assert (summary["model_calls"], summary["usage"], summary["cost"]) == (0, None, None)
    assert client.send(b"{}")[0] == 404
    assert other.client().call("weather_get", '{"city": "x"}')["text"] == "sunny"
    with pytest.raises(RemoteError, match="is not open"):
        closed.close()


def test_an_attempt_that_nobody_touched_says_so(host: RunningHost) -> None:
    summary = host.open(WEATHER).close()
    assert (summary["first_contact_at"], summary["listed"]) == (None, False)


def test_an_attempt_is_listed_when_every_server_with_tools_was(host: RunningHost) -> None:
    def environment(name: str, *tools: dict, audience: str = "agent") -> dict:
        return {"name": name, "kind": "functions", "tools": tools, "audience": audience}

    tool = {"name": "do", "input_schema": ANYTHING, "result": "done"}
    worlds = [environment("shop", tool), environment("phone", tool, audience="user")]
    opened = host.open(environments=[*worlds, environment("empty")])
    shop, phone, _ = (Bare(server["url"]) for server in opened.answer["servers"])
    shop.tools()
    phone.call("do")
    (row,) = opened.rows("call")
    assert (row["server"], row["requestor"]) == ("phone", "user")
    assert not opened.close()["listed"]
    opened = host.open(environments=[*worlds, environment("empty")])
    for server in opened.answer["servers"][:2]:
        Bare(server["url"]).tools()
    assert opened.close()["listed"]
    assert host.open(environments=[]).close()["listed"]


def test_what_cannot_be_opened_is_refused_and_leaves_nothing(host: RunningHost) -> None:
    before = host.stats()["open"]
    opened = host.open(WEATHER)
    again = {
        "attempt": opened.key,
        "folder": str(opened.folder),
        "environments": [],
        "limits": {},
        "try": 1,
    }
    with pytest.raises(RemoteError, match="is open already"):
        host.channel.call("open", **again)
    with pytest.raises(RemoteError, match="no such folder"):
        host.channel.call("open", **{**again, "try": 2, "folder": "/nowhere/at/all"})
    opened.client().tools()
    with pytest.raises(RemoteError, match="already has a record"):
        host.channel.call("open", **{**again, "try": 2})
    with pytest.raises(RemoteError, match="kind"):
        host.open(environments=[{"name": "x", "kind": "unheard_of"}])
    with pytest.raises(RemoteError, match="no such verb: 'dance'"):
        host.channel.call("dance")
    opened.close()
    assert host.stats()["open"] == before


def test_many_are_opened_used_and_closed_at_once(host: RunningHost) -> None:
    problems: list[BaseException] = []

    def live(number: int) -> None:
        try:
            for _ in range(5):
                opened = host.open({"name": f"t{number}", "input_schema": ANYTHING})
                client = opened.client()
                assert [tool["name"] for tool in client.tools()] == [f"t{number}"]
                assert client.call(f"t{number}", f'{{"n":{number}}}')["text"] == "sunny"
                assert opened.close()["tool_calls"] == 1
                assert [row["arguments"] for row in opened.rows("call")] == [f'{{"n":{number}}}']
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


# ---------------------------------------------------------------- who may come in


def test_a_token_that_nobody_was_given_finds_nothing(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    for path in (
        "/",
        "/t/wrong/functions/mcp",
        "/m/wrong/v1/models",
        "/t",
        f"/t/{opened.answer['model_token']}/other/mcp",
        f"/t/{opened.answer['model_token']}/functions",
        f"/m/{opened.answer['model_token']}/v1/models",
    ):
        client = opened.client()
        client.path = path
        status, body = client.send(b"{}")
        assert (status, json.loads(body)["error"]["message"]) == (404, "There is nothing here.")


def test_a_web_page_cannot_use_an_address_it_has_learned(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    for version in ("2026-07-28", "2025-06-18"):
        headers = {"mcp-protocol-version": version}
        assert opened.client().send(body, {**headers, "host": "evil.example"})[0] == 421
        assert opened.client().send(body, {**headers, "origin": "http://evil.example"})[0] == 403
        assert opened.client().send(body, {**headers, "content-type": "text/plain"})[0] == 400
    assert not opened.rows()


def test_what_is_no_post_is_refused_at_once(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    for method in ("GET", "DELETE", "PUT"):
        assert opened.client().send(b"", method=method)[0] == 405


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b'{"jsonrpc":"2.0"', 400),
        (b'{"method":"tools/call","params":{"arguments":{}}} {}', 400),
        (b'{"method":"tools/call","params":{"arguments":[1,}}', 400),
        (b'{"method":"tools/call","params":{"arguments":' + b"[" * 5000, 400),
        (b'\xff{"method":"x"}', 400),
        ('{"method":"x"}'.encode("utf-16"), 400),
        (b"[]", 400),
        (b"7", 400),
        (b'{"jsonrpc":"2.0","id":1,"method":["tools/call"],"params":{}}', 400),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}', 202),
    ],
)
def test_a_broken_request_hurts_nobody(host: RunningHost, body: bytes, status: int) -> None:
    opened = host.open(WEATHER)
    for version in ("2026-07-28", "2025-06-18"):
        client = opened.client()
        assert client.send(body, {"mcp-protocol-version": version})[0] == status
        assert client.call("weather_get", '{"city": "x"}')["text"] == "sunny"


def test_a_request_longer_than_a_megabyte_is_refused(host: RunningHost) -> None:
    opened = host.open(WEATHER)
    with pytest.raises((AssertionError, OSError)) as refused:
        opened.client().call("weather_get", json.dumps({"city": "x" * 1_100_000}))
    if refused.type is AssertionError:  # else it hung up before we had said it all
        assert "longer than 1048576 bytes" in str(refused.value)
    fits = json.dumps({"city": "x" * 1_000_000})
    assert opened.client().call("weather_get", fits)["text"] == "sunny"
    assert opened.rows("call")[0]["arguments"] == fits


# ---------------------------------------------------------------- cut short


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
def test_a_client_that_goes_away_has_its_call_cancelled(
    host: RunningHost, root: Path, version: str
) -> None:
    opened = host.open(*coded("wait"), root=root, tool_seconds=60)
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "wait",
                "arguments": {},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": version,
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
    )
    parts = urlsplit(opened.url)
    connection = http.client.HTTPConnection(parts.netloc)
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "mcp-protocol-version": version,
        "mcp-method": "tools/call",
        "mcp-name": "wait",
    }
    connection.request("POST", parts.path, body, headers)
    wait_for_row(opened, "call")
    connection.close()
    wait_for_row(opened, "result")
    (row,) = opened.rows("result")
    assert (row["status"], row["is_error"], row["text"]) == ("cancelled", False, "")
    summary = opened.close()
    assert (summary["tool_calls"], summary["tool_errors"]) == (1, 0)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18"])
def test_closing_cancels_what_runs_and_journals_it_once(
    host: RunningHost, root: Path, version: str
) -> None:
    opened = host.open(*coded("wait"), root=root, tool_seconds=60)
    statuses: list[int] = []

    def call() -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": "wait", "arguments": {}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {
            "mcp-protocol-version": version,
            "mcp-method": "tools/call",
            "mcp-name": "wait",
        }
        statuses.append(opened.client().send(body.encode(), headers)[0])

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(opened.rows("call")) < 3:
        time.sleep(0.01)
    began = time.monotonic()
    summary = opened.close()
    assert time.monotonic() - began < 10
    for thread in threads:
        thread.join(10)
    assert all(status >= 400 for status in statuses)
    assert len(statuses) == 3
    results = opened.rows("result")
    assert [row["status"] for row in results] == ["cancelled"] * 3
    assert {row["call"] for row in results} == {row["seq"] for row in opened.rows("call")}
    assert not summary["dropped"]


# ---------------------------------------------------------------- the process


def test_ctrl_c_is_not_for_the_host(own_host: RunningHost) -> None:
    os.kill(own_host.process.pid, signal.SIGINT)
    opened = own_host.open(WEATHER)
    assert opened.client().call("weather_get", '{"city": "x"}')["text"] == "sunny"
    assert own_host.process.poll() is None


def test_the_end_of_its_flow_is_the_end_of_the_host(own_host: RunningHost) -> None:
    opened = own_host.open(WEATHER)
    opened.client().call("weather_get", '{"city": "x"}')
    began = time.monotonic()
    own_host.channel.close()
    own_host.process.wait(5)
    assert time.monotonic() - began < 5
    assert [row["event"] for row in opened.rows()] == ["call", "result"]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", own_host.port), timeout=2)


def test_a_flow_learns_that_its_host_was_killed(own_host: RunningHost) -> None:
    own_host.process.kill()
    own_host.process.wait(5)
    with pytest.raises(ChannelClosed):
        own_host.stats()


def test_a_hundred_attempts_weigh_little(own_host: RunningHost) -> None:
    tools = [
        {
            "name": f"tool_{number}",
            "description": "What it does, at some length. " * 5,
            "input_schema": WEATHER["input_schema"],
        }
        for number in range(20)
    ]
    before = own_host.stats()
    opened = [own_host.open(*tools) for _ in range(100)]
    stats = own_host.stats()
    assert stats["open"] == 100
    assert before["rss_bytes"] < 110_000_000
    assert stats["rss_bytes"] - before["rss_bytes"] < 30_000_000
    for attempt in opened:
        attempt.close()
    assert own_host.stats()["open"] == 0


# ---------------------------------------------------------------- the model beside the tools


def scripted(behaviour: str, **script: object) -> dict[str, object]:
    return {
        "endpoint": f"scripted:{behaviour}",
        "model": "m",
        "name": f"scripted:{behaviour}",
        "wire": "chat",
        "api_key_env": None,
        "prices": {"date": "2026-01-01", "input": 1.0, "output": 2.0},
        "parameters": {},
        "rate_limits": {},
        "scripted": {"behaviour": behaviour, "settings": {}, "seed": 1, "native": {}, **script},
    }


def chat(url: str, token: str, content: str = "hello") -> tuple[int, dict]:
    """Status and body of one chat completion."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    messages = [{"role": "user", "content": content}]
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    body = json.dumps({"model": "m", "messages": messages})
    connection.request("POST", f"{parts.path}/chat/completions", body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_tools_and_model_of_an_attempt_share_one_record(own_host: RunningHost) -> None:
    oracle = {"calls": [{"tool": "weather_get", "arguments": {"city": "x"}}], "answer": "Done."}
    model = scripted("oracle", oracle=oracle, tools=[WEATHER])
    opened = own_host.open(WEATHER, model=model, model_calls=2)
    url, token = opened.answer["model_url"], opened.answer["model_token"]
    assert url == f"http://127.0.0.1:{own_host.port}/m/{token}/v1"
    status, answer = chat(url, token)
    assert status == 200
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    opened.client().call(call["function"]["name"], call["function"]["arguments"])
    assert chat(url, token)[0] == 200
    assert chat(url, token) == (402, {"error": "spent"})
    event = own_host.events.get(timeout=10)
    assert (event["event"], event["attempt"], event["try"]) == ("budget", opened.key, 1)
    summary = opened.close()
    assert (summary["model_calls"], summary["budget"]) == (2, "model_calls")
    assert (summary["tool_calls"], summary["tool_errors"]) == (1, 0)
    assert summary["cost"] > 0
    assert summary["usage"]["input"] > 0
    model_rows = [json.loads(row) for row in (opened.folder / "model.jsonl").open()]
    order = sorted((row["seq"], row["event"]) for row in [*model_rows, *opened.rows()])
    assert [seq for seq, _ in order] == list(range(1, 9))
    assert [event for _, event in order[:4]] == ["request", "response", "call", "result"]
    assert summary["first_contact_at"] <= model_rows[0]["at"]
    assert chat(url, token)[0] == 404


def test_an_attempt_whose_model_cannot_be_had_leaves_nothing_open(own_host: RunningHost) -> None:
    with pytest.raises(RemoteError):
        own_host.open(WEATHER, model={**scripted("null"), "wire": "smoke signals"})
    assert own_host.stats()["open"] == 0
