"""Conversations as journals: of published simulations, and of calls played in upstream's world."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bridges.tau2_package import PACKAGE, read_tasks
from tasks.grade.jobs import Job
from tests.published import REAL

VERSION = "26.3"
REQUESTORS = {"assistant": "agent", "user": "user"}

Row = dict[str, Any]


class Rows:
    """The journals of a conversation, row by row."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.bridge: list[Row] = []
        self.conversation: list[Row] = []

    @property
    def seq(self) -> int:
        return len(self.bridge) + len(self.conversation) + 1

    def says(self, role: str, content: str, *, opening: bool = False) -> Rows:
        row = {"seq": self.seq, "event": "message", "role": role, "content": content}
        self.conversation.append({**row, "requestor": REQUESTORS[role], "opening": opening})
        return self

    def calls(
        self,
        tool: str,
        arguments: Any,
        text: str,
        requestor: str = "assistant",
        status: str = "ok",
        **more: Any,
    ) -> Rows:
        seq, who = self.seq, REQUESTORS[requestor]
        row = {"seq": seq, "event": "call", "server": self.domain, "requestor": who, "tool": tool}
        self.bridge.append({**row, "native": tool, "arguments": json.dumps(arguments)})
        result = {"event": "result", "call": seq, "status": status, "text": text, "cut": 0}
        self.bridge.append({**result, "seq": self.seq, "requestor": who, **more})
        return self

    def ends(self, reason: str = "user_stop", **more: Any) -> Rows:
        row = {"seq": self.seq, "event": "end", "reason": reason, "requestor": "user"}
        self.conversation.append({**row, "detail": "", "blame": None, **more})
        return self

    def job(self, task: Mapping[str, Any], **more: Any) -> Job:
        return Job(
            id=task["id"],
            grader="tau2",
            spec={"domain": self.domain, "task": dict(task)},
            dataset=VERSION,
            rows={
                "bridge": self.bridge,
                "model": [],
                "conversation": self.conversation,
                **more,
            },
        )


def greeting(domain: str) -> Rows:
    return Rows(domain).says("assistant", "Hi! How can I help you today?", opening=True)


def tasks_of(home: Path, domain: str, file: str = "tasks") -> dict[str, dict[str, Any]]:
    """A task file's tasks by their ids."""
    folder = home / "downloads" / f"{PACKAGE}-{VERSION}"
    return {
        task["id"]: task
        for task in read_tasks(folder / f"tau2/data/tau2/domains/{domain}/{file}.json")
    }


def published() -> list[Row]:
    """The simulations of the real file; a test that asks for them is skipped where it is not."""
    if not REAL.exists():
        pytest.skip(f"{REAL} is not on this machine")
    simulations: list[Row] = json.loads(REAL.read_text("utf-8"))["simulations"]
    return simulations


def task_id_of(simulation: Row) -> str | None:
    """The task a published simulation belongs to, by its gold actions' ids; its `task_id` is wrong."""
    for check in simulation["reward_info"]["action_checks"] or ():
        return str(check["action"]["action_id"]).split("_")[0]
    return None


def rows_of(simulation: Row, domain: str = "airline") -> Rows:
    """What a live attempt of the same would have left."""
    rows = Rows(domain)
    results = {m["id"]: m for m in simulation["messages"] if m["role"] == "tool"}
    for number, message in enumerate(simulation["messages"]):
        if message["role"] == "tool":
            continue
        if (message.get("content") or "").strip():
            rows.says(message["role"], message["content"], opening=number == 0)
        for call in message.get("tool_calls") or ():
            result = results[call["id"]]
            status = "tool_error" if result["content"].startswith("Error") else "ok"
            arguments, side = call["arguments"], message["role"]
            rows.calls(call["name"], arguments, result["content"], side, status)
    return rows.ends(simulation["termination_reason"])


def failed(grade: Mapping[str, Any], *, headline: bool = True) -> dict[str, str]:
    """Findings of the checks that failed, by name."""
    assert grade["error"] is None, grade
    return {
        check["name"]: check["finding"]
        for check in grade["checks"]
        if check["passed"] is False and check["headline"] is headline
    }


def gold_of(task: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Its gold actions."""
    return (task.get("evaluation_criteria") or {}).get("actions") or ()
