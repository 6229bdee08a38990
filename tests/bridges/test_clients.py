"""Clients as they are in the field: both SDK generations, over HTTP, unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from host_parts import WEATHER, Opened, RunningHost, coded
from mcp import Client

from suites.home import PROJECT

REQUIREMENTS = PROJECT / "tests" / "requirements-mcp1.txt"


@pytest.fixture(scope="session")
def old_sdk() -> Path:
    """A folder with the 1.x SDK, installed once and kept (DYNO_TEST_CACHE says where)."""
    cache = Path(os.environ.get("DYNO_TEST_CACHE") or tempfile.gettempdir())
    known = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache / f"dyno-mcp1-{known}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=cache, prefix="dyno-mcp1-draft-"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "--target", str(draft), "-r", str(REQUIREMENTS)], check=True)
        try:
            draft.rename(folder)
        except OSError:  # another run was faster
            shutil.rmtree(draft)
    return folder


@pytest.fixture
def slow(host: RunningHost, tmp_path: Path) -> Opened:
    (tmp_path / "code.py").write_text("import time\ndef wait():\n    time.sleep(1000)\n")
    return host.open(*coded("wait"), root=tmp_path, tool_seconds=60)


def wait_for_result(opened: Opened) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while not opened.rows("result"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return opened.rows("result")[0]


def test_a_client_of_the_old_sdk_works_and_may_leave_as_it_likes(
    host: RunningHost, slow: Opened, old_sdk: Path
) -> None:
    opened = host.open(WEATHER)
    script = Path(__file__).with_name("old_client.py")
    ran = subprocess.run(
        [sys.executable, "-S", str(script), opened.url, slow.url],
        env={"PYTHONPATH": str(old_sdk), "NO_PROXY": "127.0.0.1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout)
    assert got["sdk"] == "1.30.0"
    assert (got["protocol"], got["server"]) == ("2025-11-25", "functions")
    assert got["session"] is None
    assert got["tools"] == ["weather_get"]
    assert got["good"] == [False, "sunny", None]
    assert got["bad"][0] is True
    assert "arguments.city: 5 is not of type 'string'" in got["bad"][1]
    assert got["unknown"] == [True, "There is no tool 'nope'. The tools here: weather_get."]
    assert got["many"] == [False] * 20
    assert "Timed out" in got["abandoned"]
    listed = opened.rows("list")
    assert {row["protocol"] for row in listed} == {"2025-11-25"}
    assert json.loads(opened.rows("call")[0]["arguments"]) == {"city": "Paris é", "days": 2}
    assert opened.close()["tool_calls"] == 23
    assert wait_for_result(slow)["status"] == "cancelled"


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_a_client_of_the_new_sdk_works_in_either_era(host: RunningHost, mode: Any) -> None:
    opened = host.open(WEATHER)

    async def use() -> list[Any]:
        async with Client(opened.url, mode=mode) as client:
            tools = (await client.list_tools()).tools
            good = await client.call_tool("weather_get", {"city": "Paris", "days": 2})
            bad = await client.call_tool("weather_get", {"days": 2})
            unknown = await client.call_tool("nope", {})
            many = await asyncio.gather(
                *(client.call_tool("weather_get", {"city": str(n)}) for n in range(20))
            )
            assert not any(answer.is_error for answer in many)
            return [tools, good, bad, unknown]

    tools, good, bad, unknown = asyncio.run(use())
    assert [tool.name for tool in tools] == ["weather_get"]
    assert tools[0].input_schema == WEATHER["input_schema"]
    assert (good.is_error, good.content[0].text, good.structured_content) == (False, "sunny", None)
    assert bad.is_error
    assert "'city' is a required property" in bad.content[0].text
    assert unknown.is_error
    protocol = "2025-11-25" if mode == "legacy" else "2026-07-28"
    assert {row["protocol"] for row in opened.rows("list")} == {protocol}
    statuses = [row["status"] for row in opened.rows("result")]
    assert statuses == ["ok", "refused", "unknown_tool"] + ["ok"] * 20
    summary = opened.close()
    assert (summary["listed"], summary["tool_calls"], summary["tool_errors"]) == (True, 23, 2)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_new_client_that_stops_waiting_has_its_call_cancelled(slow: Opened, mode: Any) -> None:
    async def use() -> None:
        async with Client(slow.url, mode=mode) as client:
            call = asyncio.create_task(client.call_tool("wait", {}))
            while not slow.rows("call"):
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(use())
    assert wait_for_result(slow)["status"] == "cancelled"
    summary = slow.close()
    assert (summary["tool_calls"], summary["tool_errors"]) == (1, 0)
