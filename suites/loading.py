"""Harnesses, models and sweeps from disk, each by name or by path, refused in words where they are wrong.

A name is looked up among the files a person edits (`suites/harnesses/NAME.yaml`, …); a path is read as
it is. A sweep may also state a harness or a model inline, or take a named one and change some of its
keys: `{use: reference, settings: {steps: 5}}`.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from suites.errors import InputError
from suites.home import PROJECT
from suites.schema import Harness, Model, Sweep
from suites.wording import closest, explain, key_path, place, read_yaml, refuse

FOLDERS = {"harness": "harnesses", "model": "models", "sweep": "sweeps"}

Kind = TypeVar("Kind", bound=BaseModel)


class Located(BaseModel):
    """A harness with the folder that its `{{ harness_dir }}` means."""

    harness: Harness
    folder: str


def folder_of(kind: str) -> Path:
    """Where the files of a kind (`harness`, `model`, `sweep`) lie."""
    return PROJECT / "suites" / FOLDERS[kind]


def names(kind: str) -> list[str]:
    """Every name of a kind that can be used."""
    return sorted(path.stem for path in folder_of(kind).glob("*.yaml") if path.stem != "vendors")


def load_sweep(ref: str) -> Sweep:
    """A sweep by name or path.

    Raises:
        InputError: there is none, or it is wrong.
    """
    path = _find("sweep", ref)
    value, text = _mapping_of(path)
    for kind, plural in (("harness", "harnesses"), ("model", "models")):
        entries = value.get(plural)
        if isinstance(entries, list):
            if None in entries:
                raise InputError(
                    f"an entry of `{plural}` is empty: YAML reads a bare `null` as nothing",
                    where=place(path, text, (plural, entries.index(None))),
                    mend='quote it: "null"',
                )
            value[plural] = [
                _inline(kind, entry, path, text, (plural, index))
                if isinstance(entry, dict)
                else entry
                for index, entry in enumerate(entries)
            ]
    for role in ("user", "judge"):
        _read_player(role, value, path, text)
    return _checked(Sweep, value, path, text)


def _read_player(role: str, value: dict[str, Any], path: Path, text: str) -> None:
    """Read who plays a role of a sweep in place, and refuse it here, where file and line are known."""
    entry = value.get(role)
    if isinstance(entry, dict):
        value[role] = _inline("model", entry, path, text, (role,))
    if isinstance(entry, str | dict):
        try:
            load_player(role, value[role])
        except InputError as error:
            where = error.where or place(path, text, (role,))
            raise InputError(error.what, where=where, mend=error.mend) from error


def load_harness(ref: str | Harness) -> Located:
    """A harness by name or path (or one that a sweep states inline), with its folder."""
    if isinstance(ref, Harness):
        return Located(harness=ref, folder=ref.folder or str(folder_of("harness")))
    path = _find("harness", ref)
    value, text = _mapping_of(path)
    return Located(harness=_checked(Harness, value, path, text), folder=str(path.parent.absolute()))


def load_model(ref: str | Model) -> Model:
    """A model by name or path, or `vendor/id` for a vendor of suites/models/vendors.yaml."""
    if isinstance(ref, Model):
        return ref
    if "/" in ref and not ref.endswith((".yaml", ".yml")):
        vendor, _, model_id = ref.partition("/")
        known = vendors()
        if vendor not in known:
            raise InputError(
                f"no vendor {vendor!r} is known (in the model {ref!r})",
                mend=closest(vendor, known)
                or f"one of {', '.join(sorted(known))}; or write a model file (docs/models.md)",
            )
        return Model(name=ref, model=model_id, **known[vendor])
    path = _find("model", ref)
    value, text = _mapping_of(path)
    return _checked(Model, value, path, text)


SCRIPTED_USER, REPLAY = "scripted", "replay:"
"""What a sweep's `user` may say beside a model."""

PLAYS_A_ROLE = ("playbook", "null")
"""The scripted models that can stand for a person; the others know an agent's gold."""


def load_player(role: str, ref: str | Model) -> Model | None:
    """The model that plays the `user` or the `judge`; None for a user that is no model.

    Raises:
        InputError: there is none of that name, or it cannot play the role.
    """
    if role == "user" and isinstance(ref, str) and (ref == SCRIPTED_USER or ref.startswith(REPLAY)):
        return None
    try:
        model = load_model(ref)
    except InputError as error:
        also = "; a user may also be `scripted` or `replay:FILE`" if role == "user" else ""
        raise InputError(
            f"`{role}` is {ref!r}: {error.what}",
            where=error.where,
            mend=f"{error.mend or ''}{also}",
        ) from error
    reason = None
    if model.endpoint == "none":
        reason = f"the model {model.name} is only a label, and the {role} needs an endpoint"
    elif not model.speaks("chat"):
        reason = f"the model {model.name} speaks the {model.wire} wire, and the {role} needs chat"
    elif model.is_scripted and model.behaviour not in PLAYS_A_ROLE:
        reason = f"the model {model.name} plays an agent that knows the gold, not a {role}"
    if reason:
        mend = "a model that speaks chat"
        if role == "user":
            mend += ", or `scripted` (the user that each task's script describes)"
        raise InputError(f"`{role}` is {model.name!r}: {reason}", mend=mend)
    return model


def vendors() -> dict[str, dict[str, Any]]:
    """What `--model vendor/id` knows of each vendor: endpoint, wire, name of the key's variable."""
    value, _ = _mapping_of(folder_of("model") / "vendors.yaml")
    return value.get("vendors", value)


PLACEHOLDERS = (
    "prompt",
    "prompt_file",
    "messages_file",
    "mcp_config",
    "model_url",
    "model_root",
    "model",
    "model_token",
    "workdir",
    "deadline",
    "seed",
)


def adhoc_harness(command: str) -> Located:
    """A harness from one command line, as `dyno run --agent` takes it.

    `{prompt}` and the other placeholders are substituted in any argument; where no prompt is asked for,
    it comes on stdin. The bridge is found by `{mcp_config}`, the environment variable DYNO_SERVERS, or
    the command `tool` on PATH; the model by `{model_url}` or the usual OPENAI_ variables.

    Raises:
        InputError: the command line does not parse, or names an unknown placeholder.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--agent {command!r} is not a command line: {error}") from error
    if not words:
        raise InputError(
            "--agent is empty", mend="give a command, as in --agent 'my-agent {prompt}'"
        )
    _refuse_unknown_placeholders(command, words)
    argv, takes_prompt = [], False
    for word in words:
        escaped = word.replace("{{", "{{ '{{' }}") if "{{" in word else word
        for placeholder in PLACEHOLDERS:
            if "{" + placeholder + "}" in escaped:
                takes_prompt |= placeholder in ("prompt", "prompt_file", "messages_file")
                escaped = escaped.replace("{" + placeholder + "}", "{{ " + placeholder + " }}")
        argv.append(escaped)
    program = words[0]
    if (
        "/" in program
    ):  # a path is meant from where the person stands, not from the attempt's workdir
        argv[0] = str(Path(program).absolute())
    argv[1:] = [
        _absolute_file(original, word) for original, word in zip(words[1:], argv[1:], strict=True)
    ]
    name = _agent_name(words)
    harness = Harness(
        name=f"adhoc-{name}",
        description=f"ad hoc: {command}",
        command=tuple(argv),
        stdin=None if takes_prompt else "{{ prompt }}",
        speaks=("mcp", "shell"),
        env={
            "OPENAI_BASE_URL": "{{ model_url }}",
            "OPENAI_API_KEY": "{{ model_token }}",
            "OPENAI_MODEL": "{{ model }}",
            "MCP_CONFIG": "{{ mcp_config }}",
        },
        requires=(argv[0],),
    )
    return Located(harness=harness, folder=str(Path.cwd()))


def _refuse_unknown_placeholders(command: str, words: list[str]) -> None:
    """A misspelt `{promt}` would be handed on as it stands and cost every attempt."""
    for word in words:
        for name in re.findall(r"(?<!\{)\{([a-z_]+)\}(?!\})", word):
            if name not in PLACEHOLDERS:
                raise InputError(
                    f"--agent {command!r} has an unknown placeholder {{{name}}}",
                    mend=closest(name, PLACEHOLDERS) or f"known: {', '.join(PLACEHOLDERS)}",
                )


INTERPRETERS = (
    "sh",
    "bash",
    "zsh",
    "python",
    "python3",
    "node",
    "npx",
    "uv",
    "uvx",
    "ruby",
    "perl",
    "env",
)


def _agent_name(words: list[str]) -> str:
    """The program's name; an interpreter's with its script's, since two scripts are two agents."""
    names = [Path(words[0]).name]
    if names[0] in INTERPRETERS:
        names += [Path(word).stem for word in words[1:] if not word.startswith("-")][:1]
    name = "-".join(names).lower()
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")[:40] or "agent"


def _absolute_file(original: str, word: str) -> str:
    """An argument that names a file where the person stands (`sh operate.sh`) keeps naming it."""
    return str(Path(original).absolute()) if Path(original).is_file() else word


# ---------------------------------------------------------------- reading


def _find(kind: str, ref: str) -> Path:
    looks_like_path = ref.endswith((".yaml", ".yml")) or os.sep in ref
    if looks_like_path:
        path = Path(ref)
        if not path.is_file():
            raise InputError(f"there is no {kind} file {ref!r}", mend=_known(kind, Path(ref).stem))
        return path
    path = folder_of(kind) / f"{ref}.yaml"
    if not path.is_file() or path.stem == "vendors":
        raise InputError(f"there is no {kind} named {ref!r}", mend=_known(kind, ref))
    return path


def _known(kind: str, name: str) -> str:
    known = names(kind)
    return closest(name, known) or f"known: {', '.join(known)}; or give the path of a file"


def _mapping_of(path: Path) -> tuple[dict[str, Any], str]:
    value, text = read_yaml(path)
    if not isinstance(value, dict):
        raise InputError(
            f"holds {type(value).__name__}, not keys and values", where=str(path), mend="`name: …`"
        )
    return value, text


def _checked(model: type[Kind], value: dict[str, Any], path: Path, text: str) -> Kind:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise refuse(error, model, path, text) from error


def _inline(kind: str, entry: dict[str, Any], path: Path, text: str, keys: tuple) -> Any:
    """A harness or model stated in a sweep: whole, or `use:` a named one with some keys changed."""
    model: type[BaseModel] = Harness if kind == "harness" else Model
    changes = dict(entry)
    used = changes.pop("use", None)
    base: dict[str, Any] = {}
    if used is not None:
        if not isinstance(used, str):
            raise InputError(
                f"`use` holds {used!r}, not a name", where=place(path, text, [*keys, "use"])
            )
        if kind == "harness":
            located = load_harness(used)
            base = located.harness.model_dump(mode="json", exclude_defaults=True)
            base["folder"] = located.folder
        else:
            base = load_model(used).model_dump(mode="json", exclude_defaults=True)
        if not changes.get("name"):
            raise InputError(
                f"changes the {kind} {used!r} without a name of its own, so that results of the two "
                "would look like one",
                where=place(path, text, list(keys)),
                mend=f"add `name: {used}-…`",
            )
    for key, change in changes.items():
        old = base.get(key)
        base[key] = (
            {**old, **change} if isinstance(old, dict) and isinstance(change, dict) else change
        )
    try:
        return model.model_validate(base)
    except ValidationError as error:
        inner, what, mend = explain(error, model)
        where = place(path, text, [*keys, *inner])
        raise InputError(what, where=where, mend=mend) from error


__all__ = [
    "PLACEHOLDERS",
    "REPLAY",
    "SCRIPTED_USER",
    "Located",
    "adhoc_harness",
    "folder_of",
    "key_path",
    "load_harness",
    "load_model",
    "load_player",
    "load_sweep",
    "names",
    "vendors",
]
