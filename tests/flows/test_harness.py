"""`dyno harness list` and `dyno harness check`, without any server."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from suites.loading import names
from tests.flows.conftest import Dyno


def test_every_harness_file_is_listed_with_its_version_or_why_there_is_none(
    offline_dyno: Dyno,
) -> None:
    folder = offline_dyno.home / "harnesses" / "npm" / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    claude = folder / "claude"
    claude.write_text("#!/bin/sh\necho 9.9.9 '(Claude Code)'\n")
    claude.chmod(0o755)
    rows = json.loads(offline_dyno.run("harness", "list", "--json"))
    assert [row["harness"] for row in rows] == names("harness")
    by_name = {row["harness"]: row for row in rows}
    assert by_name["claude-code"]["version"] == "9.9.9 (Claude Code)"
    assert by_name["claude-code"]["wire"] == "messages"
    assert by_name["codex"]["native_tools"] == [
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
    ]
    assert all(bool(row["version"]) != bool(row["missing"]) for row in rows)
    shown = offline_dyno.run("harness", "list")
    assert "9.9.9 (Claude Code)" in shown
    doctor = offline_dyno.run("doctor", code=None)
    assert "harness claude-code" in doctor
    assert "9.9.9 (Claude Code)" in doctor


def test_a_check_is_green_or_says_what_is_not_and_leaves_no_evidence(
    offline_dyno: Dyno, tmp_path: Path
) -> None:
    said = offline_dyno.run("harness", "check", "reference")
    assert said.count("  ok   ") == 16
    assert "FAIL" not in said
    assert not (offline_dyno.home / "evidence").exists()
    bad = {"name": "bad", "command": ["sh", "-c", "exit 0"], "speaks": ["shell"], "version": "1"}
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(bad))
    document = offline_dyno.run("harness", "check", str(file), "--json", code=1, stderr=None)
    [report] = json.loads(document)
    assert (report["harness"], report["version"], report["ok"]) == ("bad", "1", False)
    assert [line["state"] for line in report["lines"]] == ["ok", "fail", "none"]
    assert "neither the bridge nor the model" in report["lines"][1]["says"]
    assert not (offline_dyno.home / "evidence").exists()


def test_an_agent_without_a_file_can_be_checked(offline_dyno: Dyno, tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text('tool look_up_word \'{"topic": "dyno"}\'\n')
    said = offline_dyno.run("harness", "check", "--agent", f"sh {script} {{prompt}}", code=1)
    assert said.startswith("adhoc-sh-agent\n")
    assert "calls it              journaled as look_up_word" in said
    assert "in none of 0 model calls" in said
    assert "name a harness" in offline_dyno.run("harness", "check", code=2)
