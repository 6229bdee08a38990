"""The other end of `tau2_upstream.py`: asks a package's own code, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from suites.errors import InputError
from suites.home import PROJECT

LAST_WORDS = 2000
"""Bytes of a dead process's stderr that become the reason."""
BATCH = 50
"""Runs asked for at once; their results are held in memory by both ends."""


class CannotLoad(InputError):  # noqa: N818 - the condition
    """Upstream's code for a domain cannot be used here; other domains may be fine."""


class Upstream:
    """One version of upstream, started when first asked.

    Args:
        folder: the package or checkout in the cache.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile(prefix="dyno-tau2-")

    def has_domain(self, domain: str) -> bool:
        """True where its data hold that domain."""
        roots = (self.folder / "tau2" / "data", self.folder / "data")
        return any((root / "tau2" / "domains" / domain).is_dir() for root in roots)

    def describe(self, domain: str, split: str | None) -> dict[str, Any]:
        """Policy, tools and tasks of a domain's split (see `tau2_upstream.Domain.describe`).

        Raises:
            CannotLoad: its code cannot be loaded.
            InputError: a file of it is missing or wrong.
        """
        said: dict[str, Any] = self._ask({"ask": "describe", "domain": domain, "split": split})
        return said

    def run(self, domain: str, runs: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
        """Gold of each task, then a forbidden write (see `tau2_upstream.Domain.run`)."""
        return list(self.playing(domain, runs))

    def playing(self, domain: str, runs: Iterable[tuple[int, int]]) -> Iterator[dict[str, Any]]:
        """The same, as they are played: whoever judges them need not wait for the last."""
        asked = list(runs)
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            yield from self._ask({"ask": "run", "domain": domain, "runs": batch})

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass
            self._process = None
        self._errors.close()

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tasks.convert.tau2_upstream", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=PROJECT,
                env={k: os.environ[k] for k in ("PATH", "LANG", "TZ", "TMPDIR") if k in os.environ},
                start_new_session=True,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(question).encode() + b"\n")
            stdin.flush()
            said = stdout.readline()
        except OSError:
            said = b""
        if not said.endswith(b"\n"):
            raise self._died(question["domain"])
        answer = json.loads(said)
        if isinstance(answer, dict) and "error" in answer:
            kind = CannotLoad if answer["loading"] else InputError
            raise kind(answer["error"], where=answer["where"], mend=answer["mend"])
        return answer

    def _died(self, domain: str) -> CannotLoad:
        assert self._process is not None
        code = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read()[-LAST_WORDS:].decode("utf-8", "replace").strip()
        last = words.splitlines()[-1] if words else f"exit code {code}"
        self._process = None
        return CannotLoad(
            f"upstream's code ended while it was asked about {domain!r}: {last}",
            where=str(self.folder),
        )
