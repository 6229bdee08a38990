"""Judges a published run's simulations as often as it is told to (see test_tau2_grade_bench.py).

    python tau2_grade_process.py HOME COUNT

Prints a line when ready; then, for each line `ours` or `plainly` on stdin, the rewards in one line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["DYNO_HOME"] = sys.argv[1]

from bridges import tau2_package
from tasks.grade import tau2 as grader
from tasks.grade.recorded import read
from tasks.grade.tau2_trajectory import messages_of
from tests.tasks.grade.tau2_conversations import VERSION, published, rows_of, task_id_of, tasks_of


def main() -> None:
    tasks = tasks_of(Path(sys.argv[1]), "airline")
    jobs = [
        rows_of(simulation).job(tasks[task_id_of(simulation) or str(place)])
        for place, simulation in enumerate(published()[: int(sys.argv[2])])
    ]
    evaluator = grader._evaluator(VERSION)
    evaluator.worlds("airline")
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "ours":
            tau2_package.constructor_for(evaluator._make)
            rewards = [grader.grade(job, read(job)).score for job in jobs]
        else:
            tau2_package.constructor_for(None)
            rewards = [
                evaluator._rewarded(job.spec, messages_of(read(job), "airline", None), "user_stop")[
                    1
                ].reward
                for job in jobs
            ]
        print(*rewards, flush=True)


if __name__ == "__main__":
    main()
