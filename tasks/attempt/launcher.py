"""The process that starts harnesses, so that none is a child of one that holds keys.

It is small, single-threaded and started with a scrubbed environment; it imports the standard library
only (and, for a `warm` harness, the modules that harness names, so that a fork has them already). It
answers on an inherited socket (see bridges/channel.py) and dies with it.

    flow ══socket══ launcher ── clone ──► init ── fork ──► harness, its tools, whatever they start
                                          PID 1 of a namespace of its own, with its own /proc

The init pumps stdout and stderr into capped files, passes SIGTERM on to everything, reaps, and ends when
the harness ends. When it ends, or is killed, the kernel kills all that is left in the namespace and
returns from `wait` only when nothing is: that is the proof that no process survives, whatever sessions
or daemons a harness made. If the flow dies, the socket ends and the launcher kills every init; if the
launcher dies, every init sees its life line end.

Where no namespace is to be had (macOS, or user namespaces forbidden) the init is an ordinary process
and what carries the attempt's marker in its environment is killed instead.

Verbs: `hello` {} → {namespaces, pid}; `launch` {argv, env, cwd, stdin, stdout, stderr, cap, marker,
script} → {exit_code, signal, stdout_bytes, stderr_bytes, left, cpu_s, started_at, ended_at, killed}
once it has ended; `signal` {launch, name: TERM|KILL} → true. Event `started` {launch, pid}.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import os
import platform
import resource
import runpy
import selectors
import signal
import socket
import sys
import time
import traceback

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SYS_CLONE = {"x86_64": 56, "aarch64": 220}
LINUX = sys.platform == "linux"


class Launcher:
    """The loop: calls in, launches out, reports back."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.life_read, self.life_write = os.pipe()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._read_control)
        self.buffer = b""
        self.running: dict[int, dict] = {}
        """By launch number (the id of the call): pid of the init, report so far, marker, times."""
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.clone_flags = self._usable_clone_flags()
        self.open = True

    def serve(self) -> None:
        """Answer until the control socket ends; then leave nothing behind."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the flow's to handle
        while self.open:
            for key, _ in self.selector.select():
                key.data()
        for number in list(self.running):
            self._kill(number)
        for launch in self.running.values():
            try:
                os.waitpid(launch["pid"], 0)
            except ChildProcessError:
                pass
            self._kill_marked(launch["marker"])

    # ------------------------------------------------------------ control

    def _read_control(self) -> None:
        try:
            data = self.control.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self.open = False
            return
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict) -> None:
        number = message["id"]
        try:
            if message["do"] == "launch":
                self._launch(number, message)
            elif message["do"] == "signal":
                self._answer(number, self._signal(message["launch"], message["name"]))
            elif message["do"] == "hello":
                self._answer(
                    number, {"namespaces": self.clone_flags is not None, "pid": os.getpid()}
                )
            else:
                raise ValueError(f"unknown verb {message['do']!r}")
        except Exception as error:  # reported to the flow, which words it for the user
            self._send({"id": number, "error": str(error), "kind": type(error).__name__})

    def _answer(self, number: int, value: object) -> None:
        self._send({"id": number, "ok": value})

    def _send(self, message: dict) -> None:
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.open = False

    # ------------------------------------------------------------ launching

    def _usable_clone_flags(self) -> int | None:
        """Flags that make a PID namespace here, found by making one; None where none can be made."""
        if not LINUX or platform.machine() not in SYS_CLONE:
            return None
        flags = CLONE_NEWPID | CLONE_NEWNS
        for candidate in (flags, flags | CLONE_NEWUSER):
            pid = self._clone(candidate)
            if pid == 0:
                os._exit(0)
            if pid > 0:
                _, status = os.waitpid(pid, 0)
                if status == 0:
                    return candidate
        return None

    def _clone(self, flags: int) -> int:
        """fork() into new namespaces: the pid, 0 in the child, or -errno.

        The child is single-threaded like its parent, so a bare clone is safe here; the harness itself
        is made from it by an ordinary `os.fork`, with Python's own after-fork work done.
        """
        number = SYS_CLONE[platform.machine()]
        pid = self.libc.syscall(number, flags | signal.SIGCHLD, 0, 0, 0, 0)
        return pid if pid >= 0 else -ctypes.get_errno()

    def _launch(self, number: int, spec: dict) -> None:
        report_read, report_write = os.pipe()
        spec["outer_uid"], spec["outer_gid"] = os.getuid(), os.getgid()
        started = time.time()
        pid = os.fork() if self.clone_flags is None else self._clone(self.clone_flags)
        if pid == 0:
            code = 125
            try:
                os.close(self.life_write)
                os.close(report_read)
                self.control.close()
                code = Init(self, spec, report_write).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(report_write)
        if pid < 0:
            os.close(report_read)
            raise OSError(-pid, os.strerror(-pid))
        launch = {"pid": pid, "report": b"", "marker": spec["marker"], "started_at": started}
        launch["killed"] = False
        self.running[number] = launch
        os.set_blocking(report_read, False)
        self.selector.register(
            report_read, selectors.EVENT_READ, lambda: self._read_report(number, report_read)
        )
        self._send({"event": "started", "launch": number, "pid": pid})

    def _read_report(self, number: int, descriptor: int) -> None:
        data = os.read(descriptor, 65536)
        launch = self.running[number]
        if data:
            launch["report"] += data
            return
        self.selector.unregister(descriptor)
        os.close(descriptor)
        _, status, usage = os.wait4(launch["pid"], 0)
        left = self._kill_marked(launch["marker"])
        del self.running[number]
        report: dict = {
            "exit_code": None,
            "signal": None,
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "left": 0,
        }
        if launch["report"]:
            report |= json.loads(launch["report"])
        elif os.WIFSIGNALED(status):  # the init was killed: by our ladder, or by somebody else
            report["signal"] = os.WTERMSIG(status)
        else:
            report["exit_code"] = os.waitstatus_to_exitcode(status)
        report["left"] += left
        report["killed"] = launch["killed"]
        report["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 4)
        report["started_at"], report["ended_at"] = launch["started_at"], time.time()
        self._answer(number, report)

    # ------------------------------------------------------------ killing

    def _signal(self, number: int, name: str) -> bool:
        launch = self.running.get(number)
        if launch is None:
            return False
        if name == "KILL":
            self._kill(number)
        else:
            os.kill(launch["pid"], signal.SIGTERM)
        return True

    def _kill(self, number: int) -> None:
        launch = self.running[number]
        launch["killed"] = True
        try:
            os.kill(launch["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._kill_marked(launch["marker"])

    def _kill_marked(self, marker: str) -> int:
        """Without namespaces: SIGKILL all that carry the marker, until none is found; how many were."""
        if self.clone_flags is not None:
            return 0
        killed: set[int] = set()
        for _ in range(50):
            found = marked_processes(marker) - {os.getpid()}
            if not found:
                break
            for pid in found:
                killed.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)
        return len(killed)


class Init:
    """PID 1 of an attempt: starts the harness, pumps its output, passes signals on, reaps."""

    def __init__(self, launcher: Launcher, spec: dict, report: int) -> None:
        self.launcher = launcher
        self.spec = spec
        self.report = report
        self.namespaced = launcher.clone_flags is not None
        self.child = 0
        self.counts = {"stdout": 0, "stderr": 0}

    def run(self) -> int:
        """Live the attempt; the init's own exit code (the harness's own is in the report)."""
        self._settle()
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._pass_on(signal.SIGTERM))
        signal.set_wakeup_fd(
            wake_write, warn_on_full_buffer=False
        )  # before the fork: it may end at once
        pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
        self.child = os.fork()
        if self.child == 0:
            signal.set_wakeup_fd(-1)
            self._become_harness(pipes)
        status = self._pump(pipes, wake_read)
        self._tell(status)
        return 0

    def _settle(self) -> None:
        if LINUX:
            option = PR_SET_PDEATHSIG if self.namespaced else PR_SET_CHILD_SUBREAPER
            value = signal.SIGKILL if self.namespaced else 1
            self.launcher.libc.prctl(option, value, 0, 0, 0)
        if not self.namespaced:
            os.setsid()
            return
        if (self.launcher.clone_flags or 0) & CLONE_NEWUSER:
            write_file("/proc/self/setgroups", "deny")
            uid, gid = self.spec["outer_uid"], self.spec["outer_gid"]
            write_file("/proc/self/uid_map", f"{uid} {uid} 1")
            write_file("/proc/self/gid_map", f"{gid} {gid} 1")
        mount = self.launcher.libc.mount
        mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        if mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None) != 0:
            raise OSError(ctypes.get_errno(), "the attempt's own /proc could not be mounted")

    def _pass_on(self, number: int) -> None:
        if self.namespaced:
            try:
                os.kill(-1, number)  # everything in the namespace but us
            except ProcessLookupError:
                pass
            return
        for pid in marked_processes(self.spec["marker"]) - {os.getpid()}:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def _become_harness(self, pipes: dict) -> None:
        """Never returns: exec, or run the warm script; 127 and a line on stderr where that fails."""
        code = 127
        try:
            os.setsid()
            source = os.open(self.spec["stdin"] or os.devnull, os.O_RDONLY)
            os.dup2(source, 0)
            os.dup2(pipes["stdout"][1], 1)
            os.dup2(pipes["stderr"][1], 2)
            os.closerange(3, 4096)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.chdir(self.spec["cwd"])
            if self.spec.get("script"):
                code = self._run_script()
            else:
                argv = self.spec["argv"]
                os.execvpe(argv[0], argv, self.spec["env"])
        except OSError as error:
            os.write(2, f"dyno: {self.spec['argv'][:1]}: {error.strerror}\n".encode())
            code = 126 if error.errno == errno.EACCES else 127
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _run_script(self) -> int:
        """Run a Python harness in this fork as if it had just been started; its exit code."""
        script = self.spec["script"]
        os.environ.clear()
        os.environ.update(self.spec["env"])
        sys.argv = [script, *self.spec["argv"]]
        sys.path.insert(0, os.path.dirname(script))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    # ------------------------------------------------------------ pumping

    def _pump(self, pipes: dict, wake: int) -> int:
        """Copy output until the harness has ended; its wait status."""
        selector = selectors.DefaultSelector()
        files = {}
        for name, (read, write) in pipes.items():
            os.close(write)
            os.set_blocking(read, False)
            files[name] = os.open(self.spec[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            selector.register(read, selectors.EVENT_READ, name)
        selector.register(wake, selectors.EVENT_READ, "wake")
        selector.register(self.launcher.life_read, selectors.EVENT_READ, "life")
        status = None
        while status is None:
            for key, _ in selector.select():
                if key.data == "life":  # the launcher is gone: end, and all here end with us
                    self._pass_on(signal.SIGKILL)
                    os._exit(125)
                if key.data == "wake":
                    drain(wake)
                    status = self._reap()
                elif not self._copy(key.fd, key.data, files[key.data]):
                    selector.unregister(key.fd)
        for name, (
            read,
            _,
        ) in pipes.items():  # what the harness wrote before it ended is in the pipes
            while self._copy(read, name, files[name], last=True):
                pass
        return status

    def _copy(self, source: int, name: str, target: int, *, last: bool = False) -> bool:
        """Copy what is there, up to the cap; False at the end of the stream (or, if last, when dry)."""
        try:
            data = os.read(source, 65536)
        except BlockingIOError:
            return not last
        room = max(0, self.spec["cap"] - self.counts[name])
        self.counts[name] += len(data)
        if last and self.counts[name] > self.spec["cap"] * 2:
            return False  # something left behind goes on writing; it is about to be killed
        if room == 0 and data and not last:
            time.sleep(
                0.005
            )  # past the cap a flood is slowed, so that it cannot eat a core through us
        try:
            os.write(target, data[:room])
        except OSError:
            pass  # a full disk is seen when the bundle is sealed
        return bool(data)

    def _reap(self) -> int | None:
        """Wait for whatever has ended; the harness's status if it was among them."""
        found = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self.child:
                found = status

    def _tell(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        left = 0
        if self.namespaced:
            left = sum(name.isdigit() for name in os.listdir("/proc")) - 1
        report = {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "stdout_bytes": self.counts["stdout"],
            "stderr_bytes": self.counts["stderr"],
            "left": left,
        }
        os.write(self.report, json.dumps(report).encode())


def marked_processes(marker: str) -> set[int]:
    """Pids of all processes whose environment holds the marker (Linux: /proc; elsewhere: ps)."""
    found = set()
    needle = marker.encode()
    if LINUX:
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if needle in file.read():
                        found.add(int(name))
            except OSError:
                continue
        return found
    import subprocess

    listing = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True)
    for line in listing.stdout.splitlines():
        if needle in line:
            found.add(int(line.split(None, 1)[0]))
    return found


def write_file(path: str, text: str) -> None:
    """Write a small control file."""
    with open(path, "w") as file:
        file.write(text)


def drain(descriptor: int) -> None:
    """Empty a non-blocking pipe."""
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass


def main() -> None:
    """`launcher.py CONTROL_FD [module …]`: import the modules, then serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    problems = []
    for name in sys.argv[2:]:
        try:
            importlib.import_module(name)
        except Exception as error:
            problems.append(f"{name}: {error}")
    gc.collect()
    gc.freeze()  # forks share these pages for as long as nobody touches them
    launcher = Launcher(control)
    launcher._send({"event": "ready", "problems": problems})
    launcher.serve()


if __name__ == "__main__":
    main()
