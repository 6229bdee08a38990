"""The life of one try, top to bottom: prepare, open, launch, supervise, close, judge the ending, seal.

    run_attempt ── done already? ── take the lease ── run_try ── publish ── release
                                                         │
      claim folder · make place · host.open · render · launcher.launch · supervise (deadline, budget,
      stop; the kill ladder) · host.close · what does this ending mean? · keep what is left · seal

Where the harness holds a conversation turn by turn, render, launch and supervise come again for each of
its turns (`converse.py`), and where it runs in phases for each of those (`phases.py`), under one deadline.

A try always leaves a sealed bundle unless this process is killed; then the folder without
`attempt.json` says so (`interrupted`). An infrastructure error is sealed too, is never published, and is
raised, so that nothing above can mistake it for a result.
"""

from __future__ import annotations

import errno
import secrets
import time
from pathlib import Path
from typing import Any

from bridges.channel import Channel, ChannelClosed, RemoteError
from suites.schema import Ending, Model
from tasks.attempt import converse, telemetry
from tasks.attempt.collect import keep_files
from tasks.attempt.endings import judge, natural, reason_for
from tasks.attempt.environment import Invocation, Place, Told, invocation
from tasks.attempt.job import Done, Job, Workshop
from tasks.attempt.phases import Phases
from tasks.attempt.policy import ENDINGS, InfrastructureError
from tasks.attempt.supervision import Watch
from warehouse.evidence import Bundle

OPEN_SECONDS = 60.0
"""How long the host may take to open an attempt: worlds are made, workers started."""
USER_OPEN_SECONDS = 900.0
"""The same, where a model plays the user and says the first words meanwhile; beyond what its gateway
spends on repeating a call that is shed."""


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
        self.watch = Watch(shop.stopping)
        self.place: Place | None = None
        self.host: Channel | None = None
        self.opened: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.reports: list[dict[str, Any]] = []
        """The launcher's, one a launch."""
        self.told: list[telemetry.Told] = []
        """What the harness said of itself, one a launch."""
        self.several: converse.Turns | Phases | None = None
        """Where the harness is launched more than once."""
        self.error: InfrastructureError | None = None
        self.started_at = time.time()
        self.ended_at = self.started_at

    @property
    def report(self) -> dict[str, Any]:
        """The launcher's of the last launch; empty where there was none."""
        return self.reports[-1] if self.reports else {}

    # ------------------------------------------------------------ the parts, in order

    def live(self) -> None:
        """All of it but the sealing."""
        self.host = self.shop.processes.host()
        self.place = Place.make(self.shop.run, self.job.key, self.number)
        self.shop.processes.watch(self.job.key, self.number, self.watch.on_event)
        self.shop.wake(self.watch.events)
        if self.shop.stopping.is_set():
            raise InfrastructureError("cancelled", "the sweep was stopped")
        try:
            self._open()
            self.started_at = time.time()
            self.watch.start(self.job.limits.seconds)
            talk = self.opened.get("conversation")
            if self.job.takes_turns:
                self._hold_turns(talk)
            elif talk is None:
                self._run(Told.of(self.job.task))
            elif talk["ended"] is None:
                self._run(converse.told_by_tool(self.job.task, talk["messages"]))
        finally:
            self.ended_at = time.time()
            self._close()

    def _open(self) -> None:
        assert self.host is not None
        job, task = self.job, self.job.task
        talk = converse.terms(job, self._described)
        optional = {"setup": task.setup, "conversation": talk, "store": job.harness.store or None}
        future = self.host.start(
            "open",
            attempt=job.key,
            **{"try": self.number},
            folder=str(self.folder),
            environments=[e.model_dump(mode="json") for e in task.environments],
            limits=job.limits.model_dump(),
            budget_error=job.harness.budget_error.model_dump(),
            model=self._model(),
            **{name: value for name, value in optional.items() if value is not None},
        )
        called = job.user is not None and job.user.model is not None
        self.watch.start(USER_OPEN_SECONDS if called else OPEN_SECONDS)
        opened = self.watch.over_answer(future)
        if opened is not None:
            self.opened = opened
        elif self.watch.stopped_for == "stop":
            raise InfrastructureError("cancelled", "the sweep was stopped")
        elif self.watch.stopped_for == "host_lost":
            raise ChannelClosed("open")
        elif called:
            raise InfrastructureError("user_failed", "the user's model did not begin to speak")
        else:
            raise TimeoutError(f"the host did not open the attempt in {OPEN_SECONDS:g} s")

    def _model(self) -> dict[str, Any] | None:
        """The model as the host wants it; None where the harness brings its own."""
        job = self.job
        if job.harness.wire == "none" or job.model.endpoint == "none":
            return None
        oracle = job.task.oracle
        known: dict[str, Any] = {
            "oracle": oracle.model_dump(mode="json") if oracle else {},
            "tools": [
                tool.model_dump(mode="json", exclude={"run", "result"})
                for environment in job.task.environments
                for tool in environment.tools
            ],
        }
        if job.task.user:
            known["conversation"] = {"way": job.way, "given": converse.given(job.task)}
        return self._described(job.model, known, job.harness.wire)

    def _described(self, model: Model, known: dict[str, Any], wire: str = "chat") -> dict[str, Any]:
        """A model as the host wants it.

        Args:
            known: what a scripted one has to know.
            wire: the one that whoever asks speaks.
        """
        described = model.model_dump(mode="json", exclude={"description", "estimate", "scripted"})
        described["model"] = model.model or model.name
        described["wire"] = wire
        described["scripted"] = None
        if model.is_scripted:
            described["scripted"] = {
                "behaviour": model.behaviour,
                "settings": model.scripted,
                # Another try meets other weather: the errors of `noisy` are drawn anew, its answers not.
                "seed": self.job.seed,
                **known,
            }
        return described

    def _run(self, told: Told) -> None:
        """All launches of a harness that is told everything at once."""
        if not self.job.harness.phases:
            self._launch(told, self.folder / "stdout", self.folder / "stderr")
            return
        host = self.host
        assert host is not None

        def alarm(calls: int | None, number: int) -> None:
            who = {"attempt": self.job.key, "try": self.number}
            host.call("alarm", **who, calls=calls, number=number, timeout=30)

        self.several = phases = Phases(self.job, self.watch, self.folder, self._launch, alarm)
        phases.run(told)

    def _launch(self, told: Told, stdout: Path, stderr: Path) -> dict[str, Any]:
        """Run the harness once, watched over, and keep the launcher's report."""
        assert self.place is not None
        job = self.job
        if job.way == "turns" and self.reports:  # nothing of an earlier turn is left for this one
            self.place.remove()
            self.place = Place.make(self.shop.run, job.key, self.number)
        marker = f"{job.key[:16]}-{self.number}-{secrets.token_hex(4)}"
        call: Invocation = invocation(
            job.harness,
            job.harness_dir,
            told,
            self.place,
            self.opened,
            model_id=job.model.model or job.model.name,
            limits=job.limits,
            seed=job.seed,
            deadline=self.watch.deadline,
            marker=marker,
        )
        warm = job.harness.warm
        try:
            launcher = (
                self.shop.processes.launcher(call.python, warm.imports)
                if warm
                else self.shop.processes.launcher()
            )
            if not self.reports:
                self.started_at = time.time()
            future = launcher.start(
                "launch",
                argv=call.argv,
                env=call.env,
                cwd=str(self.place.work),
                stdin=str(call.stdin) if call.stdin else None,
                stdout=str(stdout),
                stderr=str(stderr),
                cap=self._room(),
                marker=marker,
                script=call.script,
            )
        except ChannelClosed as error:
            raise InfrastructureError("launcher_lost", str(error)) from error
        self.reports.append(self.watch.over_launch(launcher, future))
        left = telemetry.Left(_text(stdout), _text(stderr), self.place.root)
        self.told.append(telemetry.read(job.harness, left))
        return self.report

    def _room(self) -> int:
        """How much of a stream the next launch may leave."""
        used = max((self._total(name) for name in ("stdout", "stderr")), default=0)
        return max(1, (self.job.limits.output_bytes or 1_000_000) - used)

    def _total(self, name: str) -> int:
        return sum(report.get(f"{name}_bytes") or 0 for report in self.reports)

    def _hold_turns(self, talk: dict[str, Any] | None) -> None:
        host = self.host
        assert host is not None

        def say(text: str) -> dict[str, Any] | None:
            return self.watch.over_answer(
                host.start("say", attempt=self.job.key, **{"try": self.number}, text=text)
            )

        self.several = turns = converse.Turns(self.job, self.watch, self.folder, self._launch, say)
        turns.hold(talk)

    def _close(self) -> None:
        """Have the host settle the attempt's record, and say how a conversation ended that has not."""
        assert self.host is not None
        how = {}
        if self.opened.get("conversation"):
            own = natural(self.job.harness, self.report, self.watch.stopped_for)
            spent = self.watch.budget_spent
            reason = reason_for(own, self.watch.stopped_for, spent=spent)
            how = {"reason": reason, "detail": own.detail}
        try:
            self.summary = self.host.call(
                "close", attempt=self.job.key, **{"try": self.number}, **how, timeout=120
            )
        except (ChannelClosed, RemoteError, TimeoutError) as error:
            if self.opened:  # else there was nothing to settle
                self.error = InfrastructureError("host_lost", f"the host did not settle: {error}")

    def tear_down(self) -> None:
        """Keep what the harness left, then remove its place."""
        self.shop.processes.unwatch(self.job.key, self.number)
        self.shop.forget(self.watch.events)
        if self.place is None:
            return
        keep_files(self.place.work, self.folder / "final")
        answer = self.told[-1].text if self.told else None
        if answer is not None:
            (self.folder / "answer").write_text(answer, "utf-8", "surrogatepass")
        self.place.remove()

    def explain(self, error: Exception) -> InfrastructureError:
        """What a lost or failed servant means for this try."""
        if isinstance(error, RemoteError):
            return InfrastructureError("environment_failed", f"{error.kind}: {error}")
        return InfrastructureError("host_lost", str(error) or "the host died")

    # ------------------------------------------------------------ the record

    def record(self) -> dict[str, Any]:
        """All of `attempt.json` but the files' hashes."""
        ending, detail, blame = self._ending()
        error, report = self.error, self.report
        first = self.summary.get("first_contact_at")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.ended_at))
        cpu = [r["cpu_s"] for r in self.reports if r.get("cpu_s") is not None]
        return {
            "attempt_key": self.job.key,
            "try": self.number,
            "sweep_id": self.job.sweep_id,
            "task": self.job.task_identity,
            "stamp": {**self.job.stamp, "seed": self.job.seed, "date": now},
            "prices": self.job.model.prices.model_dump() if self.job.model.prices else None,
            "ending": ending,
            "detail": detail,
            "blame": blame,
            "error": {"class": error.error_class, "message": error.message} if error else None,
            "exit_code": report.get("exit_code"),
            "signal": report.get("signal"),
            "left_processes": sum(r.get("left", 0) for r in self.reports),
            "timings": {
                "started_at": self.started_at,
                "ended_at": self.ended_at,
                "wall_s": round(self.ended_at - self.started_at, 4),
                "startup_s": round(max(0.0, first - self.started_at), 4) if first else None,
                "waited_s": self.summary.get("waited_seconds", 0.0),
                "cpu_s": round(sum(cpu), 4) if cpu else None,
            },
            "host": self.summary,
            "output": self._output(),
            "reported": self._reported(),
            **({"launches": self.several.launches} if self.several else {}),
        }

    def _ending(self) -> tuple[Ending, str, str | None]:
        """The ending, and whom to blame; sets `error` where it is no result."""
        if self.error is None and self.watch.stopped_for == "stop":
            self.error = InfrastructureError("cancelled", "the sweep was stopped")
        if self.error is not None:
            return "interrupted", self.error.message, self.error.rule.blame
        verdict = judge(
            self.job.harness,
            self.job.task,
            self.report,
            self.summary,
            self.watch.stopped_for,
            self.job.limits.seconds,
        )
        detail = verdict.detail
        if verdict.error_class in (
            "bridge_unlisted",
            "harness_missing",
            "harness_config",
            "harness_infra",
        ):
            detail += self._last_words()
        rule = ENDINGS[verdict.ending]
        if verdict.error_class:
            self.error = InfrastructureError(verdict.error_class, detail)
            rule = self.error.rule
        return verdict.ending, detail, verdict.blame or rule.blame

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
            total = max(self._total(name), kept)
            output |= {f"{name}_bytes": total, f"{name}_cut": total - kept}
        return output

    def _reported(self) -> dict[str, Any] | None:
        """What the harness says it used, in all its turns."""
        told = [one for one in self.told if one.usage]
        if self.job.way == "resume" and told and told[-1].of_session:
            told = told[-1:]  # it holds the others
        return converse.summed([one.usage for one in told if one.usage])


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
