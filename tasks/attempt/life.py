"""The life of one try, top to bottom: prepare, open, launch, supervise, close, judge the ending, seal.

    run_attempt ── done already? ── take the lease ── run_try ── publish ── release
                                                         │
      claim folder · make place · host.open · render · launcher.launch · supervise (deadline, budget,
      stop; the kill ladder) · host.close · what does this ending mean? · keep what is left · seal

A try always leaves a sealed bundle unless this process is killed; then the folder without
`attempt.json` says so (`interrupted`). An infrastructure error is sealed too, is never published, and is
raised, so that nothing above can mistake it for a result.
"""

from __future__ import annotations

import errno
import json
import queue
import secrets
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridges.channel import Channel, ChannelClosed, RemoteError
from suites.schema import Ending, Harness, Limits, Model, Task
from tasks.attempt.collect import keep_files
from tasks.attempt.endings import judge
from tasks.attempt.environment import Invocation, Place, invocation
from tasks.attempt.lease import Leases
from tasks.attempt.policy import ENDINGS, InfrastructureError
from tasks.attempt.processes import Processes
from warehouse.evidence import Bundle, Evidence
from warehouse.shards import ShardWriter

BUDGET_GRACE = 10.0
"""Seconds a harness has to end by itself after it was told that its budget is spent."""
TERM_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""
STOP_GRACE = 1.0
"""The same, where a person is waiting for Ctrl-C to take."""


@dataclass(frozen=True)
class Job:
    """One attempt to run, with everything resolved.

    Attributes:
        stamp: the cell's stamp; `seed` and `date` are added when the try is sealed.
        task_identity: what `attempt.json` says of the task (suite, version, id, category, repeat).
    """

    key: str
    sweep_id: str
    task: Task
    harness: Harness
    harness_dir: str
    model: Model
    limits: Limits
    seed: int
    repeat: int
    stamp: dict[str, Any]
    task_identity: dict[str, Any]


@dataclass
class Workshop:
    """What the attempts of one worker share.

    Attributes:
        run: folder for the tries' places.
        stopping: set when the sweep is to stop; every supervised harness is then ended.
        fatal: why nothing more can be run here (a full disk), in words; None while all is well.
    """

    evidence: Evidence
    processes: Processes
    leases: Leases
    shards: ShardWriter
    run: Path
    stopping: threading.Event = field(default_factory=threading.Event)
    fatal: str | None = None
    _wakers: set[queue.SimpleQueue[str]] = field(default_factory=set)

    def stop(self) -> None:
        """End everything that runs; attempts in flight are sealed as cancelled."""
        self.stopping.set()
        for waker in list(self._wakers):
            waker.put("stop")

    def close(self) -> None:
        """Release what is held; the last thing a worker does."""
        self.leases.close()
        self.processes.stop()


@dataclass(frozen=True)
class Done:
    """An attempt with a result.

    Attributes:
        reused: True if it was done before, here or by another sweep.
    """

    bundle: Bundle
    reused: bool


def run_attempt(job: Job, shop: Workshop) -> Done:
    """Run one try of an attempt, unless it is done or becomes done by somebody else meanwhile.

    Raises:
        InfrastructureError: the try has no result; the policy table says whether another may help.
    """
    while True:
        done = _done(job, shop)
        if done:
            return Done(done, reused=True)
        if shop.leases.take(job.key):
            break
        if shop.stopping.wait(0.3):
            raise InfrastructureError("cancelled", "the sweep was stopped")
    try:
        done = _done(job, shop)  # it may have been finished between our look and our lease
        if done:
            return Done(done, reused=True)
        bundle = run_try(job, shop)
        if bundle.record["error"]:
            raise InfrastructureError(
                bundle.record["error"]["class"], bundle.record["error"]["message"]
            )
        shop.evidence.publish(bundle)
        return Done(bundle, reused=False)
    finally:
        shop.leases.release(job.key)


def _done(job: Job, shop: Workshop) -> Bundle | None:
    return shop.evidence.published(job.key) if shop.evidence.is_done(job.key) else None


def run_try(job: Job, shop: Workshop) -> Bundle:
    """One execution, sealed whatever happens (short of the death of this process)."""
    try:
        folder = shop.evidence.claim_try(job.key)
        life = Life(job, shop, folder)
        try:
            life.live()
        except InfrastructureError as error:
            life.error = error
        except (ChannelClosed, RemoteError, TimeoutError) as error:
            life.error = life.explain(error)
        finally:
            life.tear_down()
        bundle = shop.evidence.finish(folder, life.record())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            shop.fatal = f"the disk is full ({error.filename or shop.evidence.root})"
            raise InfrastructureError("disk_full", shop.fatal) from error
        raise
    shop.shards.append(bundle)
    return bundle


class Life:
    """One try, while it lasts."""

    def __init__(self, job: Job, shop: Workshop, folder: Path) -> None:
        self.job = job
        self.shop = shop
        self.folder = folder
        self.number = int(folder.name.removeprefix("try-"))
        self.place: Place | None = None
        self.host: Channel | None = None
        self.opened: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.report: dict[str, Any] = {}
        self.stopped_for: str | None = None
        """Why we ended the harness: `timeout`, `budget` or `stop`; None if it ended by itself."""
        self.error: InfrastructureError | None = None
        self.started_at = time.time()
        self.ended_at = self.started_at
        self._waited = 0.0
        self._waiting_since: float | None = None

    # ------------------------------------------------------------ the parts, in order

    def live(self) -> None:
        """All of it but the sealing."""
        self.host = self.shop.processes.host()
        self.place = Place.make(self.shop.run, self.job.key, self.number)
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.shop.processes.watch(self.job.key, self.number, self._on_event)
        self.shop._wakers.add(self.events)
        if self.shop.stopping.is_set():
            raise InfrastructureError("cancelled", "the sweep was stopped")
        self.opened = self.host.call(
            "open",
            attempt=self.job.key,
            **{"try": self.number},
            folder=str(self.folder),
            environments=[e.model_dump(mode="json") for e in self.job.task.environments],
            limits=self.job.limits.model_dump(),
            budget_error=self.job.harness.budget_error.model_dump(),
            model=self._model(),
            timeout=60,
        )
        try:
            self._supervise(self._launch())
        finally:
            self.ended_at = time.time()
            self._close()

    def _model(self) -> dict[str, Any] | None:
        """The model as the host wants it; None where the harness brings its own."""
        model = self.job.model
        if self.job.harness.wire == "none" or model.endpoint == "none":
            return None
        described = model.model_dump(mode="json", exclude={"description", "estimate", "scripted"})
        described["model"] = model.model or model.name
        described["scripted"] = None
        if model.is_scripted:
            oracle = self.job.task.oracle
            described["scripted"] = {
                "behaviour": model.behaviour,
                "settings": model.scripted,
                # Another try meets other weather: the errors of `noisy` are drawn anew, its answers not.
                "seed": self.job.seed,
                "oracle": oracle.model_dump(mode="json") if oracle else {},
                "tools": [
                    tool.model_dump(mode="json", exclude={"run", "result"})
                    for environment in self.job.task.environments
                    for tool in environment.tools
                ],
            }
        return described

    def _launch(self) -> Future[dict[str, Any]]:
        assert self.place is not None
        job = self.job
        self.deadline = time.time() + (job.limits.seconds or 1e9)
        marker = f"{job.key[:16]}-{self.number}-{secrets.token_hex(4)}"
        call: Invocation = invocation(
            job.harness,
            job.harness_dir,
            job.task,
            self.place,
            self.opened,
            model_id=job.model.model or job.model.name,
            limits=job.limits,
            seed=job.seed,
            deadline=self.deadline,
            marker=marker,
        )
        warm = job.harness.warm
        try:
            self.launcher = (
                self.shop.processes.launcher(call.python, warm.imports)
                if warm
                else self.shop.processes.launcher()
            )
            self.started_at = time.time()
            future = self.launcher.start(
                "launch",
                argv=call.argv,
                env=call.env,
                cwd=str(self.place.work),
                stdin=str(call.stdin) if call.stdin else None,
                stdout=str(self.folder / "stdout"),
                stderr=str(self.folder / "stderr"),
                cap=job.limits.output_bytes or 1_000_000,
                marker=marker,
                script=call.script,
            )
        except ChannelClosed as error:
            raise InfrastructureError("launcher_lost", str(error)) from error
        self.launch_number = future.number  # type: ignore[attr-defined]
        future.add_done_callback(lambda _: self.events.put("ended"))
        return future

    def _supervise(self, future: Future[dict[str, Any]]) -> None:
        """Wait for the harness to end; end it at its deadline, past its budget, or on stop."""
        while not future.done():
            try:
                event = self.events.get(timeout=max(0.01, min(self._left(), 3600)))
            except queue.Empty:
                event = "deadline"
            if event == "stop":
                self._end(future, "stop", STOP_GRACE)
            elif event == "budget":
                self._end(future, "budget", TERM_GRACE, patience=BUDGET_GRACE)
            elif event == "host_lost":
                self._end(future, "host_lost", 0.2)
            elif event == "deadline" and self._left() <= 0:
                self._end(future, "timeout", TERM_GRACE)
        try:
            self.report = future.result()
        except ChannelClosed as error:
            raise InfrastructureError("launcher_lost", str(error)) from error
        except RemoteError as error:
            raise InfrastructureError("internal", f"the launch failed: {error}") from error

    def _left(self) -> float:
        """Seconds to the deadline; waits for a rate limit do not count."""
        if self._waiting_since is not None:
            return 3600.0
        return self.deadline + self._waited - time.time()

    def _end(
        self, future: Future[dict[str, Any]], why: str, grace: float, patience: float = 0.0
    ) -> None:
        """The kill ladder: wait, SIGTERM, wait, SIGKILL of all there is, and wait for the proof."""
        self.stopped_for = self.stopped_for or why
        for name, seconds in ((None, patience), ("TERM", grace), ("KILL", 60.0)):
            if name:
                self.launcher.call("signal", launch=self.launch_number, name=name, timeout=30)
            until = time.time() + seconds
            while not future.done() and time.time() < until:
                if name is None and self.shop.stopping.is_set():
                    break
                try:
                    future.exception(timeout=min(0.5, max(0.0, until - time.time())))
                except TimeoutError:
                    continue
            if future.done():
                return

    def _close(self) -> None:
        """Have the host settle the attempt's record."""
        assert self.host is not None
        try:
            self.summary = self.host.call(
                "close", attempt=self.job.key, **{"try": self.number}, timeout=120
            )
        except (ChannelClosed, RemoteError, TimeoutError) as error:
            self.error = InfrastructureError("host_lost", f"the host did not settle: {error}")

    def tear_down(self) -> None:
        """Keep what the harness left, then remove its place."""
        self.shop.processes.unwatch(self.job.key, self.number)
        if self.place is None:
            return
        self.shop._wakers.discard(self.events)
        keep_files(self.place.work, self.folder / "final")
        self.place.remove()

    # ------------------------------------------------------------ events

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["event"] in ("budget", "host_lost"):
            self.events.put(event["event"])
        elif event["event"] == "waiting":
            self._waited = event["waited_seconds"]
            self._waiting_since = time.time() if event["waiting"] else None
            self.events.put("waiting")

    def explain(self, error: Exception) -> InfrastructureError:
        """What a lost or failed servant means for this try."""
        if isinstance(error, RemoteError):
            return InfrastructureError("environment_failed", f"{error.kind}: {error}")
        return InfrastructureError("host_lost", str(error) or "the host died")

    # ------------------------------------------------------------ the record

    def record(self) -> dict[str, Any]:
        """All of `attempt.json` but the files' hashes."""
        ending, detail = self._ending()
        error = self.error
        rule = error.rule if error else ENDINGS[ending]
        first = self.summary.get("first_contact_at")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.ended_at))
        return {
            "attempt_key": self.job.key,
            "try": self.number,
            "sweep_id": self.job.sweep_id,
            "task": self.job.task_identity,
            "stamp": {**self.job.stamp, "seed": self.job.seed, "date": now},
            "prices": self.job.model.prices.model_dump() if self.job.model.prices else None,
            "ending": ending,
            "detail": detail,
            "blame": rule.blame,
            "error": {"class": error.error_class, "message": error.message} if error else None,
            "exit_code": self.report.get("exit_code"),
            "signal": self.report.get("signal"),
            "left_processes": self.report.get("left", 0),
            "timings": {
                "started_at": self.started_at,
                "ended_at": self.ended_at,
                "wall_s": round(self.ended_at - self.started_at, 4),
                "startup_s": round(max(0.0, first - self.started_at), 4) if first else None,
                "waited_s": self.summary.get("waited_seconds", 0.0),
                "cpu_s": self.report.get("cpu_s"),
            },
            "host": self.summary,
            "output": self._output(),
            "reported": self._reported(),
        }

    def _ending(self) -> tuple[Ending, str]:
        """The ending; sets `error` where it is no result."""
        if self.error is None and self.stopped_for == "stop":
            self.error = InfrastructureError("cancelled", "the sweep was stopped")
        if self.error is not None:
            return "interrupted", self.error.message
        verdict = judge(
            self.job.harness, self.job.task, self.report, self.summary, self.stopped_for
        )
        detail = verdict.detail
        if verdict.error_class in (
            "bridge_unlisted",
            "harness_missing",
            "harness_config",
            "harness_infra",
        ):
            detail += self._last_words()
        if verdict.error_class:
            self.error = InfrastructureError(verdict.error_class, detail)
        return verdict.ending, detail

    def _last_words(self) -> str:
        """The last line of stderr: most often what a harness that could not start says of it."""
        try:
            data = (self.folder / "stderr").read_bytes()[-2000:]
        except OSError:
            return ""
        lines = data.decode("utf-8", "replace").strip().splitlines()
        return f"; its last words: {lines[-1][:200]}" if lines else ""

    def _output(self) -> dict[str, Any]:
        output: dict[str, Any] = {}
        for name in ("stdout", "stderr"):
            path = self.folder / name
            kept = path.stat().st_size if path.exists() else 0
            total = max(self.report.get(f"{name}_bytes") or 0, kept)
            output |= {f"{name}_bytes": total, f"{name}_cut": total - kept}
        return output

    def _reported(self) -> dict[str, Any] | None:
        """What the harness says it used, where its file says that it says so: the last stdout line."""
        if self.job.harness.telemetry.get("usage") != "last_line_json":
            return None
        try:
            lines = (self.folder / "stdout").read_text("utf-8", "replace").strip().splitlines()
            said = json.loads(lines[-1])
        except (OSError, ValueError, IndexError):
            return None
        return said if isinstance(said, dict) else None
