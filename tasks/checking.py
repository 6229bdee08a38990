"""Whether a harness works: run for real, the ordinary life of an attempt, and looked at line by line.

One tool, scripted models, evidence in a folder of its own. Five short attempts of one task:

    works      the oracle calls the tool once and then answers
    deadline   the model never answers
    budget     the second model call is refused
    key        the endpoint refuses the key
    down       nobody listens at the endpoint

What each line says is read from the journals and the record that the attempt left, never from what the
harness says, with one exception that is about just that: what it reports against what was metered. The
tool's result holds a random word, as do the end of the policy and the answer, so that a word that is
seen where it should arrive has come the whole way.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suites.errors import InputError
from suites.loading import load_harness
from suites.schema import Harness, Model, Sweep, Wire
from tasks.attempt.job import Workshop
from tasks.attempt.launcher import marked_processes
from tasks.attempt.lease import Leases
from tasks.attempt.life import run_try
from tasks.attempt.processes import Processes
from tasks.checking_lines import Line, Seen, Words, budget, deadline, failed, worked
from tasks.configurations import Configured
from tasks.planning import make_plan
from tasks.running import job_of
from warehouse.evidence import Evidence
from warehouse.shards import ShardWriter

SECONDS = 120.0
"""Deadline of the attempt that should work."""
AT_ONCE = 3
"""Attempts that run side by side, once it is known that the harness works at all."""


@dataclass(frozen=True)
class Report:
    """What came of checking one harness."""

    harness: str
    version: str | None
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """True where nothing failed and nothing is to be warned of."""
        return all(line.state in ("ok", "none") for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """The form of `dyno harness check --json`."""
        return {**asdict(self), "ok": self.ok}


# ---------------------------------------------------------------- the attempts


def models(wire: Wire) -> dict[str, Model]:
    """The model of each attempt, on a harness's wire."""
    refusal = {"error": {"message": "Incorrect API key provided.", "type": "authentication_error"}}

    def playbook(step: dict[str, Any]) -> Model:
        script = {"steps": [step], "loop": True}
        return Model(name="check", endpoint="scripted:playbook", scripted=script)

    oracle = Model(name="check", endpoint="scripted:oracle")
    return {
        "works": oracle,
        "deadline": playbook({"hang": True}),
        "budget": oracle,
        "key": playbook({"status": 401, "body": refusal}),
        "down": Model(name="check", endpoint=f"http://127.0.0.1:{_unused_port()}/v1", wire=wire),
    }


def _unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Check:
    """Checks harnesses, one after the other, over one host.

    Args:
        folder: for evidence, logs and places; nothing of it reaches a warehouse.
        grace: seconds that an attempt which must end gets beyond twice the time to its first model call.
    """

    def __init__(self, folder: Path, grace: float = 8.0) -> None:
        self._folder = folder
        self._grace = grace
        evidence = Evidence(folder / "evidence")
        self._shop = Workshop(
            evidence=evidence,
            processes=Processes(folder / "logs"),
            leases=Leases(evidence.root / "leases"),
            shards=ShardWriter(folder / "shards"),
            run=folder / "run",
        )

    def __enter__(self) -> Check:
        return self

    def __exit__(self, *_: object) -> None:
        self._shop.stop()
        self._shop.close()

    def harness(self, ref: str | Harness, seconds: float = SECONDS) -> Iterator[Line | Report]:
        """Check one: its lines as they come, then the report.

        Args:
            ref: name, path, or a harness.
            seconds: deadline of the attempt that should work.
        """
        lines: list[Line] = []
        version: str | None = None
        name = ref if isinstance(ref, str) else ref.name
        try:
            located = load_harness(ref)
            name = located.harness.name
            harness = located.harness.model_copy(update={"folder": located.folder})
            version = Configured.of(located).version
        except InputError as error:
            lines.append(Line("found", "fail", _one_line(str(error))))
            yield lines[-1]
        else:
            for line in self._lines(harness, version, seconds):
                lines.append(line)
                yield line
        yield Report(name, version, tuple(lines))

    def _lines(self, harness: Harness, version: str, seconds: float) -> Iterator[Line]:
        yield Line("found", "ok", version)
        if harness.wire == "none":
            yield Line("runs", "none", "not looked at: it has a model of its own")
            return
        words = Words.fresh()
        suite = self._folder / f"{harness.name}.yaml"
        suite.parent.mkdir(parents=True, exist_ok=True)
        suite.write_text(json.dumps(words.suite()))
        chosen = models(harness.wire)

        def attempt(name: str, **limits: Any) -> Seen:
            return self._attempt(harness, suite, chosen[name], limits)

        try:
            works = attempt("works", seconds=seconds)
        except InputError as error:
            yield Line("runs", "fail", _one_line(error.what))
            return
        yield from worked(works, harness, words)
        if works.startup is None:
            yield Line("the rest", "none", "not looked at, since it does not start")
            return
        patience = 2 * works.to_first_call + self._grace
        rest: dict[str, dict[str, Any]] = {
            "deadline": {"seconds": patience},
            "budget": {"seconds": 3 * patience, "model_calls": 1},
            "key": {"seconds": 1.5 * patience},
            "down": {"seconds": 1.5 * patience},
        }
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = {name: pool.submit(attempt, name, **limits) for name, limits in rest.items()}
            yield deadline(asked["deadline"].result(), patience)
            yield budget(asked["budget"].result())
            yield failed(asked["key"].result(), "wrong key", "upstream_auth")
            yield failed(asked["down"].result(), "endpoint down", "upstream_unreachable")
        left = marked_processes(str(self._folder / "run"))
        yield Line(
            "nothing left",
            "fail" if left else "ok",
            f"{len(left)} processes of it are still there" if left else "no process of it is there",
        )

    def _attempt(self, harness: Harness, suite: Path, model: Model, limits: dict[str, Any]) -> Seen:
        sweep = Sweep.model_validate(
            {
                "name": "check",
                "suites": [str(suite)],
                "harnesses": [harness],
                "models": [model],
                "limits": limits,
            }
        )
        plan = make_plan(sweep, fresh=True)
        [key] = plan.by_key
        return Seen(run_try(job_of(plan, key), self._shop))


def _one_line(text: str) -> str:
    return " ".join(text.split())
