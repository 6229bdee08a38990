"""How a running sweep is stopped: Ctrl-C, SIGTERM, or a cancel in the Prefect UI, all in one place."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect.runtime import flow_run

CANCEL_POLL = 4.0
"""Seconds between two looks at whether the run was cancelled in the UI."""


class Stopped(Exception):  # noqa: N818 - the condition
    """The sweep was stopped by a person (or the disk); what is done is done.

    Attributes:
        reason: in words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Signals and a cancel in the UI set the event that is yielded; a second Ctrl-C insists."""
    stop = threading.Event()
    over = threading.Event()

    def on_signal(number: int, _frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        old = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    # The run is known by the context of this thread; the watcher's thread has none.
    run = (flow_run.id, os.environ.get("PREFECT_API_URL"))
    watcher = threading.Thread(target=_watch_for_cancel, args=(*run, stop, over), daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        over.set()
        for number, handler in old.items():
            signal.signal(number, handler)


def _watch_for_cancel(
    run_id: str | None, base: str | None, stop: threading.Event, over: threading.Event
) -> None:
    """Ask the API now and then whether somebody cancelled this flow run."""
    if not run_id or not base:
        return
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while not over.wait(CANCEL_POLL):
        try:
            with opener.open(f"{base}/flow_runs/{run_id}", timeout=10) as reply:
                state = json.load(reply)["state_type"]
        except (OSError, ValueError, KeyError):
            continue  # a server that is away for a while does not stop a sweep
        if state in ("CANCELLING", "CANCELLED"):
            stop.set()
            return
