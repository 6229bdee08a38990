"""Where the programs of harnesses are found, and which PATH they run with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suites.errors import InputError
from suites.loading import load_harness
from suites.schema import Harness
from tasks.configurations import Configured
from tasks.programs import find, named_by, path_for


def program(folder: Path, name: str, says: str = "1") -> Path:
    """An executable that prints a line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


def harness(**changes: object) -> Harness:
    """A harness of one program."""
    return Harness.model_validate({"name": "h", "command": ["agent-x", "{{ prompt }}"]} | changes)


def test_a_folder_of_ones_own_comes_before_what_is_installed_and_that_before_path(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find("agent-x") is None
    on_path = program(tmp_path / "path", "agent-x")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    assert find("agent-x") == str(on_path)
    npm = program(home / "harnesses" / "npm" / "node_modules" / ".bin", "agent-x")
    assert find("agent-x") == str(npm)
    venv = program(home / "harnesses" / "mini" / "bin", "agent-x")
    assert find("agent-x") == str(venv), "in the order of the folders' names"
    monkeypatch.chdir(tmp_path)
    own = program(tmp_path / "own", "agent-x")
    monkeypatch.setenv("DYNO_HARNESS_PATH", f"nowhere{os.pathsep}own")
    assert find("agent-x") == str(own)
    assert path_for(harness()).split(os.pathsep)[1] == str(tmp_path / "own")


def test_a_harness_runs_with_its_own_installed_folder_and_no_others(home: Path) -> None:
    program(home / "harnesses" / "npm" / "bin", "agent-x")
    program(home / "harnesses" / "mini" / "bin", "python3")
    folders = path_for(harness()).split(os.pathsep)
    assert folders[0] == str(home / "harnesses" / "npm" / "bin")
    assert str(home / "harnesses" / "mini" / "bin") not in folders
    assert path_for(harness(command=["sh"])) == os.environ["PATH"]


def test_all_that_a_file_names_has_to_be_there(home: Path) -> None:
    names = harness(requires=["node"], version_command=["tell-version"])
    assert named_by(names) == ["node", "agent-x", "tell-version"]
    assert named_by(harness(command=["{{ settings.program }}"])) == []


def test_its_version_is_asked_of_the_program_that_is_found(home: Path) -> None:
    asked = harness(version_command=["agent-x", "--version"])
    with pytest.raises(InputError, match=r"agent-x(.|\n)*make harnesses"):
        Configured.of(load_harness(asked))
    program(home / "harnesses" / "npm" / "bin", "agent-x", "agent 7.1")
    assert Configured.of(load_harness(asked)).version == "agent 7.1"


def test_tools_of_its_own_are_a_label_and_leave_keys_as_they_were(home: Path) -> None:
    plain = harness(version="1", command=["sh"])
    labelled = harness(version="1", command=["sh"], native_tools=["Bash"])
    told = harness(version="1", command=["sh"], native_tools="none")
    assert labelled.native_tools == ("Bash",)
    digests = {Configured.of(load_harness(h)).digest for h in (plain, labelled, told)}
    assert len(digests) == 1
