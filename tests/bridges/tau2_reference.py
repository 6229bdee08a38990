"""Upstream's worlds as upstream makes them: from their files, anew for each question.

    python tau2_reference.py FOLDER

One JSON line a question on stdin, one answer a line on stdout: `{"tools": domain}` gives both sides'
tools; `{"domain", "setup", "calls": [{requestor, name, arguments}], "by"}` gives the hashes after these
calls, made by `get_response` (with its answers) or by `make_tool_call`, and synchronised after each step
as upstream's orchestrator does. Each question has a process of its own: telecom keeps what one phone's
network was like in a class, where the next environment of the same process finds it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from bridges.tau2_package import Tau2, load
from bridges.tau2_world import steady_ids


def tools(tau2: Tau2, domain: str) -> dict[str, list[dict[str, Any]]]:
    environment = tau2.environment(domain)
    sides = {"tools": environment.tools, "user_tools": environment.user_tools}
    return {
        side: [_listed(tool.openai_schema["function"]) for tool in kit.get_tools().values()]
        if kit is not None
        else []
        for side, kit in sides.items()
    }


def _listed(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function["description"],
        "input_schema": function["parameters"],
    }


def began(tau2: Tau2, domain: str, setup: dict[str, Any] | None) -> Any:
    """A fresh environment in the state that the orchestrator gives it."""
    steady_ids()
    environment = tau2.environment(domain)
    state = tau2.module("data_model.tasks").InitialState.model_validate(setup or {})
    environment.set_state(
        state.initialization_data, state.initialization_actions, state.message_history or []
    )
    environment.sync_tools()
    return environment


def hashes(environment: Any) -> dict[str, str | None]:
    return {
        "agent_db_hash": environment.get_db_hash(),
        "user_db_hash": environment.get_user_db_hash(),
    }


def answer(tau2: Tau2, question: dict[str, Any]) -> dict[str, Any]:
    if "tools" in question:
        return tools(tau2, question["tools"])
    environment = began(tau2, question["domain"], question["setup"])
    answers = []
    for call in question["calls"]:
        if question["by"] == "get_response":
            tool_call = tau2.module("data_model.message").ToolCall(**call)
            response = environment.get_response(tool_call)
            answers.append({"text": response.content, "error": response.error})
        else:
            try:
                side = call["requestor"]
                environment.make_tool_call(call["name"], requestor=side, **call["arguments"])
            except Exception:
                pass
        environment.sync_tools()
    return {"answers": answers, "state": hashes(environment)}


def main() -> None:
    tau2 = load(sys.argv[1])
    for domain in ("airline", "retail", "telecom", "mock"):
        tau2.module(f"domains.{domain}.environment")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            print(json.dumps(answer(tau2, json.loads(line))), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"no answer to {line}")


if __name__ == "__main__":
    main()
