"""The command line without any server: help, reading, and mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suites.home import PROJECT
from tests.flows.conftest import CALL, Dyno


def test_help_is_the_map_and_imports_neither_prefect_nor_duckdb() -> None:
    code = (
        "import sys; from flows import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'prefect', 'duckdb', 'mcp', 'openai', 'rich', 'jinja2'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in (
        "sweep",
        "run",
        "convert",
        "plan",
        "scorecard",
        "show",
        "sql",
        "doctor",
        "harness",
        "init",
        "ui",
    ):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep", "smoek"], "did you mean `smoke`?"),
        (["plan", "nowhere/none.yaml"], "there is no sweep file"),
        (
            ["run", "hello-tools", "--agent", "no-such-agent {prompt}", "--model", "oracle"],
            "no-such-agent",
        ),
        (["run", "hello-tools", "--agent", "true", "--model", "opnai/x"], "did you mean `openai`?"),
        (["run", "hello-tools", "--model", "oracle"], "--agent or --harness"),
        (["run", "hello-tools", "--agent", "true", "--model", "openai/x"], "export OPENAI_API_KEY"),
        (["run", "helo-tools", "--agent", "true", "--model", "oracle"], "hello-tools"),
        (["show", "0123456789"], "no attempt begins with"),
        (["scorecard"], "dyno"),
        (["sql", "select 1"], "dyno"),
        (["suite", "check", "nothing-here"], "no suite"),
    ],
)
def test_mistake_is_one_clear_error_and_exit_two(
    offline_dyno: Dyno, arguments: list[str], says: str
) -> None:
    output = offline_dyno.run(*arguments, code=2)
    assert says in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('/etc/passwd')",
        "create table x (a int)",
        "attach '/tmp/x.db'",
        "selec 1",
    ],
)
def test_sql_only_looks_and_only_at_the_warehouse(
    offline_dyno: Dyno, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline_dyno.run("load")
    output = offline_dyno.run("sql", query, code=2)
    assert "Traceback" not in output
    assert "root:" not in output


def test_real_model_is_not_called_without_a_yes(offline_dyno: Dyno) -> None:
    offline_dyno.env["OPENAI_API_KEY"] = "sk-not-a-real-key"
    arguments = ("run", "hello-tools", "--harness", "reference", "--model", "openai/x")
    output = offline_dyno.run(*arguments, code=2)
    assert "--yes" in output
    assert "unknown sum" in output
    assert "sk-not" not in output


def test_plan_counts_and_refuses_without_running(offline_dyno: Dyno) -> None:
    deaf = {"name": "deaf", "command": ["true"], "speaks": [], "version": "1"}
    file = offline_dyno.sweep_file(CALL, harnesses=["reference", deaf])
    output = offline_dyno.run("plan", str(file))
    assert "4 attempts planned, 0 done, 4 to run" in output
    assert "refused" in output
    assert "No money is spent" in output
    assert not (offline_dyno.home / "evidence").exists()


def test_suites_are_listed_shown_and_checked(offline_dyno: Dyno) -> None:
    assert "hello-tools" in offline_dyno.run("suite", "list")
    assert "What is the weather in Oslo?" in offline_dyno.run("suite", "show", "hello-tools")
    assert "4 tasks; it can be run" in offline_dyno.run("suite", "check", "hello-tools")


def test_doctor_tells_keys_by_presence_only(offline_dyno: Dyno) -> None:
    offline_dyno.env["OPENAI_API_KEY"] = "sk-not-to-be-shown"
    output = offline_dyno.run("doctor")
    assert "OPENAI_API_KEY is set" in output
    assert "sk-not-to-be-shown" not in output
    assert "harness reference" in output


def test_init_writes_a_harness_file_that_loads(offline_dyno: Dyno) -> None:
    path = PROJECT / "suites" / "harnesses" / "made-by-a-test.yaml"
    try:
        output = offline_dyno.run("init", "harness", "made-by-a-test")
        assert "dyno run" in output
        from suites.loading import load_harness
        from tasks.attempt.environment import check_templates

        located = load_harness("made-by-a-test")
        check_templates(located.harness, str(path))
        offline_dyno.run("init", "harness", "made-by-a-test", code=2)
    finally:
        path.unlink(missing_ok=True)


def test_environment_script_says_what_is_missing_in_one_line(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\nexit 1\n")
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 0)\n"
        "import os; os.environ['PATH'] = '/nonexistent'\n"
        "sys.argv = ['environment.py']\n"
        "m = runpy.run_path('scripts/environment.py')\n"
        "m['main'].__globals__['read'] = lambda path: ''\n"
        "sys.exit(m['main']())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "3.11 or newer" in done.stderr
