"""The harnesses and models of a sweep, made exact, and whoever plays its users: all but its suites.

Everything here can be asked before a suite is converted: whether each file is right, each program and
each API key is there, and each template can be rendered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from suites.canonical import digest
from suites.errors import InputError
from suites.home import PROJECT
from suites.loading import Located, load_harness, load_model, load_player
from suites.schema import Harness, Model, Sweep
from tasks.attempt.environment import check_templates, source_files
from tasks.attempt.telemetry import check_telemetry
from tasks.users import User
from tasks.versions import harness_version


@dataclass(frozen=True)
class Configurations:
    """What a sweep configures.

    Attributes:
        user: who plays the simulated users; None where the sweep names nobody.
        judge: the model that judges; None where the sweep names none.
    """

    harnesses: list[Configured]
    models: list[Model]
    user: User | None
    judge: Model | None

    @property
    def called(self) -> list[Model]:
        """Every model that may be called: the agents', the user's and the judge's."""
        return [*self.models, *(m for m in (self.user and self.user.model, self.judge) if m)]


def check_configurations(sweep: Sweep, *, need_keys: bool = True) -> Configurations:
    """The configurations of a sweep.

    Args:
        need_keys: refuse real models whose API key is not in the environment (False to only look).

    Raises:
        InputError: one is missing, wrong, not on this machine, named twice, or has no key.
    """
    located = [load_harness(ref) for ref in sweep.harnesses]
    models = [load_model(ref) for ref in sweep.models]
    _refuse_twins("harness", [h.harness.name for h in located])
    _refuse_twins("model", [model.name for model in models])
    user = User.of(sweep.user) if sweep.user else None
    judge = load_player("judge", sweep.judge) if sweep.judge else None
    found = Configurations([Configured.of(h) for h in located], models, user, judge)
    if need_keys:
        _check_keys(found.called)
    for model in found.called:
        _check_script(model)
    return found


def check_model(model: Model) -> None:
    """Refuse a model that cannot be called: its API key is not set, or its script is wrong (InputError)."""
    _check_keys([model])
    _check_script(model)


def _refuse_twins(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"the {kind} {name!r} is in the sweep twice, and their results would look like one",
                mend="give one of them another `name`",
            )


def _check_keys(models: Iterable[Model]) -> None:
    for model in models:
        variable = model.api_key_env
        if variable and not os.environ.get(variable):
            raise InputError(
                f"the model {model.name!r} needs its API key in the environment variable {variable}, "
                "which is not set",
                mend=f"export {variable}=…",
            )


def _check_script(model: Model) -> None:
    """Refuse a scripted model whose settings or playbook the scripted process would refuse later."""
    if not model.is_scripted:
        return
    from bridges.scripted_playbook import check_script

    settings = dict(model.scripted)
    if isinstance(
        settings.get("playbook"), str
    ):  # read where the scripted process will look for it
        settings["playbook"] = str(PROJECT / settings["playbook"])
    try:
        check_script({"behaviour": model.behaviour, "settings": settings})
    except ValueError as error:
        raise InputError(
            f"the model {model.name!r}: {error}", mend="docs/models.md has all settings"
        ) from error


@dataclass(frozen=True)
class Configured:
    """A harness with all that makes it exact."""

    harness: Harness
    folder: str
    version: str
    sources: dict[str, str]

    @classmethod
    def of(cls, located: Located) -> Configured:
        """The harness, its templates tried and its version asked."""
        harness, folder = located.harness, located.folder
        check_templates(harness, f"{folder}/{harness.name}.yaml")
        check_telemetry(harness, f"{folder}/{harness.name}.yaml")
        sources = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in source_files(harness, folder).items()
        }
        return cls(harness, folder, harness_version(harness, folder, sources), sources)

    @cached_property
    def part(self) -> dict[str, Any]:
        """What of it an agent's run depends on."""
        told = self.harness.model_dump(
            mode="json",
            exclude={
                "name",
                "description",
                "telemetry",
                "version_command",
                "requires",
                "native_tools",  # a label: what is offered follows from the rest
                "folder",
            },
        )
        for young in ("resume", "store"):  # younger than the keys of older attempts
            if not told[young]:
                del told[young]
        return {**told, "version": self.version, "sources": self.sources}

    @cached_property
    def digest(self) -> str:
        """Digest of `part`."""
        return digest(self.part)

    @property
    def relative_folder(self) -> str:
        path = Path(self.folder)
        return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def model_part(model: Model) -> dict[str, Any]:
    """What of a model its answers depend on: not its prices, its limits or where it is."""
    part: dict[str, Any] = {
        "id": model.model or model.name,
        "wire": model.wire,
        "parameters": model.parameters,
    }
    if model.is_scripted:
        part |= {"behaviour": model.behaviour, "settings": _settings_part(model.scripted)}
    return part


def _settings_part(settings: dict[str, Any]) -> dict[str, Any]:
    """A scripted model's settings; a playbook counts by its content, not by its path."""
    playbook = settings.get("playbook")
    if isinstance(playbook, str) and (PROJECT / playbook).is_file():
        content = hashlib.sha256((PROJECT / playbook).read_bytes()).hexdigest()
        return {**settings, "playbook": content}
    return settings
