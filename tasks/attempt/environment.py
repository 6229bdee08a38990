"""What a harness is given: folders of its own, files from templates, a command line, an environment.

    DYNO_HOME/run/<worker>/<key8>-<n>-<random>/
      home/      HOME; config files of the harness are written here
      work/      working directory
      tmp/       TMPDIR
      in/        prompt.txt, message.txt, messages.json, mcp.json (what the *_file variables name)

Nothing is inherited but PATH, with what tasks/programs.py puts before it. Templates are strict: a
variable that does not exist is an error at planning time (`check_templates`), not an empty string at
run time.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jinja2

from suites.errors import InputError
from suites.home import PROJECT, dyno_home
from suites.schema import Harness, Limits, Message, Task
from tasks.attempt.policy import InfrastructureError
from tasks.programs import path_for
from warehouse.evidence import write_atomically

COMMANDS = PROJECT / "bridges" / "commands"
"""What harnesses that speak `shell` get on PATH: bridges as the command `tool`."""

VARIABLES = (
    "prompt",
    "prompt_file",
    "messages_file",
    "message",
    "message_file",
    "turn",
    "servers",
    "mcp_config",
    "model_url",
    "model_root",
    "model",
    "model_token",
    "store_url",
    "workdir",
    "home",
    "deadline",
    "limits",
    "seed",
    "python",
    "harness_dir",
    "settings",
)


@dataclass(frozen=True)
class Place:
    """The folders of one try."""

    root: Path

    @classmethod
    def make(cls, parent: Path, key: str, number: int) -> Place:
        """New, empty folders under `parent`."""
        root = parent / f"{key[:8]}-{number}-{secrets.token_hex(4)}"
        for name in ("home", "work", "tmp", "in"):
            (root / name).mkdir(parents=True)
        return cls(root)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def remove(self) -> None:
        """Delete it all, whatever modes a harness left on its folders."""
        shutil.rmtree(self.root, onerror=_unlock_and_retry)


def _unlock_and_retry(function: Any, path: str, _error: Any) -> None:
    try:
        Path(path).parent.chmod(0o700)
        if function is os.scandir or function is os.open:
            Path(path).chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
    except OSError:
        pass  # a leftover in run/ is swept when the next sweep starts


@dataclass(frozen=True)
class Invocation:
    """One rendered launch."""

    argv: list[str]
    env: dict[str, str]
    stdin: Path | None
    script: str | None
    python: str | None
    """The interpreter of a warm harness's launcher."""


@dataclass(frozen=True)
class Told:
    """What one launch is told.

    Attributes:
        messages: with their roles, in chat form; what they hold beside text is in chat form too.
        prompt: the same as one text.
        message: the newest message of the user; "" where there is none.
        turn: which turn of the agent this is, from 1; 1 where there are no turns.
        phase: which phase of the harness, from 1; 1 where there are none.
    """

    messages: list[dict[str, Any]]
    prompt: str
    message: str = ""
    turn: int = 1
    phase: int = 1

    @classmethod
    def of(cls, task: Task) -> Told:
        """All of a task that is no conversation."""
        prompt = prompt_of(task.messages)
        messages = [message.model_dump() for message in task.messages]
        if task.policy:
            prompt = f"{task.policy}\n\n{prompt}"
            messages.insert(0, {"role": "system", "content": task.policy})
        return cls(messages, prompt, newest_of_user(messages))


def newest_of_user(messages: list[dict[str, Any]]) -> str:
    """The text of the last message of the user; "" where there is none."""
    said = [message["content"] for message in messages if message["role"] == "user"]
    return said[-1] if said else ""


def prompt_of(messages: tuple[Message, ...]) -> str:
    """The task as one text, for harnesses that take a single prompt.

    One user message is given verbatim; several messages are given in order under their roles, since
    dropping system messages or history would change the task.
    """
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def invocation(
    harness: Harness,
    harness_dir: str,
    told: Told,
    place: Place,
    opened: dict[str, Any],
    *,
    model_id: str,
    limits: Limits,
    seed: int,
    deadline: float,
    marker: str,
) -> Invocation:
    """Write the files and render the command of one launch.

    Args:
        opened: the host's answer to `open` (servers, model_url, model_token, store_url).
        deadline: unix seconds, told to the harness.
        marker: value of DYNO_ATTEMPT, by which left-over processes are found without namespaces.

    Raises:
        InfrastructureError: the command line is longer than this machine takes.
    """
    folder = place.root / "in"
    servers = opened["servers"]
    files = {
        "prompt_file": folder / "prompt.txt",
        "messages_file": folder / "messages.json",
        "message_file": folder / "message.txt",
        "mcp_config": folder / "mcp.json",
    }
    files["prompt_file"].write_text(told.prompt, "utf-8", "surrogatepass")
    files["message_file"].write_text(told.message, "utf-8", "surrogatepass")
    files["messages_file"].write_text(json.dumps(told.messages))
    config = {"mcpServers": {s["name"]: {"type": "http", "url": s["url"]} for s in servers}}
    files["mcp_config"].write_text(json.dumps(config))
    values = {
        "prompt": told.prompt,
        "message": told.message,
        "turn": told.turn,
        **{name: str(path) for name, path in files.items()},
        "servers": servers,
        "model_url": opened.get("model_url") or "",
        "model_root": (opened.get("model_url") or "").removesuffix("/v1"),
        "model": model_id,
        "model_token": opened.get("model_token") or "",
        "store_url": opened.get("store_url") or "",
        "workdir": str(place.work),
        "home": str(place.home),
        "deadline": deadline,
        "limits": limits.model_dump(),
        "seed": seed,
        "python": sys.executable,
        "harness_dir": harness_dir,
        "settings": harness.settings,
    }
    again = harness.conversation == "resume" and told.turn > 1
    for name, text in () if again or told.phase > 1 else harness.files.items():
        target = place.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render(text, values))
    stdin = None
    if harness.stdin is not None:
        stdin = folder / "stdin"
        stdin.write_text(render(harness.stdin, values), "utf-8", "surrogatepass")
    warm = harness.warm
    name, command = ("resume", harness.resume) if again else ("command", harness.command)
    if harness.phases:
        name = f"phases[{told.phase - 1}].command"
        command = harness.phases[told.phase - 1].command
    call = Invocation(
        argv=[render(part, values) for part in command],
        env=_environment(harness, place, values, marker),
        stdin=stdin,
        script=render(warm.script, values) if warm else None,
        python=render(warm.python, values) if warm else None,
    )
    if not warm:  # a fork is handed its arguments; only a new program's pass through the kernel
        _refuse_too_long(harness, name, call)
    return call


LONGEST_ARGUMENT = 131_072 if sys.platform == "linux" else None
"""Bytes of one argument or variable with its end, by Linux's MAX_ARG_STRLEN."""


def _refuse_too_long(harness: Harness, command: str, call: Invocation) -> None:
    """Refuse what the kernel would refuse (E2BIG), while it is known which template is to blame."""
    sizes = {
        **{f"{command}[{n}]": _size(part) for n, part in enumerate(call.argv)},
        **{f"env.{name}": _size(f"{name}={value}") for name, value in call.env.items()},
    }
    longest = max(sizes, key=lambda name: sizes[name])
    if LONGEST_ARGUMENT and sizes[longest] > LONGEST_ARGUMENT:
        takes = f"this machine takes {LONGEST_ARGUMENT - 1} of one argument"
    elif sum(sizes.values()) + 8 * len(sizes) > os.sysconf("SC_ARG_MAX") - 4096:
        takes = (
            f"this machine takes {os.sysconf('SC_ARG_MAX')} of arguments and environment together"
        )
    else:
        return
    raise InfrastructureError(
        "harness_config",
        f"`{longest}` of the harness {harness.name} is {sizes[longest] - 1} bytes long when rendered, "
        f"and {takes}: pass it by file (`prompt_file`, `messages_file`), or by `stdin`",
    )


def _size(text: str) -> int:
    """Bytes of a C string."""
    return len(text.encode("utf-8", "surrogatepass")) + 1


@cache
def _commands_folder(home: Path) -> Path:
    """A folder with a starter for each command, by this very Python.

    The `python3` of a harness's PATH may be a shim that takes longer to start than the call it makes.
    """
    folder = home / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS.iterdir():
        starter = folder / command.name
        text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(command))} "$@"\n'
        if not starter.is_file() or starter.read_text() != text:
            write_atomically(starter, text.encode(), mode=0o755)
    return folder


def _environment(
    harness: Harness, place: Place, values: dict[str, Any], marker: str
) -> dict[str, str]:
    path = path_for(harness)
    env = {
        "PATH": f"{_commands_folder(dyno_home())}{os.pathsep}{path}"
        if "shell" in harness.speaks
        else path,
        "HOME": str(place.home),
        "TMPDIR": str(place.root / "tmp"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "DYNO_ATTEMPT": marker,
        "DYNO_SERVERS": json.dumps(values["servers"]),
    }
    return env | {name: render(text, values) for name, text in harness.env.items()}


# ---------------------------------------------------------------- templates

_JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
_JINJA.filters["tojson"] = json.dumps  # plain JSON, not the HTML-safe form


@lru_cache(maxsize=2048)
def _template(text: str) -> jinja2.Template:
    return _JINJA.from_string(text)


def render(text: str, values: dict[str, Any]) -> str:
    """A template with its values."""
    return text if "{" not in text else _template(text).render(values)


def check_templates(harness: Harness, where: str) -> None:
    """Render every template with stand-in values.

    Raises:
        InputError: a template is not Jinja, or names a variable that does not exist.
    """
    values: dict[str, Any] = dict.fromkeys(VARIABLES, "x")
    values |= {
        "servers": [{"name": "functions", "url": "http://127.0.0.1:1/mcp"}],
        "limits": Limits().model_dump(),
        "settings": harness.settings,
        "deadline": 0.0,
        "seed": 0,
        "turn": 1,
        "harness_dir": str(Path(where).parent),
    }
    for key, text in _templates(harness):
        try:
            render(text, values)
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"`{key}` is not a usable template: {error}",
                where=where,
                mend=f"the variables are {', '.join(VARIABLES)}",
            ) from error


def _templates(harness: Harness) -> list[tuple[str, str]]:
    found = [(f"command[{i}]", text) for i, text in enumerate(harness.command)]
    found += [(f"resume[{i}]", text) for i, text in enumerate(harness.resume)]
    found += [(f"files.{name}", text) for name, text in harness.files.items()]
    found += [(f"env.{name}", text) for name, text in harness.env.items()]
    found += [
        (f"phases[{i}].command[{j}]", text)
        for i, phase in enumerate(harness.phases)
        for j, text in enumerate(phase.command)
    ]
    if harness.stdin is not None:
        found.append(("stdin", harness.stdin))
    if harness.warm:
        found += [("warm.script", harness.warm.script), ("warm.python", harness.warm.python)]
    return found


_HARNESS_FILE = re.compile(r"\{\{\s*harness_dir\s*\}\}/([\w./-]+)")


def source_files(harness: Harness, harness_dir: str) -> dict[str, Path]:
    """The files beside the harness file that its templates name: their content is part of it.

    Raises:
        InputError: one of them is not there.
    """
    found = {}
    for key, text in _templates(harness):
        for name in _HARNESS_FILE.findall(text):
            path = Path(harness_dir) / name
            if not path.is_file():
                raise InputError(
                    f"`{key}` of the harness {harness.name!r} names {name!r}, and {path} is not there"
                )
            found[name] = path
    return found
