"""For a person's first day: a harness file to start from, what this machine has, what to type next."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import click

from flows import server
from flows.cli import here, terminal
from suites.errors import InputError
from suites.home import dyno_home, evidence_root
from suites.loading import folder_of, vendors
from suites.schema import Sweep

HARNESS_FILE = """\
# A harness: a program that drives a model through a task. Everything dyno needs to know of it is here.
# Texts in {{ }} are filled in for each attempt; docs/harnesses.md has all of them.
#   {{ prompt }}        the task as one text          {{ prompt_file }}    the same, in a file
#   {{ messages_file }} the task's messages (JSON)    {{ mcp_config }}     MCP servers (JSON file)
#   {{ servers[0].url }} a tool server's URL (MCP over HTTP)
#   {{ model_url }}     base URL of the model (OpenAI-compatible, ends in /v1)
#   {{ model }}         model id to ask for           {{ model_token }}    API key to send (no real key)
#   {{ workdir }}       working directory             {{ deadline }}       unix time by which to be done
name: NAME
description: One line for tables and reports.

# argv, word by word; no shell is involved.
command: [my-agent, --mcp-config, "{{ mcp_config }}", --prompt, "{{ prompt }}"]

# All the environment it gets, beside PATH and a HOME of its own. Your API keys are not in it.
env:
  OPENAI_BASE_URL: "{{ model_url }}"
  OPENAI_API_KEY: "{{ model_token }}"
  OPENAI_MODEL: "{{ model }}"

# What it prints its version with: a result without an exact version is not a result.
version_command: [my-agent, --version]

wire: chat            # what it says to the model: chat, responses or messages; none: its own login
speaks: [mcp]         # how it reaches tools: mcp, or shell (each tool is then `tool NAME JSON` on PATH)

# Optional:
# stdin: "{{ prompt }}"                 # fed and closed; without it stdin is /dev/null
# files: {home/.my-agent.toml: 'url = "{{ servers[0].url }}"'}   # written before it starts
# exit_codes: {3: refused, 4: infra_error, 7: budget}            # 0 is clean, others crashed
# limits: {seconds: 300, model_calls: 50}
# requires: [node]                      # other programs that must be found
# telemetry: {usage: last_line_json}    # it says what it used: docs/harnesses.md has the forms
# native_tools: [Bash]                  # tools of its own that cannot be switched off
# settings: {effort: high}              # your own values, as {{ settings.effort }}
"""


def init_harness(name: str) -> None:
    """`dyno init harness NAME`.

    Raises:
        InputError: the name is not one, or the file exists.
    """
    path = folder_of("harness") / f"{name}.yaml"
    if path.exists():
        raise InputError("there is a harness of that name already", where=here(path))
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or not name.islower():
        raise InputError(f"{name!r} cannot be a name", mend="small letters, digits, dashes")
    path.write_text(HARNESS_FILE.replace("name: NAME", f"name: {name}"))
    click.echo(f"wrote {here(path)}; edit its command, then:")
    click.echo(f"  dyno harness check {name}")
    click.echo(f"  dyno run bfcl-simple-python --harness {name} --model oracle --limit 3")


# ---------------------------------------------------------------- doctor


def doctor() -> int:
    """`dyno doctor`: a line a thing; the exit code is 1 where a sweep could not run."""
    _, colour = terminal()
    broken = 0
    for present, what, detail in _checks():
        mark, style = {True: ("ok ", "green"), False: ("NO ", "red"), None: (" – ", "yellow")}[
            present
        ]
        broken += present is False
        click.echo(f"{click.style(mark, style) if colour else mark} {what:26} {detail}")
    return 1 if broken else 0


def _checks() -> Iterator[tuple[bool | None, str, str]]:
    """(True: present, False: missing and needed, None: missing and optional), what, detail."""
    version = platform.python_version()
    yield sys.version_info >= (3, 11), "python", f"{version} (3.11 or newer is needed)"
    for module in ("prefect", "duckdb", "mcp", "openai", "docker"):
        there = importlib.util.find_spec(module) is not None
        yield there, module, "installed" if there else "missing: make venv"
    for program in ("git", "make"):
        found = shutil.which(program)
        yield (True if found else None), program, found or "not found"
    yield from _machine()
    yield from _suites()
    yield from _harnesses()
    for vendor, known in sorted(vendors().items()):
        variable = known.get("api_key_env")
        if variable:
            present = bool(os.environ.get(variable))
            yield (
                (True if present else None),
                f"key {vendor}",
                f"{variable} is {'set' if present else 'not set'}",
            )


def _machine() -> Iterator[tuple[bool | None, str, str]]:
    from tasks.attempt.processes import Processes

    processes = Processes(dyno_home() / "logs")
    try:
        told = processes.launcher().call("hello", timeout=20)
        kind = (
            "each attempt gets a PID namespace"
            if told["namespaces"]
            else ("no PID namespaces here: left-over processes are found by their environment")
        )
        yield (True if told["namespaces"] else None), "process walls", kind
    except Exception as error:
        yield False, "process walls", f"the launcher does not start: {error}"
    finally:
        processes.stop()
    free = shutil.disk_usage(_existing(dyno_home())).free / 1e9
    yield free > 1, "disk", f"{free:.0f} GB free at {here(dyno_home())}"
    url = server.configured_url() or server.running_url()
    yield (True if url else None), "prefect server", url or "not running (a sweep starts it)"
    docker = Path("/var/run/docker.sock").exists() or bool(os.environ.get("DOCKER_HOST"))
    yield (
        (True if docker else None),
        "docker engine",
        "answers" if docker else "none (not needed yet)",
    )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _suites() -> Iterator[tuple[bool | None, str, str]]:
    from flows.needs import CONVERTIBLE, benchmark_of
    from suites.loading_suites import list_suites

    known = list_suites()
    for benchmark in CONVERTIBLE:
        converted = [name for name in known if benchmark_of(name) == benchmark]
        detail = (
            f"{len(converted)} suites" if converted else f"not converted: dyno convert {benchmark}"
        )
        yield (True if converted else None), f"benchmark {benchmark}", detail
    sweeps = evidence_root() / "sweeps"
    count = len(list(sweeps.glob("*.json"))) if sweeps.is_dir() else 0
    yield (True if count else None), "evidence", f"{count} sweep(s) at {here(evidence_root())}"


def _harnesses() -> Iterator[tuple[bool | None, str, str]]:
    from flows.harness import known

    for row in known():
        found = row["version"]
        detail = found or f"{row['missing']} (make harnesses)"
        yield (True if found else None), f"harness {row['harness']}", detail


# ---------------------------------------------------------------- the UI and its server


def ui(open_browser: bool) -> None:
    """`dyno ui`: the address, and a browser if wanted; the server stays for an idle spell."""
    server.configure_client()
    with server.client_registered():
        server.start(click.echo)()
    address = os.environ["PREFECT_API_URL"].removesuffix("/api")
    click.echo(f"the Prefect UI: {address}")
    if open_browser:
        import webbrowser

        if not webbrowser.open(address):
            click.echo("no browser could be opened here; open the address yourself")


def server_action(action: str) -> None:
    """`dyno server start|stop|status`."""
    if action == "stop":
        click.echo("stopped" if server.stop() else "no local server is running")
    elif action == "start":
        server.configure_client()
        server.start(click.echo)()
        click.echo(os.environ["PREFECT_API_URL"])
    else:
        click.echo(server.configured_url() or server.running_url() or "no server is running")


# ---------------------------------------------------------------- what next


def next_commands(sweep: Sweep, sweep_id: str) -> str:
    """What to type after a sweep, exactly."""
    dyno = _own_name()
    suite = next((name for name in sweep.suites if name.startswith("bfcl-")), sweep.suites[0])
    failed = "select attempt_key, task_id, model from attempts where outcome = 'failed' limit 5"
    user = " --user openai/gpt-5-mini" if sweep.user else ""
    return dedent(
        f"""
        Next:
          what failed, and why
            {dyno} sql "{failed}"
            {dyno} show ATTEMPT_KEY
          a real model (it shows an estimate and asks before it spends)
            export OPENAI_API_KEY=…
            {dyno} run {suite} --harness reference --model openai/gpt-5-mini{user} --limit 20
          your own agent
            {dyno} run {suite} --agent 'my-agent {{prompt}}' --model vendor/name{user} --repeats 3
          the Prefect UI, and all commands
            {dyno} ui
            {dyno} --help
        """
    ).rstrip()


def _own_name() -> str:
    """How the person at this prompt can call dyno again: `dyno` only where that finds this one."""
    mine = Path(sys.executable).with_name("dyno")
    found = shutil.which("dyno")
    return "dyno" if found and Path(found).samefile(mine) else here(mine)
