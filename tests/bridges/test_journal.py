from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridges.journal import Journal
from suites.home import PROJECT


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


def test_one_order_runs_over_both_files(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2)
    assert journal.append("model", "request", body="{}") == 1
    assert journal.append("bridge", "call", tool="f", arguments="{}") == 2
    journal.turn = 3
    assert journal.append("model", "response", requestor="user", call=1) == 3
    journal.close()
    first, third = rows(tmp_path, "model.jsonl")
    (second,) = rows(tmp_path, "bridge.jsonl")
    assert [first["seq"], second["seq"], third["seq"]] == [1, 2, 3]
    assert (second["event"], second["requestor"], second["try"]) == ("call", "agent", 2)
    assert (first["turn"], third["turn"], third["requestor"]) == (0, 3, "user")
    assert first["at"] <= second["at"] <= third["at"]
    assert not journal.dropped


def test_a_row_outlives_a_process_that_is_killed_right_after_it(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal; from bridges.journal import Journal\n"
        f"Journal(pathlib.Path({str(tmp_path)!r}), 1).append('bridge', 'call', tool='f')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == -9
    assert rows(tmp_path, "bridge.jsonl")[0]["tool"] == "f"


def test_what_utf8_and_json_cannot_hold_is_kept_readable(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1)
    journal.append(
        "model",
        "response",
        text="\ud800é\u2028",
        body=b"\xffok",
        nested={"\udfff": [float("nan"), {1, 2}]},
    )
    journal.close()
    data = (tmp_path / "model.jsonl").read_bytes()
    data.decode("utf-8")
    row = json.loads(data, parse_constant=pytest.fail)
    assert (row["text"], row["body"]) == ("\\ud800é\u2028", "\\xffok")
    assert row["nested"] == {"\\udfff": [None, "{1, 2}"]}
    assert not journal.dropped


def test_a_full_disk_is_told_and_fails_nobody_and_leaves_whole_rows(tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, signal; from bridges.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"journal = Journal(pathlib.Path({str(tmp_path)!r}), 1)\n"
        "journal.append('bridge', 'call', arguments='a' * 500)\n"
        "assert not journal.dropped\n"
        "assert journal.append('bridge', 'call', arguments='b' * 500) == 2\n"
        "assert journal.dropped\n"
        "assert journal.append('bridge', 'call', arguments='c') == 3\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)
    assert [row["seq"] for row in rows(tmp_path, "bridge.jsonl")] == [1, 3]


def test_a_record_without_end_is_cut_and_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1, limit_bytes=1000)
    for _ in range(100):
        journal.append("bridge", "call", tool="f")
        journal.append("model", "request", body="{}")
    journal.close()
    kept = [*rows(tmp_path, "bridge.jsonl"), *rows(tmp_path, "model.jsonl")]
    assert sorted(row["seq"] for row in kept) == list(range(1, len(kept) + 1))
    assert journal.dropped
    assert journal.seq == 200


def test_a_row_after_the_end_counts_as_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1)
    journal.close()
    journal.append("bridge", "call")
    assert journal.dropped
    assert not list(tmp_path.iterdir())


def test_a_try_is_recorded_once(tmp_path: Path) -> None:
    Journal(tmp_path, 1).append("model", "request")
    with pytest.raises(FileExistsError, match=r"model\.jsonl"):
        Journal(tmp_path, 1)
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "nowhere", 1)
