"""A harness that runs in phases: killed on purpose, and started again over what it left.

    launch ── n tool calls answered ──► SIGKILL of its whole tree ── next launch ── … ──► the end

What a durable harness promises is that nothing is lost by being killed. So HOME, working directory,
state store, tools and model are the same in all phases, under one deadline and one budget, and only
the processes are not. How the last launch ends is how the try ends; being killed by us is no end, and
nobody's failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.attempt.converse import RECORDED, join
from tasks.attempt.endings import natural
from tasks.attempt.environment import Told
from tasks.attempt.job import Job
from tasks.attempt.supervision import Watch


class Phases:
    """The phases of one try.

    Args:
        launch: runs the harness as it is told, its output into the two files; the launcher's report.
        alarm: has the host tell when so many calls of a phase were answered (None: never).
        folder: the try's folder; each phase leaves `phases/<nnn>.stdout` and `.stderr` in it, and the
            whole is in `stdout` and `stderr` as ever.

    Attributes:
        launches: what each phase came to, for the record.
    """

    def __init__(
        self,
        job: Job,
        watch: Watch,
        folder: Path,
        launch: Callable[[Told, Path, Path], dict[str, Any]],
        alarm: Callable[[int | None, int], None],
    ) -> None:
        self.launches: list[dict[str, Any]] = []
        self._job = job
        self._watch = watch
        self._folder = folder
        self._launch = launch
        self._alarm = alarm

    def run(self, told: Told) -> None:
        """Launch one phase after the other, until one ends the try or it was the last."""
        (self._folder / "phases").mkdir(exist_ok=True)
        for number, phase in enumerate(self._job.harness.phases, 1):
            self._watch.phase = number if phase.kill_after else None
            self._watch.cut_short = False
            self._alarm(phase.kill_after, number)
            report = self._phase(replace(told, phase=number))
            if self._watch.stopped_for is not None:
                return
            if self.launches[-1]["killed"]:
                continue
            own = natural(self._job.harness, report, None)
            if phase.kill_after or own.ending != "clean":
                return  # it came to an end before it could be killed, or cannot go on

    def _phase(self, told: Told) -> dict[str, Any]:
        stdout = self._folder / "phases" / f"{told.phase:03d}.stdout"
        stderr = stdout.with_suffix(".stderr")
        report = self._launch(told, stdout, stderr)
        self.launches.append(
            {
                "phase": told.phase,
                # it may have ended by itself while the signal was on its way
                "killed": self._watch.cut_short and report.get("exit_code") is None,
                **{name: report.get(name) for name in RECORDED},
            }
        )
        join(self._folder, stdout, stderr)
        return report
