"""What an attempt's life works with: the job, the workshop of its worker, and what comes of it."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suites.schema import Harness, Limits, Model, Task
from tasks.attempt.lease import Leases
from tasks.attempt.processes import Processes
from tasks.users import User
from warehouse.evidence import Bundle, Evidence
from warehouse.shards import ShardWriter


@dataclass(frozen=True)
class Job:
    """One attempt to run, with everything resolved.

    Attributes:
        stamp: the cell's stamp; `seed` and `date` are added when the try is sealed.
        task_identity: what `attempt.json` says of the task (suite, version, id, category, repeat).
        user: who plays the user; None where the task is no conversation.
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
    user: User | None = None

    @property
    def way(self) -> str | None:
        """How the harness talks with the user (`tool`, `turns`, `resume`); None: there is none."""
        return (self.harness.conversation or "tool") if self.task.user else None

    @property
    def takes_turns(self) -> bool:
        """True where the harness is run once for each turn of the agent."""
        return self.way in ("turns", "resume")


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

    def wake(self, events: queue.SimpleQueue[str]) -> None:
        """Put `stop` into this queue when the sweep is to stop, until `forget`."""
        self._wakers.add(events)

    def forget(self, events: queue.SimpleQueue[str]) -> None:
        """See `wake`."""
        self._wakers.discard(events)

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
