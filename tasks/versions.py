"""Exact versions, for the stamp: dyno's own, and each harness's as its program states it."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from suites.errors import InputError
from suites.home import PROJECT
from suites.schema import Harness
from tasks.programs import find, install_hint, named_by, path_for, program_of

SECONDS = 30.0
"""How long a program may take to state its version (a cold Python CLI takes several seconds)."""


@cache
def dyno_version() -> str:
    """dyno's version, with the commit where it runs from a clone."""
    version = metadata.version("dyno")
    head = PROJECT / ".git" / "HEAD"
    try:
        text = head.read_text().strip()
        if text.startswith("ref: "):
            text = (PROJECT / ".git" / text[5:]).read_text().strip()
    except OSError:
        return version
    return f"{version}+{text[:8]}"


def harness_version(harness: Harness, folder: str, sources: dict[str, str]) -> str:
    """The exact version of a harness.

    What it states, what its `version_command` prints, or else the hash of what runs: the files beside
    its YAML, or its program.

    Raises:
        InputError: its program, or one it requires, is not on this machine; its version command fails.
    """
    _check_programs(harness)
    if harness.version:
        return harness.version
    if harness.version_command:
        return _stated_version(harness, folder)
    if sources:
        joined = "".join(f"{name}={sha}\n" for name, sha in sorted(sources.items()))
        return "sha256:" + hashlib.sha256(joined.encode()).hexdigest()[:12]
    found = program_of(harness)
    if found is None:
        return "unknown"
    paths = [Path(found), *(Path(word) for word in harness.command[1:] if Path(word).is_file())]
    content = hashlib.sha256()
    for path in paths:
        content.update(path.read_bytes())
    return "sha256:" + content.hexdigest()[:12]


def _check_programs(harness: Harness) -> None:
    for program in named_by(harness):
        _found(harness, program)


def _found(harness: Harness, program: str) -> str:
    path = find(program)
    if path is None:
        raise InputError(
            f"the harness {harness.name!r} needs the program {program!r}, which is not on this machine",
            mend=install_hint(program),
        )
    return path


def _stated_version(harness: Harness, folder: str) -> str:
    command = [word.replace("{{ harness_dir }}", folder) for word in harness.version_command or ()]
    command[0] = _found(harness, command[0])
    files = [Path(word) for word in command if Path(word).is_file()]
    state = tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)
    known = (tuple(command), state)
    if known not in _ASKED:
        _ASKED[known] = _ask(harness, command)
    return _ASKED[known]


_ASKED: dict[tuple[Any, ...], str] = {}
"""Answers of this process only: what a wrapper starts can change without a trace on the wrapper, and an
old answer would let old results stand for a new program."""


def _ask(harness: Harness, command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": path_for(harness), "HOME": home, "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(
                command,
                env=env,
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                f"the version command of the harness {harness.name!r} failed: {error}"
            ) from error
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not lines:
        raise InputError(
            f"the version command of the harness {harness.name!r} exited with {done.returncode} and said "
            f"{(done.stderr or done.stdout).strip()[-200:]!r}",
            mend=f"try it: {' '.join(command)}",
        )
    return lines[0][:100]
