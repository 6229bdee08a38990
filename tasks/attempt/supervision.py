"""Watching over what runs: until it has ended, or until its deadline, its budget or a stop ends it.

One watch lasts as long as a try. It may see several launches, in a conversation that is held turn by
turn, and the user's answers between them: one deadline holds for all of it.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from typing import Any

from bridges.channel import Channel, ChannelClosed, RemoteError
from tasks.attempt.policy import InfrastructureError

BUDGET_GRACE = 10.0
"""Seconds a harness has to end by itself after it was told that its budget is spent."""
TERM_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""
STOP_GRACE = 1.0
"""The same, where a person is waiting for Ctrl-C to take."""


class Watch:
    """The working clock of one try, and all that may cut it short.

    Args:
        stopping: set when the sweep is to stop.

    Attributes:
        stopped_for: why what ran was ended: `timeout`, `budget`, `stop` or `host_lost`; None if all
            ended by itself.
        budget_spent: True once a model call was refused for the budget.
        phase: the phase that is running, where it is to be killed after so many tool calls; else None.
        cut_short: True once that phase was sent SIGKILL for it, which is no end of the try.
    """

    def __init__(self, stopping: threading.Event) -> None:
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stopped_for: str | None = None
        self.budget_spent = False
        self.phase: int | None = None
        self.cut_short = False
        self.deadline = float("inf")
        self._stopping = stopping
        self._waited = 0.0
        self._waiting_since: float | None = None

    def start(self, seconds: float | None) -> None:
        """Begin to count towards the deadline."""
        self.deadline = time.time() + (seconds or 1e9)

    def on_event(self, event: dict[str, Any]) -> None:
        """Take what the host says of this try; called in the reader's thread."""
        if event["event"] in ("budget", "host_lost"):
            self.events.put(event["event"])
        elif event["event"] == "calls":
            self.events.put(f"calls {event['number']}")
        elif event["event"] == "waiting":
            self._waited = event["waited_seconds"]
            self._waiting_since = time.time() if event["waiting"] else None
            self.events.put("waiting")

    def left(self) -> float:
        """Seconds to the deadline; waits for a rate limit do not count."""
        if self._waiting_since is not None:
            return 3600.0
        return self.deadline + self._waited - time.time()

    def over_launch(self, launcher: Channel, future: Future[dict[str, Any]]) -> dict[str, Any]:
        """Wait for a harness to end, and see to it that it does; the launcher's report.

        Raises:
            InfrastructureError: the launcher died or could not launch.
        """
        future.add_done_callback(lambda _: self.events.put("ended"))
        while not future.done():
            event = self._next()
            if event == "stop":
                self._end(launcher, future, "stop", STOP_GRACE)
            elif event == "budget":
                self._end(launcher, future, "budget", TERM_GRACE, patience=BUDGET_GRACE)
            elif event == "host_lost":
                self._end(launcher, future, "host_lost", 0.2)
            elif event == f"calls {self.phase}":  # of an earlier phase it comes too late
                self.cut_short = True
                self._signal(launcher, future, "KILL", 60.0)
            elif event == "deadline" and self.left() <= 0:
                self._end(launcher, future, "timeout", TERM_GRACE)
        try:
            return future.result()
        except ChannelClosed as error:
            raise InfrastructureError("launcher_lost", str(error)) from error
        except RemoteError as error:
            raise InfrastructureError("internal", f"the launch failed: {error}") from error

    def over_answer(self, future: Future[dict[str, Any]]) -> dict[str, Any] | None:
        """Wait for the host to answer; None if the deadline or a stop came first (`stopped_for`)."""
        future.add_done_callback(lambda _: self.events.put("answered"))
        while not future.done():
            event = self._next()
            if event in ("stop", "host_lost"):
                self.stopped_for = self.stopped_for or event
            elif event == "deadline" and self.left() <= 0:
                self.stopped_for = self.stopped_for or "timeout"
            if self.stopped_for:
                return None
        return future.result()

    def _next(self) -> str:
        try:
            event = self.events.get(timeout=max(0.01, min(self.left(), 3600)))
        except queue.Empty:
            return "deadline"
        self.budget_spent |= event == "budget"
        return event

    def _end(
        self,
        launcher: Channel,
        future: Future[dict[str, Any]],
        why: str,
        grace: float,
        patience: float = 0.0,
    ) -> None:
        """The kill ladder: wait, SIGTERM, wait, SIGKILL of all there is, and wait for the proof."""
        self.stopped_for = self.stopped_for or why
        for name, seconds in ((None, patience), ("TERM", grace), ("KILL", 60.0)):
            if self._signal(launcher, future, name, seconds):
                return

    def _signal(
        self, launcher: Channel, future: Future[dict[str, Any]], name: str | None, seconds: float
    ) -> bool:
        """One rung: the signal (None: only patience), and so long to end by it; whether it has."""
        if name:
            number = future.number  # type: ignore[attr-defined]
            launcher.call("signal", launch=number, name=name, timeout=30)
        until = time.time() + seconds
        while not future.done() and time.time() < until:
            if name is None and self._stopping.is_set():
                break
            try:
                future.exception(timeout=min(0.5, max(0.0, until - time.time())))
            except TimeoutError:
                continue
        return future.done()
