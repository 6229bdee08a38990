"""The process that grades: jobs in, verdicts out, one JSON line each, and nothing else.

Claim: whatever a benchmark's own code does (prints, hangs, crashes, keeps state) it does here, with no
key in the environment, and hurts one grade at most. A job that takes too long ends the process by a
timer of the kernel, which no busy loop and no regular expression can hold up; whoever asked starts
another and goes on. When the line from the parent ends, however the parent died, this process ends.

    python -m tasks.grade.worker      stdin: {"seconds": for each job, "jobs": [tasks/grade/jobs.py, …]}
                                      stdout: [{"id", "grader_version", "bundle_hash", verdict…}, …]

A line is read whole before any of it is graded and answered whole after, so neither end can wait for
the other's pipe to empty.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from typing import Any, BinaryIO

from suites.errors import InputError
from tasks.grade.calls import EvidenceHole
from tasks.grade.graders import grader
from tasks.grade.jobs import Check, Job, Verdict, grader_error
from tasks.grade.recorded import Recorded, read
from warehouse.evidence import CorruptBundle


def answer(job: Job, seconds: float = 0) -> dict[str, Any]:
    """Grade one job; every mistake becomes a grader_error, none an exception."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    recorded, version = Recorded(), "unknown"
    try:
        chosen = grader(job.grader)
        version = chosen.version(job.dataset)
        recorded = read(job)
        verdict = _ruled_by_ending(job, recorded) or chosen.grade(job, recorded)
    except CorruptBundle as error:
        verdict = grader_error("corrupt_bundle", str(error))
    except EvidenceHole as error:
        verdict = grader_error("evidence_hole", str(error))
    except InputError as error:
        verdict = grader_error("grader_missing", str(error))
    except Exception as error:
        verdict = grader_error("grader_raised", repr(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {
        "id": job.id,
        "grader_version": version,
        "bundle_hash": recorded.bundle_hash,
        **verdict.as_json(),
    }


def _ruled_by_ending(job: Job, recorded: Recorded) -> Verdict | None:
    """The benchmark's own rule for an ending that is not clean; None where the work is graded."""
    if job.on_error == "grade_work" or recorded.ending == "clean":
        return None
    finding = f"The try ended by {recorded.ending}; the task's rule is {job.on_error}."
    check = Check("ending", False, finding, error_type=f"ending:{recorded.ending}")
    return Verdict(False, 0.0, (check,))


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Answer jobs until the line ends."""
    threading.Thread(target=_end_with, args=(stdin.fileno(),), daemon=True).start()
    for line in stdin:
        asked = json.loads(line)
        answers = [answer(Job(**job), asked["seconds"]) for job in asked["jobs"]]
        stdout.write(json.dumps(answers).encode() + b"\n")
        stdout.flush()


def _end_with(descriptor: int) -> None:
    """End this process once the other end of the line is closed, whatever is being graded."""
    watch = select.poll()
    watch.register(descriptor, 0)  # asks for nothing; a hang-up is told in any case
    watch.poll()
    os._exit(0)


def main() -> None:
    """Keep the line for answers alone: what graders print goes nowhere."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    line = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    sys.stdout = os.fdopen(nowhere, "w")
    serve(sys.stdin.buffer, line)


if __name__ == "__main__":
    main()
