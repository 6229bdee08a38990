"""Real parts for the harnesses' tests: a host, an attempt in it, and the harness file as it ships."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "bridges"))

from host_parts import Opened, RunningHost

from suites.loading import load_harness
from suites.schema import Limits, Task
from tasks.attempt.environment import Invocation, Place, Told, invocation

__all__ = ["ADD", "Ran", "RunningHost", "Stage", "Warm", "playbook", "scripted"]

HERE = Path(__file__).parent

ADD = {
    "name": "add",
    "native_name": "math.add",
    "description": "Adds two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    "result": "3",
}


def scripted(behaviour: str, gold: list[dict[str, Any]] = (), **settings: Any) -> dict[str, Any]:  # type: ignore[assignment]
    """A scripted model as the flow hands it to the host."""
    return {
        "endpoint": f"scripted:{behaviour}", "model": "m", "name": behaviour, "wire": "chat",
        "api_key_env": None, "prices": {"date": "2026-11-01", "input": 1.0, "output": 2.0},
        "parameters": {}, "rate_limits": {},
        "scripted": {
            "behaviour": behaviour, "settings": settings, "seed": 1,
            "oracle": {"calls": list(gold), "answer": "Three."}, "tools": [ADD],
        },
    }  # fmt: skip


def playbook(*steps: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return scripted("playbook", steps=list(steps), **settings)


@dataclass
class Ran:
    """What a run of a harness left."""

    code: int
    stdout: str
    stderr: str
    cpu_seconds: float | None = None


class Stage:
    """One attempt, ready for a harness."""

    def __init__(self, host: RunningHost, harness: str, model: dict[str, Any], **open: Any) -> None:
        tools = open.pop("tools", [ADD])
        if not tools:
            open["environments"] = []
        self.opened: Opened = host.open(*tools, model=model, **open)
        located = load_harness(harness)
        self.place = Place.make(self.opened.folder, self.opened.key, 1)
        task = Task.model_validate(
            {
                "id": "t1",
                "messages": [{"role": "user", "content": "Add 1 and 2."}],
                "grade": {"grader": "checks"},
            }
        )
        self.call: Invocation = invocation(
            located.harness, located.folder, Told.of(task), self.place, self.opened.answer,
            model_id="m", limits=Limits(), seed=1, deadline=0.0, marker="test",
        )  # fmt: skip

    def run(self, **replaced: str) -> Ran:
        """Run it as a plain process."""
        argv = self._argv(replaced)
        if self.call.script:
            argv = [sys.executable, self.call.script, *argv]
        done = subprocess.run(
            argv, env=self.call.env, cwd=self.place.work, capture_output=True, text=True, timeout=60
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def run_warm(self, warm: Warm, **replaced: str) -> Ran:
        """Run it as a fork of a process that has its modules."""
        return warm.run(self._argv(replaced), self.call.env, self.opened.folder)

    def close(self) -> dict[str, Any]:
        return self.opened.close()

    def model_rows(self, event: str) -> list[dict[str, Any]]:
        lines = (self.opened.folder / "model.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["event"] == event]

    def _argv(self, replaced: dict[str, str]) -> list[str]:
        argv = list(self.call.argv)
        for option, value in replaced.items():
            argv[argv.index("--" + option.replace("_", "-")) + 1] = value
        return argv


class Warm:
    """The parent of warm launches of the reference harness."""

    def __init__(self) -> None:
        located = load_harness("reference")
        warm = located.harness.warm
        assert warm is not None
        script = str(Path(located.folder) / "reference.py")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm_parent.py"), script, *warm.imports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )

    def run(self, argv: list[str], env: dict[str, str], folder: Path) -> Ran:
        assert self._process.stdin
        assert self._process.stdout
        order = {"argv": argv, "env": env, "folder": str(folder)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        stdout, stderr = (folder / "stdout").read_text(), (folder / "stderr").read_text()
        return Ran(told["code"], stdout, stderr, told["cpu_seconds"])

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)
