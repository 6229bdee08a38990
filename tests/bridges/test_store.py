"""The state store: compare-and-set, records that are never cut, and a door of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from host_parts import Bare, RunningHost

from bridges.environments import Answer
from bridges.store import Store
from suites.schema import Tool


def ask(store: Store, tool: str, **arguments: Any) -> Answer:
    return asyncio.run(store.call(Tool.model_construct(name=tool), json.dumps(arguments)))


def told(store: Store, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = ask(store, tool, **arguments)
    assert answer.status == "ok", answer
    return dict(json.loads(answer.text))


def test_put_is_a_compare_and_set_on_seq() -> None:
    store = Store()
    assert told(store, "state.put", key="k", seq=2, state="new") == {"ok": True, "seq": 2}
    for seq in (2, 1):
        late = told(store, "state.put", key="k", seq=seq, state="old")
        assert late == {"ok": False, "latest": 2}
    assert told(store, "state.get", key="k", seq=None) == {"state": "new", "seq": 2}
    assert (ask(store, "state.get", key="k", seq=1)).status == "tool_error"


def test_records_are_listed_by_prefix_and_forgotten_by_key() -> None:
    store = Store()
    for key in ("a/run/1", "a/run/2", "b/run/1"):
        told(store, "state.put", key=key, seq=1, state={})
    keys = told(store, "state.list", prefix="a/")
    assert keys == {"keys": [{"key": "a/run/1", "seq": 1}, {"key": "a/run/2", "seq": 1}]}
    told(store, "state.delete", key="a/run/1")
    assert len((told(store, "state.list", prefix=""))["keys"]) == 2


def test_long_records_come_back_whole() -> None:
    store = Store()
    long = ["x" * 100] * 9000
    told(store, "state.put", key="k", seq=1, state=long)
    assert (told(store, "state.get", key="k"))["state"] == long


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        ("state.put", {"key": "k"}, "refused"),
        ("state.put", {"key": 1, "seq": 1, "state": {}}, "refused"),
        ("state.put", {"key": "k", "seq": "1", "state": {}}, "refused"),
        ("state.drop", {"key": "k"}, "unknown_tool"),
        ("state.get", {"key": "absent"}, "tool_error"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    tool: str, arguments: dict[str, Any], status: str
) -> None:
    assert (ask(Store(), tool, **arguments)).status == status


def test_store_has_a_door_of_its_own_and_is_counted_nowhere(
    host: RunningHost, tmp_path: Path
) -> None:
    who: dict[str, Any] = {"attempt": "durable", "try": 1}
    asked = {"folder": str(tmp_path), "environments": [], "limits": {}, "store": True}
    answer = host.channel.call("open", timeout=30, **who, **asked)
    assert (answer["servers"], answer["store_url"].split("/")[-2:]) == ([], ["store", "mcp"])
    client = Bare(answer["store_url"])
    assert "state.put" in [tool["name"] for tool in client.tools()]
    put = client.call("state.put", '{"key":"k","seq":1,"state":{"n":1}}')
    assert (put["isError"], json.loads(put["text"])["ok"]) == (False, True)
    assert json.loads(client.call("state.get", '{"key":"k"}')["text"])["state"] == {"n": 1}
    summary = host.channel.call("close", timeout=30, **who)
    assert (summary["tool_calls"], summary["first_contact_at"]) == (0, None)
    rows = [json.loads(line) for line in (tmp_path / "bridge.jsonl").read_text().splitlines()]
    assert {row["requestor"] for row in rows} == {"store"}


def test_without_a_store_there_is_none(host: RunningHost) -> None:
    opened = host.open({"name": "look", "input_schema": {"type": "object"}})
    assert "store_url" not in opened.answer
    opened.close()


def test_alarm_rings_after_so_many_answers_and_holds_what_comes_then(host: RunningHost) -> None:
    opened = host.open({"name": "look", "input_schema": {"type": "object"}})
    who: dict[str, Any] = {"attempt": opened.key, "try": 1}
    host.channel.call("alarm", timeout=30, **who, calls=2, number=7)
    client = opened.client()
    client.call("look")
    assert host.events.empty()
    client.call("look")
    assert host.events.get(timeout=30) == {"event": "calls", **who, "number": 7}
    held = opened.client()
    held.connection.timeout = 0.5
    with pytest.raises(TimeoutError):
        held.call("look")
    assert len(opened.rows("call")) == 2
    host.channel.call("alarm", timeout=30, **who, calls=None)
    assert opened.client().call("look")["text"] == "sunny"
    assert opened.close()["tool_calls"] == 3
