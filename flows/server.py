"""One tuned local Prefect server per DYNO_HOME: started when needed, reused, stopped when idle.

A cold start takes some twenty seconds, so the server outlives the command that started it; a small
supervisor process keeps it for as long as a living dyno process uses it, and ends it after a quiet spell.
Where a server is configured (PREFECT_API_URL), dyno uses that and none of this runs. Reading commands
never come here. The server holds nothing that dyno needs: delete its database, and only pictures are lost.

    DYNO_HOME/prefect/
      server.json      {url, pid, process} of the server, written once it answers
      clients/<pid>    one file a process that uses it
      server.log       what it and its supervisor say
      prefect.db …     the server's own
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from suites.home import PROJECT, dyno_home
from tasks.attempt.lease import process_identity
from warehouse.evidence import write_atomically

IDLE_SECONDS = float(os.environ.get("DYNO_SERVER_IDLE", "900"))
START_SECONDS = 180.0

# Batched recording costs the server three to four times less CPU for the same records
# (facts/stack.md A1); the UI has to be told its own port (A11).
TUNED = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "200",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}


def prefect_home() -> Path:
    """Where Prefect keeps its things for this DYNO_HOME."""
    return dyno_home() / "prefect"


def configure_client() -> None:
    """Set what Prefect reads when it is imported: its home, its silence. Call before importing it."""
    defaults = {
        "PREFECT_HOME": str(prefect_home()),
        "PREFECT_LOCAL_STORAGE_PATH": str(prefect_home() / "results"),
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_CLI_PROMPT": "false",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def configured_url() -> str | None:
    """The API URL that the user has set, if any."""
    return os.environ.get("PREFECT_API_URL")


def running_url() -> str | None:
    """The local server's API URL, if it answers now."""
    try:
        state = json.loads((prefect_home() / "server.json").read_bytes())
    except (OSError, ValueError):
        return None
    if process_identity(state["pid"]) != state["process"]:
        return None
    return state["url"] if answers(state["url"]) else None


def answers(url: str, seconds: float = 3.0) -> bool:
    """True if a Prefect API answers at `url`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=seconds) as reply:
            return reply.status == 200
    except (OSError, urllib.error.URLError, ValueError):
        return False


@contextmanager
def client_registered(name: str | None = None) -> Iterator[None]:
    """While this lasts, the supervisor counts this process among those that use the server."""
    folder = prefect_home() / "clients"
    folder.mkdir(parents=True, exist_ok=True)
    mine = folder / (name or str(os.getpid()))
    mine.write_text(process_identity(os.getpid()) or "")
    try:
        yield
    finally:
        mine.unlink(missing_ok=True)


def start(say: Callable[[str], None] = lambda _: None) -> Callable[[], None]:
    """Begin to start the server, unless it runs or another is configured.

    PREFECT_API_URL is set here already, since Prefect reads it when it is imported, and its import is
    what to do while the server starts.

    Returns:
        A function that waits until it answers; RuntimeError with the log's tail if it does not.
    """
    if configured_url():
        return lambda: None
    url = running_url()
    if url:
        os.environ["PREFECT_API_URL"] = url
        return lambda: None
    home = prefect_home()
    home.mkdir(parents=True, exist_ok=True)
    say("starting the local Prefect server (some 20 s the first time; it is kept for later runs)")
    port = _free_port()
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
    with (home / "server.log").open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "flows.server", str(port)],
            cwd=PROJECT,
            env=_scrubbed(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return lambda: _wait(supervisor)


def _wait(supervisor: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        url = running_url()
        if url:
            _adopt(url)
            return
        if supervisor.poll() not in (None, 0):  # 0: another supervisor was first
            break
        time.sleep(0.15)
    tail = (prefect_home() / "server.log").read_bytes()[-1500:].decode("utf-8", "replace")
    raise RuntimeError(f"the local Prefect server did not start; its log ends:\n{tail}")


def _adopt(url: str) -> None:
    """Use this server; it is another than ours where a second dyno started one at the same moment."""
    if os.environ.get("PREFECT_API_URL") == url:
        return
    os.environ["PREFECT_API_URL"] = url
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def stop() -> bool:
    """Stop the local server now. False if there was none."""
    try:
        state = json.loads((prefect_home() / "server.json").read_bytes())
    except (OSError, ValueError):
        return False
    if process_identity(state["supervisor"]) != state["supervisor_process"]:
        return False
    os.kill(state["supervisor"], signal.SIGTERM)
    until = time.monotonic() + 15
    while process_identity(state["supervisor"]) and time.monotonic() < until:
        time.sleep(0.05)
    return True


def _scrubbed() -> dict[str, str]:
    """The server needs no API keys, so it gets none."""
    kept = (
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "DYNO_HOME",
        "DYNO_EVIDENCE",
        "DYNO_SERVER_IDLE",
        "TMPDIR",
    )
    return {name: os.environ[name] for name in kept if name in os.environ}


# ---------------------------------------------------------------- the supervisor


def supervise(port: int) -> int:
    """Be the supervisor: start the server on `port`, keep it while it is used, end it."""
    home = prefect_home()
    home.mkdir(parents=True, exist_ok=True)
    lock = (home / "supervisor.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # another one is at it
    url = f"http://127.0.0.1:{port}/api"
    env = {**os.environ, **TUNED}
    env |= {"PREFECT_HOME": str(home), "PREFECT_SERVER_UI_API_URL": url, "PREFECT_API_URL": url}
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "prefect",
            "server",
            "start",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        env=env,
        cwd=home,
        start_new_session=True,
    )
    asked_to_stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked_to_stop.append(number))
    try:
        while not answers(url):
            if server.poll() is not None or asked_to_stop:
                return 1
            time.sleep(0.1)
        state = {
            "url": url,
            "pid": server.pid,
            "process": process_identity(server.pid),
            "supervisor": os.getpid(),
            "supervisor_process": process_identity(os.getpid()),
        }
        write_atomically(home / "server.json", json.dumps(state).encode())
        _keep(server, home / "clients", asked_to_stop)
        return 0
    finally:
        (home / "server.json").unlink(missing_ok=True)
        _end(server)


def _keep(server: subprocess.Popen[bytes], clients: Path, asked_to_stop: list[int]) -> None:
    used = time.monotonic()
    while server.poll() is None and not asked_to_stop:
        if _living(clients):
            used = time.monotonic()
        elif time.monotonic() - used > IDLE_SECONDS:
            return
        for _ in range(20):
            if asked_to_stop:
                return
            time.sleep(0.1)


def _living(clients: Path) -> bool:
    """True if any registered process still runs; the files of dead ones are cleared away."""
    found = False
    for path in clients.glob("*") if clients.is_dir() else ():
        try:
            identity = path.read_text()
        except FileNotFoundError:
            continue
        pid = int(identity.partition(":")[0] or 0)
        if pid and process_identity(pid) == identity:
            found = True
        else:
            path.unlink(missing_ok=True)
    return found


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(10)
    except ProcessLookupError:
        return
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1])))
