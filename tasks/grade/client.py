"""Grading from a flow: one worker process, started when first needed, replaced when it fails.

Claim: a grader that hangs or crashes costs the one try it was judging, which becomes a grader_error
with the reason; the tries before and after it are graded as if nothing had happened. Threads may share
one `Grading`: each has the worker to itself for a batch.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from suites.errors import InputError
from suites.home import PROJECT, dyno_home
from tasks.grade.graders import grader
from tasks.grade.jobs import Job, Verdict, grader_error
from warehouse.evidence import CorruptBundle, Evidence

JOB_SECONDS = 30.0
"""Longest one grade may take; BFCL's takes well under a millisecond."""
JUDGED_SECONDS = 120.0
"""The same where a model judges, which may have to wait for a rate limit."""
REPLAYS = 3
"""A grader that ran out of time gets so many times as long as the agent's calls took, once: one that
replays them takes as long, and an agent must not leave its attempt ungraded by calls that take long."""
GRACE_SECONDS = 5.0
"""How much later the parent stops waiting, should the worker's own timer fail."""
TOO_LONG = "the grader took longer than"
BATCH = 32
"""Jobs sent at once: waking the other process costs more than a grade does."""
REASON_BYTES = 2000
"""How much of a dead worker's last words becomes the reason."""


class Grading:
    """Grades jobs in a worker process of its own; a context manager.

    Args:
        seconds: longest one grade may take.
    """

    def __init__(self, seconds: float = JOB_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def grade(self, job: Job) -> dict[str, Any]:
        """The grade of one job, as the evidence keeps it (docs/evidence.md); never raises for the job.

        `solved` is None for a grader_error, and `error` then says why.
        """
        return next(self.grade_bundles([job]))

    def grade_bundles(self, jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
        """The grade of each job, in order."""
        waiting = iter(jobs)
        while batch := list(itertools.islice(waiting, BATCH)):
            with self._lock:
                answers = self._ask(batch)
            yield from map(_grade, batch, answers)

    def grade_attempts(self, evidence: Evidence, jobs: Iterable[Job]) -> Counter[str]:
        """Grade finished tries and keep the grades beside them; no old grade is touched.

        Args:
            evidence: where the grades go.
            jobs: each with the attempt key as its `id`.

        Returns:
            How many were `solved`, `failed` and `grader_error`, and of all those how many grades are
            `new` and how many say what one on disk `unchanged` says already.
        """
        counts: Counter[str] = Counter(solved=0, failed=0, grader_error=0, new=0, unchanged=0)
        ours, theirs = itertools.tee(jobs)
        for job, grade in zip(ours, self.grade_bundles(theirs), strict=True):
            counts[{True: "solved", False: "failed", None: "grader_error"}[grade["solved"]]] += 1
            counts["new" if evidence.write_grade(job.id, grade) else "unchanged"] += 1
        return counts

    def close(self) -> None:
        """End the worker. Grading again starts another."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Grading:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _ask(self, batch: list[Job], longer: float = 0.0) -> list[dict[str, Any]]:
        """The worker's answers; where it dies of a batch, each job is asked alone.

        Args:
            longer: seconds beyond what one grade may take.
        """
        if any(job.dataset != batch[0].dataset for job in batch):
            return [answer for job in batch for answer in self._ask([job])]
        worker = self._fitting(batch[0].dataset)
        used = worker.answered > 0
        try:
            judged = any(job.judge for job in batch)
            seconds = max(self._seconds, JUDGED_SECONDS) if judged else self._seconds
            answers, reason = worker.ask(batch, seconds + longer)
        except (
            BaseException
        ):  # Ctrl-C: the answer will come, and must not be taken for the next one's
            self._drop()
            raise
        if answers is not None:
            return answers
        self._drop()
        if len(batch) > 1:
            return [answer for job in batch for answer in self._ask([job])]
        slow = REPLAYS * _seconds_of_calls(batch[0])
        if reason.startswith(TOO_LONG) and not longer and slow > 1:
            return self._ask(batch, slow)
        if used and not reason.startswith(TOO_LONG):
            return self._ask(batch)  # what an earlier job left behind must not cost this one
        return [_unanswered(batch[0], grader_error("grader_died", reason))]

    def _fitting(self, dataset: str) -> _Worker:
        """The worker, another if this one is dead or holds another version of a package."""
        if self._worker is not None and not self._worker.fits(dataset):
            self._drop()
        if self._worker is None:
            self._worker = _Worker.start(dataset)
        return self._worker

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


@dataclass
class _Worker:
    """One worker process; `dataset` is the one package version it may judge with."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    dataset: str
    answered: int = 0

    @classmethod
    def start(cls, dataset: str) -> _Worker:
        errors = tempfile.TemporaryFile(prefix="dyno-grader-")
        process = subprocess.Popen(
            [sys.executable, "-m", "tasks.grade.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=PROJECT,
            env=_scrubbed(),
            start_new_session=True,
        )
        return cls(process, errors, dataset)

    def fits(self, dataset: str) -> bool:
        """False if it is dead, or has another version of a package: two cannot live in one process."""
        return dataset in ("", self.dataset) and self.process.poll() is None

    def ask(self, jobs: list[Job], seconds: float) -> tuple[list[dict[str, Any]] | None, str]:
        """The answers, or None and the reason why there are none (the worker is then of no use)."""
        asked = {"seconds": seconds, "jobs": [job.as_json() for job in jobs]}
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(asked).encode() + b"\n")
            stdin.flush()
        except OSError:
            return None, self._last_words(seconds)
        patience = len(jobs) * seconds + GRACE_SECONDS
        if not select.select([stdout], [], [], patience)[0]:
            return None, f"{TOO_LONG} {seconds:g} s"
        reply = stdout.readline()
        if not reply.endswith(b"\n"):
            return None, self._last_words(seconds)
        answers: list[dict[str, Any]] = json.loads(reply)
        self.answered += len(answers)
        return answers, ""

    def _last_words(self, seconds: float) -> str:
        code = self.process.wait()
        if code == -signal.SIGALRM:
            return f"{TOO_LONG} {seconds:g} s"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        self.errors.seek(0)
        words = self.errors.read()[-REASON_BYTES:].decode("utf-8", "replace").strip()
        return f"the grader's process {how}" + (f": {words}" if words else "")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass


def refused(job: Job, kind: str, message: str) -> dict[str, Any]:
    """The grade of a job that no grader could be asked: a grader_error."""
    return _grade(job, _unanswered(job, grader_error(kind, message)))


def _unanswered(job: Job, verdict: Verdict) -> dict[str, Any]:
    return {
        "grader_version": _version(job),
        "bundle_hash": _bundle_hash(job),
        **verdict.as_json(),
    }


def _grade(job: Job, answer: dict[str, Any]) -> dict[str, Any]:
    """The worker's answer as the evidence keeps it."""
    return {
        "grader": job.grader,
        "spec_hash": job.spec_hash,
        "graded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **{key: value for key, value in answer.items() if key != "id"},
    }


def _scrubbed() -> dict[str, str]:
    """No key, no proxy, no setting of the user's: what the interpreter and the cache need."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "TZ", "TMPDIR") if name in os.environ
    }
    return {**kept, "DYNO_HOME": str(dyno_home())}


def _version(job: Job) -> str:
    try:
        return grader(job.grader).version(job.dataset)
    except InputError:
        return "unknown"


def _seconds_of_calls(job: Job) -> float:
    """How long the calls that a try's tools answered took, together; 0 where no record says."""
    rows = (job.rows or {}).get("bridge", [])
    if job.folder is not None:
        try:
            lines = (Path(job.folder) / "bridge.jsonl").read_bytes().splitlines()
            rows = [json.loads(line) for line in lines]
        except (OSError, ValueError):
            return 0.0
    answered = [row for row in rows if row.get("status") in ("ok", "tool_error")]
    return sum(row.get("ms") or 0.0 for row in answered) / 1000


def _bundle_hash(job: Job) -> str:
    """For a grade the worker did not live to give; "" where the bundle is not readable."""
    if job.folder is None:
        return ""
    folder = Path(job.folder)
    try:
        bundle = Evidence(folder.parent).bundle(folder)
    except CorruptBundle:
        return ""
    return bundle.hash if bundle else ""
