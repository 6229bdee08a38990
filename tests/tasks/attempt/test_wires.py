"""A harness of each wire, from its file to its record: told where to ask, metered, equal to the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.schema import Harness
from tests.tasks.attempt.conftest import Bench

ASKS = """
import json, subprocess, sys, urllib.request
url, said = sys.argv[1:]
for turn in range(2):
    body = {"model": "any", "stream": turn == 1, said: [{"role": "user", "content": "Hi."}]}
    body["stream_options"] = {"include_usage": True}
    headers = {"Content-Type": "application/json"}
    reply = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
    assert b"get_weather" in reply.read()
subprocess.run(["tool", "get_weather", '{"city": "Oslo"}'], check=True)
"""
WIRES = {
    "chat": ("{{ model_url }}/chat/completions", "messages"),
    "responses": ("{{ model_url }}/responses", "input"),
    "messages": ("{{ model_root }}/v1/messages?beta=true", "messages"),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_scripted_model_plays_on_the_harnesss_wire(
    bench: Bench, tmp_path: Path, wire: str
) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    url, said = WIRES[wire]
    harness = Harness(
        name=f"asks-{wire}",
        command=("{{ python }}", str(script), url, said),
        wire=wire,  # type: ignore[arg-type]
        speaks=("shell",),
        version="1",
    )
    model: dict[str, Any] = {
        "name": "telling",
        "endpoint": "scripted:oracle",
        "scripted": {"cache_read": 0.3, "cache_write": 0.2, "reasoning": 3},
    }
    bundle = bench.run(harness, models=[model])
    host = bundle.record["host"]
    assert (bundle.record["ending"], host["model_calls"]) == ("clean", 2)
    assert host["ledger"] == {"requests": 2, **host["usage"]}
    assert min(host["usage"].values()) > 0
    rows = bundle.rows("model.jsonl")
    assert {row["wire"] for row in rows if row["event"] == "request"} == {wire}
    forced = [json.loads(row["body"])["model"] for row in rows if row["event"] == "request"]
    assert forced == ["any", "any"], "the journal shows what the harness sent"


def test_a_harness_with_a_model_of_its_own_has_no_ledger(bench: Bench) -> None:
    own = Harness(name="own", command=("true",), wire="none", speaks=("shell",), version="1")
    assert bench.run(own).record["host"]["ledger"] is None
