"""The `dyno` command as a person runs it: a process, a real Prefect server, a DYNO_HOME of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from suites.home import PROJECT

CALL = 'tool get_weather \'{"city": "Oslo"}\''


class Dyno:
    """Runs `dyno` in one DYNO_HOME, with the session's Prefect server."""

    def __init__(self, home: Path, api: str | None) -> None:
        self.home = home
        kept = ("PATH", "HOME", "LANG", "PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE", "TMPDIR")
        self.env = {name: os.environ[name] for name in kept if name in os.environ}
        self.env |= {"DYNO_HOME": str(home)}
        if api:
            self.env["PREFECT_API_URL"] = api

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """The command, running."""
        return subprocess.Popen(
            [sys.executable, "-m", "flows.cli", *arguments],
            env=self.env,
            cwd=options.pop("cwd", PROJECT),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", subprocess.STDOUT),
            text=True,
            **options,
        )

    def run(self, *arguments: str, code: int | None = 0, **options: Any) -> str:
        """What the command prints; its exit code must be `code` (None: any)."""
        process = self.start(*arguments, **options)
        output, _ = process.communicate(timeout=240)
        assert code is None or process.returncode == code, f"exit {process.returncode}\n{output}"
        return output

    def sweep_file(self, script: str, **changes: Any) -> Path:
        """A sweep over the `weather` task of hello-tools by a harness of one line of sh."""
        harness = {
            "name": "line",
            "command": ["sh", "-c", script],
            "speaks": ["shell"],
            "version": "1",
        }
        sweep = {
            "name": "mine",
            "suites": ["hello-tools"],
            "harnesses": [harness],
            "models": ["oracle"],
            "only": "weather",
            "repeats": 4,
            "retries": {"tries": 4, "backoff_seconds": 0.1},
        } | changes
        path = self.home / "mine.yaml"
        path.write_text(yaml.safe_dump(sweep))
        return path

    def sql(self, query: str) -> list[dict[str, Any]]:
        """A query's rows."""
        import json

        return json.loads(self.run("sql", query, "--json"))


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real Prefect server for the session, started as dyno starts it, and stopped."""
    home = tmp_path_factory.mktemp("server")
    code = (
        "from flows import server; import os; server.configure_client(); server.start()();"
        "print(os.environ['PREFECT_API_URL'])"
    )
    env = {**os.environ, "DYNO_HOME": str(home)}
    env.pop("PREFECT_API_URL", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    yield done.stdout.strip().splitlines()[-1]
    subprocess.run(
        [sys.executable, "-m", "flows.cli", "server", "stop"], env=env, cwd=PROJECT, check=True
    )


@pytest.fixture
def dyno(tmp_path: Path, prefect_api: str) -> Dyno:
    """The command in a fresh DYNO_HOME."""
    home = tmp_path / "home"
    home.mkdir()
    return Dyno(home, prefect_api)


@pytest.fixture
def offline_dyno(tmp_path: Path) -> Dyno:
    """The command without any server: for what must not need one."""
    home = tmp_path / "home"
    home.mkdir()
    return Dyno(home, None)
