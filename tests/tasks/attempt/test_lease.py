"""One living owner a key; the dead do not hold on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasks.attempt import lease
from tasks.attempt.lease import Leases, process_identity


def test_second_owner_waits_for_the_first(tmp_path: Path) -> None:
    first, second = Leases(tmp_path), Leases(tmp_path)
    assert first.take("k")
    assert not second.take("k")
    first.release("k")
    assert second.take("k")


def test_lease_of_a_killed_process_is_broken(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tasks.attempt.lease import Leases;"
        f"assert Leases(Path({str(tmp_path)!r})).take('k'); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    mine = Leases(tmp_path)
    assert not mine.take("k")
    holder.kill()
    holder.wait()
    assert mine.take("k")


def test_reused_process_number_is_not_the_owner(tmp_path: Path) -> None:
    mine = Leases(tmp_path)
    assert mine.take("k")
    owner = mine.owner("k")
    assert owner is not None
    owner["process"] = f"{os.getpid()}:1"
    (tmp_path / "k").write_text(json.dumps(owner))
    assert Leases(tmp_path).take("k")


def test_lease_of_another_host_is_broken_only_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(json.dumps({"host": "elsewhere", "process": "1:1", "pid": 1}))
    assert not Leases(tmp_path).take("k")
    old = time.time() - lease.TTL - 1
    os.utime(tmp_path / "k", (old, old))
    assert Leases(tmp_path).take("k")


def test_torn_lease_is_broken_after_a_moment(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("")
    assert not Leases(tmp_path).take("k")
    old = time.time() - 10
    os.utime(tmp_path / "k", (old, old))
    assert Leases(tmp_path).take("k")


def test_many_breakers_of_one_dead_lease_yield_one_owner(tmp_path: Path) -> None:
    for round_number in range(100):
        key = f"k{round_number}"
        dead = {"host": "elsewhere", "process": "1:1", "pid": 1}
        (tmp_path / key).write_text(json.dumps(dead))
        old = time.time() - lease.TTL - 1
        os.utime(tmp_path / key, (old, old))
        owners = [Leases(tmp_path) for _ in range(8)]
        assert _race(owners, key).count(True) == 1


def _race(owners: list[Leases], key: str) -> list[bool]:
    """All of them reach for one lease at the same moment; who got it."""
    start = threading.Barrier(len(owners))

    def take(leases: Leases) -> bool:
        start.wait()
        return leases.take(key)

    with ThreadPoolExecutor(len(owners)) as pool:
        return list(pool.map(take, owners))


def test_closing_gives_all_back(tmp_path: Path) -> None:
    leases = Leases(tmp_path)
    assert leases.take("a")
    assert leases.take("b")
    leases.close()
    assert list(tmp_path.iterdir()) == []


def test_dead_process_has_no_identity() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert process_identity(process.pid) is None
    assert process_identity(os.getpid()) == process_identity(os.getpid())
