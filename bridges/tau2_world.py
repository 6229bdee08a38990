"""One τ² world, in a worker process: the domain's own environment, driven as upstream drives it.

The zygote that is given this module (`preload`) imports upstream and parses the domain's databases
once; each fork of it holds them as its own, so a world needs no copy and sees no other. What a world
does is upstream's: `set_state` for the beginning, `get_response` for a call, its own hashes of the
databases.

Requests: `{"open": setup | null}` → `{"problem": text | null}`; `{"call": tool, "arguments": JSON
text, "requestor": "assistant" | "user"}` → `{"status": "ok" | "tool_error", "text", "cut"}`, or
`{"broken": text}` where upstream's own run would have ended with an exception; `{"state": null}` →
`{"agent_db_hash", "user_db_hash"}` (None: there is no such database).
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from typing import Any

from bridges.tau2_package import load
from bridges.texts import fit
from bridges.zygote import Answerer


def preload(argument: dict[str, Any]) -> Answerer:
    """Load a domain; the answerer returned is a world of it, once in each fork.

    Args:
        argument: `{"folder": of the package, "domain": name}`.

    Raises:
        LookupError: this version has no such domain.
        Exception: whatever upstream's code raises where it, or its data, is not what it was.
    """
    sys.dont_write_bytecode = True  # the package in the cache stays as it was fetched
    tau2 = load(argument["folder"])
    domain = argument["domain"]
    if not tau2.has_domain(domain):
        raise LookupError(f"there is no domain {domain!r} in {tau2.folder}")
    return World(
        tau2.pristine(domain),
        tau2.module("data_model.tasks").InitialState,
        tau2.module("data_model.message").ToolCall,
    ).answer


class World:
    """A domain's environment from its pristine state on; only ever used in a process of its own.

    Args:
        environment: upstream's, as its files make it.
        initial_state: upstream's class of that name.
        tool_call: upstream's class of that name.
    """

    def __init__(self, environment: Any, initial_state: Any, tool_call: Any) -> None:
        self._environment = environment
        self._initial_state = initial_state
        self._tool_call = tool_call
        self._opened = False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked (see the module)."""
        if "open" in request:
            return self._open(request["open"])
        if not self._opened:  # a successor nobody brought to where it should be must not answer
            raise RuntimeError("this world was never opened")
        if "call" in request:
            return self._call(request["call"], request["arguments"], request["requestor"])
        return {
            "agent_db_hash": self._environment.get_db_hash(),
            "user_db_hash": self._environment.get_user_db_hash(),
        }

    def _open(self, setup: dict[str, Any] | None) -> dict[str, Any]:
        """The state a task begins in, as upstream's orchestrator sets it."""
        steady_ids()
        try:
            state = self._initial_state.model_validate(setup or {})
            self._environment.set_state(
                initialization_data=state.initialization_data,
                initialization_actions=state.initialization_actions,
                message_history=state.message_history or [],
            )
            self._environment.sync_tools()
        except Exception as error:
            return {"problem": fit(f"{type(error).__name__}: {error}")[0]}
        self._opened = True
        return {"problem": None}

    def _call(self, name: str, arguments: str, requestor: str) -> dict[str, Any]:
        try:
            call = self._tool_call(
                name=name, arguments=json.loads(arguments) or {}, requestor=requestor
            )
        except Exception as error:  # what the host could read, but not this process with its stack
            return {"status": "tool_error", "text": f"Error: {type(error).__name__}", "cut": 0}
        try:
            response = self._environment.get_response(call)
            # `get_response` synchronises after a call that worked; upstream's orchestrator does
            # after every step, so after one that failed half-way too. Twice is as good as once.
            self._environment.sync_tools()
        except Exception as error:
            return {"broken": fit(f"{type(error).__name__}: {error}")[0]}
        text, cut = fit(response.content)
        return {"status": "tool_error" if response.error else "ok", "text": text, "cut": cut}


def steady_ids() -> None:
    """Draw `uuid.uuid4()` in this process from one fixed sequence, from its beginning.

    Telecom names a new bill by it. With random names no replay of the same calls would come to the
    same world: neither a rebuilt world nor a grader's could be compared with the first.
    """
    drawn = random.Random(0)
    uuid.uuid4 = lambda: uuid.UUID(int=drawn.getrandbits(128), version=4)
