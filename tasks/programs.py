"""Where the programs of harnesses are found, for planning and for running alike.

    DYNO_HARNESS_PATH          folders of your own, separated as PATH is; first
    DYNO_HOME/harnesses/*/     what `make harnesses` installs: each one's bin/ and node_modules/.bin/
    PATH

A harness runs with the folders of the programs it names before PATH, and with those of DYNO_HARNESS_PATH.
The installed folders of other harnesses are left out: a Python environment among them would bring its own
`python` and `pip` to everybody.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from suites.home import dyno_home
from suites.schema import Harness

VARIABLE = "DYNO_HARNESS_PATH"
INSTALLED = ("bin", "node_modules/.bin")
"""Below a folder of DYNO_HOME/harnesses."""


def find(program: str) -> str | None:
    """The path of a program, as a harness file names it; None where it is not on this machine."""
    return shutil.which(program, path=_joined([*_chosen(), *_installed(), _inherited()]))


def path_for(harness: Harness) -> str:
    """The PATH that a harness runs with."""
    return path_with(named_by(harness))


def path_with(programs: Iterable[str]) -> str:
    """The PATH on which these programs are found, and no other installed one that can be left out."""
    installed = []
    for program in programs:
        found = find(program)
        folder = os.path.dirname(found) if found else ""  # noqa: PTH120  as PATH has it, unresolved
        if folder in _installed() and folder not in installed:
            installed.append(folder)
    return _joined([*_chosen(), *installed, _inherited()])


def named_by(harness: Harness) -> list[str]:
    """The programs that a harness file names: what it requires, what it runs, what tells its version."""
    commands = [harness.command, *(phase.command for phase in harness.phases), harness.resume]
    if harness.warm is not None:  # its commands are arguments
        commands = []
    firsts = [command[0] for command in (*commands, harness.version_command or ()) if command]
    named = [*harness.requires, *(word for word in firsts if "{" not in word)]
    return list(dict.fromkeys(named))


def _chosen() -> list[str]:
    folders = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [os.path.abspath(folder) for folder in folders if folder]  # noqa: PTH100


def _installed() -> list[str]:
    parent = dyno_home() / "harnesses"
    if not parent.is_dir():
        return []
    places = (one / name for one in sorted(parent.iterdir()) for name in INSTALLED)
    return [str(place) for place in places if place.is_dir()]


def _inherited() -> str:
    return os.environ.get("PATH", os.defpath)


def _joined(parts: list[str]) -> str:
    return os.pathsep.join(parts)


def program_of(harness: Harness) -> str | None:
    """The path of the program that a harness's command runs; None: not found, or not told by a word."""
    first = harness.command[0] if harness.command and harness.warm is None else ""
    return None if not first or "{" in first else find(first)


def install_hint(program: str) -> str:
    """How to get a program, in words."""
    return (
        "install it: `make harnesses` installs those that dyno knows of into "
        f"{Path(os.path.relpath(dyno_home() / 'harnesses'))}, and what is on PATH or in a folder of "
        f"{VARIABLE} is found too (`dyno harness list` shows what is): {program}"
    )
