"""Where environment code runs: one small process that forks a worker for each environment.

The host holds the keys, and the code of a suite must not come near them. So the host starts this
process once, with an environment of its own (`workers.py`), and it forks the workers: a fork of a
process that has everything imported is ready in a few milliseconds and shares its memory. A zygote
may also be given something to load before its first fork (`preload`): a database of megabytes is
then parsed once, and every worker finds it in its memory as if it had parsed it alone.

    host ──lines──► zygote ──fork──► worker ◄──frames── host

Invariants. Once it has loaded, the zygote does nothing but fork, kill and bury, so it always
answers. It alone reaps,
and it kills a worker's whole group before it reaps it: no process id is ever signalled after it may
belong to someone else. When the host is gone the zygote kills every worker and ends; when the
zygote is gone the kernel kills them (on Linux).

Lines from the host: `{"fork": n}` with a descriptor beside it, `{"kill": n}`. To the host:
`{"exited": n, "status": code}` (negative: the signal), and where something was to be loaded
`{"loaded": seconds}`, or `{"failed": reason}` and its end. A frame is four bytes of length (big-endian)
and so much JSON: a request one way, one reply the other (see `_answer`, or what was loaded).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib.util
import inspect
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from bridges.arguments import checker
from bridges.texts import fit

Answerer = Callable[[dict[str, Any]], dict[str, Any]]
"""What a worker does with a request. A module that can be loaded first has a function `preload` that
takes one JSON value and returns one of these; each fork has its own copy of all it holds."""

FRAME = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1


# ---------------------------------------------------------------- the zygote


class Zygote:
    """Forks and buries workers until the host's end of the line is closed.

    Args:
        line: to the host.
        answer: what the workers do.
    """

    def __init__(self, line: socket.socket, answer: Answerer) -> None:
        self._line = line
        self._answer = answer
        self._held = b""
        self._descriptors: list[int] = []
        self._workers: dict[int, int] = {}  # the host's number of a worker, by process id
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)

    def run(self) -> None:
        """Serve the host; returns when it is gone and no worker is left."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        gc.collect()
        gc.freeze()  # what is there now is shared by all forks, and stays so
        while True:
            awaited: list[Any] = [self._line, self._wake]
            ready, _, _ = select.select(awaited, [], [])
            if self._wake in ready:
                self._drain()
                self._bury()
            if self._line in ready and not self._obey():
                break
        for pid in self._workers:
            _kill_group(pid)

    def _drain(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass

    def _obey(self) -> bool:
        """Take what the host sent; False when it is gone."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._line, 65_536, 64)
        except OSError:
            return False
        self._descriptors += descriptors
        if not data:
            return False
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "fork" in order:
                self._fork(order["fork"], self._descriptors.pop(0))
            else:
                for pid, number in self._workers.items():
                    if number == order["kill"]:
                        _kill_group(pid)
        return True

    def _fork(self, number: int, line: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(line, parent)
        os.close(line)
        self._workers[pid] = number

    def _become_worker(self, line: int, parent: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _die_with_parent(parent)
            for descriptor in (self._line.fileno(), self._wake, self._waker, *self._descriptors):
                os.close(descriptor)
            os.set_inheritable(line, False)
            _be_modest()
            work(socket.socket(fileno=line), self._answer)
            code = 0
        finally:
            os._exit(code)

    def _bury(self) -> None:
        """Reap the workers that ended, and tell the host."""
        for pid, number in list(self._workers.items()):
            status = _reap(pid)
            if status is None:
                continue
            del self._workers[pid]
            event = {"exited": number, "status": os.waitstatus_to_exitcode(status)}
            try:
                self._line.sendall(json.dumps(event).encode() + b"\n")
            except OSError:
                return


def _reap(pid: int) -> int | None:
    """Wait status of a worker that ended, what it started being killed; None while it runs."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13 cannot look without taking
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _kill_group(pid)
        return status if done else None
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    _kill_group(pid)  # its id is ours until it is reaped
    return os.waitpid(pid, 0)[1]


def _kill_group(pid: int) -> None:
    """SIGKILL to a worker and all that it started (the leader alone before it has its group)."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _outlive_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def _be_modest() -> None:
    """No voice, no core files, and the first to go when memory runs out.

    Its share of the processor stays a fair one: a lower priority would not shorten the others'
    waits (a host wakes at once either way), and on a busy machine its calls would time out for it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass


# ---------------------------------------------------------------- a worker


def work(line: socket.socket, answer: Answerer) -> None:
    """Answer one request after another until the host closes the line."""
    sys.dont_write_bytecode = True  # a run never writes to a suite
    with line.makefile("rb") as incoming:
        while len(head := incoming.read(FRAME.size)) == FRAME.size:
            request = json.loads(incoming.read(FRAME.unpack(head)[0]))
            reply = json.dumps(answer(request)).encode()
            line.sendall(FRAME.pack(len(reply)) + reply)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked.

    `{"check": schema, "arguments": text}` → `{"problem": text | null}`.
    `{"call": "file.py:function", "root": folder, "arguments": text}` →
    `{"status": "ok" | "tool_error", "text": …, "cut": bytes}`.
    """
    arguments = json.loads(request["arguments"] or "{}") or {}
    if "check" in request:
        return {"problem": checker(request["check"]).problem(arguments)}
    try:
        text = _text(_function(request["root"], request["call"])(**arguments))
        status = "ok"
    except (Exception, SystemExit) as error:
        text = _told(error)
        status = "tool_error"
    text, cut = fit(text)
    return {"status": status, "text": text, "cut": cut}


@cache
def _function(root: str, run: str) -> Callable[..., Any]:
    """The function that `run` names, its file imported once."""
    file, _, name = run.rpartition(":")
    function: Callable[..., Any] | None = getattr(_module(root, file), name, None)
    if function is None:
        raise LookupError(f"{file} has no function {name!r}")
    return function


@cache
def _module(root: str, file: str) -> Any:
    path = Path(root, file)
    if root not in sys.path:
        sys.path.insert(0, root)
    spec = importlib.util.spec_from_file_location(f"environment_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise LookupError(f"there is no Python file {file!r} in the suite")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _text(result: Any) -> str:
    """A result as text: text as it is, all else as JSON."""
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False)


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # an exception whose own text fails
        return type(error).__name__


def _load(line: socket.socket, module: str, argument: str) -> Answerer:
    """What the workers are to do by this module; ends the process where it cannot be loaded."""
    began = time.perf_counter()
    _die_with_parent(os.getppid())  # while it loads it does not watch its line
    event: dict[str, Any]
    try:
        answer: Answerer = importlib.import_module(module).preload(json.loads(argument))
        event = {"loaded": round(time.perf_counter() - began, 3)}
    except (Exception, SystemExit) as error:
        event = {"failed": _told(error)}
    try:
        line.sendall(json.dumps(event).encode() + b"\n")
    except OSError:
        sys.exit(1)
    if "failed" in event:
        sys.exit(1)
    _outlive_parent()
    return answer


def main() -> None:
    """`python -m bridges.zygote FD [MODULE JSON]`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    os.chdir("/")
    answer = _load(line, *sys.argv[2:]) if len(sys.argv) > 2 else _answer
    Zygote(line, answer).run()


if __name__ == "__main__":
    main()
