"""What goes wrong in one world hurts that world alone, is told, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_parts import META, Bare, Opened, RunningHost
from tau2_parts import Reference, call, calls_in_any_order, setup_of

from bridges import workers
from bridges.channel import RemoteError
from bridges.tau2_package import PACKAGE

ENDLESS = '{"expression": "9**9**9**9"}'
HEAVY = shutil.ignore_patterns("telecom", "retail", "airline", "*.pyc")
"""What a copy of the package for the mock domain can do without."""


def children(pid: int) -> list[int]:
    """Living child processes, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def processes_of(host: RunningHost) -> dict[int, list[int]]:
    """The worlds by their zygote."""
    return {zygote: children(zygote) for zygote in children(host.process.pid)}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(true: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def make(opened: Opened, calls: list[dict[str, Any]]) -> list[str]:
    """Carry out calls of both sides; the texts."""
    clients = {"assistant": opened.client()}
    if opened.answer["user_servers"]:
        clients["user"] = Bare(opened.user_url)
    return [
        clients[each["requestor"]].call(each["name"], json.dumps(each["arguments"]))["text"]
        for each in calls
    ]


# ---------------------------------------------------------------- worlds that die


@pytest.mark.parametrize("whom", ["world", "zygote"])
@pytest.mark.parametrize("domain", ["airline", "telecom"])
def test_a_world_that_is_killed_is_rebuilt_from_what_was_answered(
    own_worlds: RunningHost, upstream: Reference, domain: str, whom: str
) -> None:
    setup = setup_of(upstream.tasks(domain)[0])
    calls = calls_in_any_order(upstream, domain, 40, seed=21)
    truth = upstream.comes_to(domain, setup, calls)
    opened = own_worlds.open(environments=[upstream.spec(domain)], setup=setup)
    texts = []
    for part in (calls[:20], calls[20:30], calls[30:]):
        texts += make(opened, part)
        ((zygote, (world,)),) = processes_of(own_worlds).items()
        os.kill({"world": world, "zygote": zygote}[whom], signal.SIGKILL)
        wait_until(lambda dead=world: is_gone(dead))
        wait_until(lambda: own_worlds.stats()["workers"] == 0)
    assert texts == [due["text"] for due in truth["answers"]]
    assert opened.state() == truth["state"] != upstream.begins(domain, setup)
    assert opened.close()["environment_lost"] is None


def test_what_upstream_names_at_random_has_the_same_name_in_a_rebuilt_world(
    own_worlds: RunningHost, upstream: Reference
) -> None:
    """A customer without a draft bill gets one, which telecom names by a random number."""
    refuel = call("refuel_data", customer_id="C1002", line_id="L1004", gb_amount=1.0)
    opened = own_worlds.open(environments=[upstream.spec("telecom")])
    texts = make(opened, [refuel, call("get_customer_by_id", customer_id="C1002")])
    ((_, (world,)),) = processes_of(own_worlds).items()
    os.kill(world, signal.SIGKILL)
    wait_until(lambda: own_worlds.stats()["workers"] == 0)
    bills = json.loads(texts[1])["bill_ids"]
    assert len(bills) == 3
    again = json.loads(make(opened, [call("get_customer_by_id", customer_id="C1002")])[0])
    assert again["bill_ids"] == bills
    assert opened.state() == upstream.comes_to("telecom", None, [refuel])["state"]


def test_a_world_that_dies_under_a_call_costs_that_call(
    own_worlds: RunningHost, upstream: Reference
) -> None:
    calls = calls_in_any_order(upstream, "airline", 20, seed=22)
    opened = own_worlds.open(environments=[upstream.spec("airline")], tool_seconds=60)
    make(opened, calls)
    answers: list[dict[str, Any]] = []
    hanging = threading.Thread(
        target=lambda: answers.append(opened.client().call("calculate", ENDLESS))
    )
    hanging.start()
    wait_until(lambda: len(opened.rows("call")) == 21)
    ((_, (world,)),) = processes_of(own_worlds).items()
    time.sleep(0.1)  # until the call is in the world's hands
    os.kill(world, signal.SIGKILL)
    hanging.join()
    assert answers[0]["isError"]
    assert answers[0]["text"] == "The tool crashed: its process was killed by signal 9."
    assert opened.rows("result")[-1]["status"] == "crashed"
    assert opened.state() == upstream.comes_to("airline", None, calls)["state"]


def test_a_call_that_does_not_end_is_cut_off_and_left_out_while_others_go_on(
    worlds: RunningHost, upstream: Reference
) -> None:
    calls = calls_in_any_order(upstream, "airline", 20, seed=23)
    spec = upstream.spec("airline")
    opened = worlds.open(environments=[spec], tool_seconds=3)
    other = worlds.open(environments=[spec])
    make(opened, calls)
    answers: list[dict[str, Any]] = []
    hanging = threading.Thread(
        target=lambda: answers.append(opened.client().call("calculate", ENDLESS))
    )
    hanging.start()
    wait_until(lambda: len(opened.rows("call")) == 21)
    make(other, calls)
    assert hanging.is_alive()  # the other's twenty calls were answered meanwhile
    hanging.join()
    assert answers[0]["text"] == "The tool did not answer within 3 seconds."
    assert opened.rows("result")[-1]["status"] == "timeout"
    truth = upstream.comes_to("airline", None, calls)
    assert make(opened, calls[:1]) == [
        upstream.comes_to("airline", None, [*calls, calls[0]])["answers"][-1]["text"]
    ]
    assert other.state() == truth["state"]
    assert opened.state() == upstream.comes_to("airline", None, [*calls, calls[0]])["state"]


def test_a_call_whose_client_leaves_is_no_part_of_the_world(
    worlds: RunningHost, upstream: Reference
) -> None:
    opened = worlds.open(environments=[upstream.spec("retail")])
    calls = calls_in_any_order(upstream, "retail", 20, seed=24)
    make(opened, calls)
    client = opened.client()
    params = f'"name":"calculate","arguments":{ENDLESS},"_meta":{json.dumps(META)}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}'
    head = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "calculate",
    }
    client.connection.request("POST", client.path, body.encode(), head)
    wait_until(lambda: len(opened.rows("call")) == 21)
    client.connection.close()
    wait_until(lambda: len(opened.rows("result")) == 21)
    assert opened.rows("result")[-1]["status"] == "cancelled"
    assert opened.state() == upstream.comes_to("retail", None, calls)["state"]


# ---------------------------------------------------------------- worlds that cannot be


@pytest.fixture
def mended(
    upstream: Reference, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningHost, Path]]:
    """A host, and the folder of the package that it finds: a copy to spoil, with the mock domain."""
    folder = tmp_path / "downloads" / f"{PACKAGE}-26.3"
    shutil.copytree(upstream.folder / "tau2", folder / "tau2", ignore=HEAVY)
    host = RunningHost(tmp_path_factory.mktemp("spoilt"), env={"DYNO_HOME": str(tmp_path)})
    yield host, folder / "tau2"
    host.stop()


def refused(host: RunningHost, spec: dict[str, Any], setup: dict[str, Any] | None = None) -> str:
    """Why an attempt could not be opened; nothing of it is left."""
    before = host.stats()
    with pytest.raises(RemoteError) as refusal:
        host.open(environments=[spec], setup=setup)
    assert refusal.value.kind == "WorldFailed"
    wait_until(lambda: host.stats()["workers"] == before["workers"])
    assert host.stats()["open"] == before["open"]
    return str(refusal.value)


def test_a_package_that_is_not_there_is_named_and_found_once_it_is(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    host, package = mended
    package.parent.rename(package.parent.with_name("away"))
    told = refused(host, upstream.spec("mock"))
    assert str(package.parent) in told
    assert "`dyno convert tau2` fetches it" in told
    package.parent.with_name("away").rename(package.parent)
    assert host.open(environments=[upstream.spec("mock")]).state() == upstream.begins("mock", None)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("domains/mock/tools.py", "def broken(:\n", "SyntaxError"),
        ("domains/mock/environment.py", "import sys; sys.exit(3)\n", "SystemExit: 3"),
        ("domains/mock/environment.py", "import os; os._exit(3)\n", "ended while it loaded"),
        ("data/tau2/domains/mock/db.json", '{"tasks": 5}', "ValidationError"),
        ("data/tau2/domains/mock/db.json", '{"tasks"', "JSONDecodeError"),
    ],
)
def test_a_world_that_does_not_load_is_told_with_its_reason_and_loads_once_mended(
    mended: tuple[RunningHost, Path], upstream: Reference, file: str, content: str, told: str
) -> None:
    host, package = mended
    good = (package / file).read_bytes()
    (package / file).write_text(content)
    reason = refused(host, upstream.spec("mock"))
    assert reason.startswith("the world of mock cannot be made: ")
    assert told in reason
    (package / file).write_bytes(good)
    assert host.open(environments=[upstream.spec("mock")]).state() == upstream.begins("mock", None)


def test_a_load_that_does_not_end_is_given_up(
    mended: tuple[RunningHost, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, package = mended
    (package / "domains/mock/environment.py").write_text("import time; time.sleep(1000)\n")
    monkeypatch.setattr(workers, "LOAD_SECONDS", 1)
    argument = {"folder": str(package.parent), "domain": "mock"}

    async def load() -> None:
        zygote = workers.Zygote(("bridges.tau2_world", argument))
        with pytest.raises(workers.ZygoteFailed, match="had not loaded after 1 seconds"):
            await zygote.ready()
        with pytest.raises(workers.ZygoteFailed, match="ended while it loaded"):
            await zygote.ready()
        zygote.close()

    asyncio.run(load())
    wait_until(lambda: not _loading(package))


def _loading(package: Path) -> bool:
    """True while a process has this package on its command line."""
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children(os.getpid())]
    return any(str(package.parent) in line for line in lines)


def test_a_domain_that_a_version_does_not_have_is_named(
    worlds: RunningHost, upstream: Reference
) -> None:
    spec = {**upstream.spec("mock"), "domain": "banking_knowledge"}
    assert "there is no domain 'banking_knowledge'" in refused(worlds, spec)


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ({"initialization_data": {"agent_data": {"tasks": 5}}}, "ValidationError"),
        (
            {"initialization_actions": [call("x") | {"env_type": "assistant", "func_name": "x"}]},
            "AttributeError",
        ),
        (
            {
                "message_history": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "1", "name": "get_users", "arguments": {}}],
                    },
                    {"role": "tool", "id": "1", "content": "something else"},
                ]
            },
            "something else",
        ),
    ],
)
def test_a_setup_that_upstream_refuses_is_told_with_upstreams_reason(
    worlds: RunningHost, upstream: Reference, setup: dict[str, Any], told: str
) -> None:
    assert told in refused(worlds, upstream.spec("mock"), setup)


def test_a_world_that_comes_to_something_else_is_lost_and_says_so(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    host, package = mended
    tools = package / "domains" / "mock" / "tools.py"
    good = "return list(self.db.users.values())"
    source = tools.read_text()
    assert good in source
    tools.write_text(source.replace(good, "import os; return str(os.getpid())"))
    opened = host.open(environments=[upstream.spec("mock")])
    client = opened.client()
    assert client.call("get_users")["text"].isdigit()
    ((_, (world,)),) = processes_of(host).items()
    os.kill(world, signal.SIGKILL)
    wait_until(lambda: host.stats()["workers"] == 0)
    answers = [client.call(name) for name in ("get_users", "nope")]
    reason = "it could not be rebuilt: a call of get_users was answered otherwise than at first"
    assert {answer["text"] for answer in answers} == {f"The environment is lost: {reason}."}
    assert [row["status"] for row in opened.rows("result")] == ["ok", "crashed", "crashed"]
    with pytest.raises(RemoteError, match="the world is lost"):
        opened.state()
    assert opened.close()["environment_lost"] == reason


def test_a_world_whose_code_fails_outside_of_a_call_is_lost(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    host, package = mended
    tools = package / "domains" / "mock" / "tools.py"
    source = tools.read_text()
    tools.write_text(
        source.replace("return list(self.db.users.values())", "return {1, 2}  # no JSON")
    )
    opened = host.open(environments=[upstream.spec("mock")])
    assert "Unsupported type" in opened.client().call("get_users")["text"]
    assert "get_users upstream's own code failed" in opened.close()["environment_lost"]


def test_a_world_is_synchronised_after_a_call_that_failed_too(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    """As upstream's orchestrator does after every step; no tool of 26.3 can tell, so one is made."""
    host, package = mended
    tools, environment = (package / "domains" / "mock" / f for f in ("tools.py", "environment.py"))
    failing = 'self.db.users["gone"] = None; raise ValueError("half-way")'
    source = tools.read_text().replace("return list(self.db.users.values())", failing)
    looking = 'return str("gone" in self.db.users)'
    tools.write_text(source.replace('return "Transfer successful"', looking))
    with environment.open("a") as lines:
        lines.write("def _sync(self):\n    self.tools.db.users.pop('gone', None)\n\n")
        lines.write("Environment.sync_tools = _sync\n")
    opened = host.open(environments=[upstream.spec("mock")])
    calls = [call("get_users"), call("transfer_to_human_agents", summary="x")]
    assert make(opened, calls) == ["Error: half-way", "False"]


# ---------------------------------------------------------------- nothing is left


def test_closing_an_attempt_ends_its_world_and_no_other(
    own_worlds: RunningHost, upstream: Reference
) -> None:
    spec = upstream.spec("mock")
    first, second = (own_worlds.open(environments=[spec]) for _ in range(2))
    ((_, before),) = processes_of(own_worlds).items()
    assert len(before) == 2
    first.close()
    ((_, after),) = processes_of(own_worlds).items()
    assert len(after) == 1
    assert second.state() == upstream.begins("mock", None)


def test_domains_have_a_zygote_each_and_share_it(
    own_worlds: RunningHost, upstream: Reference
) -> None:
    """Also where all are opened before any domain is loaded."""
    opening = [
        threading.Thread(target=own_worlds.open, kwargs={"environments": [upstream.spec(domain)]})
        for domain in ("mock", "telecom", "mock")
    ]
    for each in opening:
        each.start()
    for each in opening:
        each.join()
    assert sorted(map(len, processes_of(own_worlds).values())) == [1, 2]


@pytest.mark.parametrize("how", ["SIGKILL", "hang up"])
def test_nothing_outlives_the_host(own_worlds: RunningHost, upstream: Reference, how: str) -> None:
    busy = own_worlds.open(environments=[upstream.spec("airline")])
    for domain in ("mock", "airline"):
        own_worlds.open(environments=[upstream.spec(domain)])
    hanging = threading.Thread(target=_into_the_void, args=(busy.client(),), daemon=True)
    hanging.start()
    wait_until(lambda: bool(busy.rows("call")))
    own_worlds.channel.call("prepare", environments=[upstream.spec("retail")])  # it still loads
    family = processes_of(own_worlds)
    pids = [*family, *(pid for worlds in family.values() for pid in worlds)]
    assert len(pids) == 6
    if how == "SIGKILL":
        own_worlds.process.kill()
    else:
        own_worlds.channel.close()
    own_worlds.process.wait(10)
    wait_until(lambda: all(map(is_gone, pids)))


def test_a_load_that_hangs_does_not_outlive_the_host(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    host, package = mended
    (package / "domains/mock/environment.py").write_text("import time; time.sleep(1000)\n")
    host.channel.call("prepare", environments=[upstream.spec("mock")])
    (zygote,) = processes_of(host)
    time.sleep(1)  # until it hangs
    host.process.kill()
    host.process.wait(10)
    wait_until(lambda: is_gone(zygote))


def _into_the_void(client: Bare) -> None:
    try:
        client.call("calculate", ENDLESS)
    except Exception:  # the connection ends with the host
        pass


def test_what_is_prepared_is_loaded_before_the_first_attempt(
    own_worlds: RunningHost, upstream: Reference
) -> None:
    absent = {**upstream.spec("mock"), "package": "0.0"}
    specs = [upstream.spec("mock"), absent, {"name": "functions", "tools": []}]
    own_worlds.channel.call("prepare", environments=specs)
    (zygote,) = processes_of(own_worlds)
    own_worlds.open(environments=[upstream.spec("mock")])
    assert list(processes_of(own_worlds)) == [zygote]


def test_the_package_in_the_cache_stays_as_it_was_fetched(
    mended: tuple[RunningHost, Path], upstream: Reference
) -> None:
    host, package = mended
    before = sorted(package.rglob("*"))
    make(host.open(environments=[upstream.spec("mock")]), [call("get_users")])
    assert sorted(package.rglob("*")) == before


def test_upstreams_code_sees_no_key(mended: tuple[RunningHost, Path], upstream: Reference) -> None:
    _, package = mended
    tools = package / "domains" / "mock" / "tools.py"
    spied = "import os; return dict(os.environ)"
    tools.write_text(tools.read_text().replace("return list(self.db.users.values())", spied))
    home = {"DYNO_HOME": str(package.parents[2]), "VENDOR_API_KEY": "sk-not-to-be-seen"}
    folder = package.parents[3] / "spied"
    folder.mkdir()
    host = RunningHost(folder, env=home)
    try:
        seen = host.open(environments=[upstream.spec("mock")]).client().call("get_users")["text"]
    finally:
        host.stop()
    assert "PATH" in json.loads(seen)
    assert not json.loads(seen).keys() & {"VENDOR_API_KEY", "HOME", "DYNO_HOME"}
