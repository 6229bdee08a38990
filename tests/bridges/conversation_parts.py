"""A phone that its user holds and a shop that an agent serves, for the tests of conversations."""

from __future__ import annotations

from typing import Any

from host_parts import ANYTHING, Opened, RunningHost

GREETING = {"role": "assistant", "content": "Hi! How can I help you today?"}
STOPS = ["###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"]


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": ANYTHING, "result": f"{name} done"}


def typed(name: str) -> dict[str, Any]:
    """A tool that takes one number and nothing else, so that a call of it can fail."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }
    return {"name": name, "input_schema": schema, "result": f"{name} done"}


SHOP = {"name": "shop", "kind": "functions", "tools": [tool("look_up"), typed("refund")]}
PHONE = {
    "name": "phone",
    "kind": "functions",
    "audience": "user",
    "tools": [tool("toggle_data"), tool("reboot"), typed("dial")],
}


def scripted(*calls: str, opening: str = "My phone is dead.") -> dict[str, Any]:
    called = [{"tool": name, "arguments": {}} for name in calls]
    return {"kind": "scripted", "opening": opening, "calls": called}


def replayed(*messages: str | list[dict[str, Any]]) -> dict[str, Any]:
    """A user that says the texts, and makes the calls, one after another."""
    said = [{"content": m} if isinstance(m, str) else {"calls": m} for m in messages]
    return {"kind": "replay", "messages": said}


def modelled(*steps: dict[str, Any], seed: int | None = 7, **more: Any) -> dict[str, Any]:
    """A user that is a scripted model over the gateway."""
    book = {"behaviour": "playbook", "settings": {"steps": list(steps), **more}}
    model = {
        "endpoint": "scripted:playbook",
        "name": "player",
        "prices": {"input": 1.0, "output": 2.0},
        "scripted": book,
    }
    return {"kind": "model", "scenario": "You are a customer.", "model": model, "seed": seed}


def talk(
    host: RunningHost,
    user: dict[str, Any],
    way: str = "turns",
    *,
    history: list[dict[str, Any]] | None = None,
    environments: list[dict[str, Any]] | None = None,
    model: dict[str, Any] | None = None,
    **terms: Any,
) -> Opened:
    """An open conversation between an agent of the shop and this user."""
    said = [
        {"role": m["role"], "content": m["content"]}
        for m in history or [GREETING]
        if m["role"] in ("user", "assistant") and not m.get("tool_calls")
    ]
    conversation = {
        "way": way,
        "messages": said,
        "stops": STOPS,
        "max_steps": 200,
        "max_errors": 10,
        "user": user,
        **terms,
    }
    return host.open(
        environments=[SHOP, PHONE] if environments is None else environments,
        setup={"message_history": history} if history else None,
        conversation=conversation,
        model=model,
    )


def said(opened: Opened) -> list[tuple[str, str, bool]]:
    """Who said what, and whether it was said before: the record of the conversation."""
    rows = opened.rows("message", "conversation")
    return [(row["role"], row["content"], row["opening"]) for row in rows]


def everything(opened: Opened) -> list[dict[str, Any]]:
    """The rows of all files in their one order."""
    rows = [row for file in ("bridge", "model", "conversation") for row in opened.rows(file=file)]
    return sorted(rows, key=lambda row: row["seq"])


def at_endpoint(url: str, **more: Any) -> dict[str, Any]:
    """A user that is a model behind an endpoint of the test's own."""
    model = {"endpoint": url, "name": "player", "model": "real-id", **more.pop("model", {})}
    return {"kind": "model", "scenario": "You are a customer.", "model": model, "seed": 7, **more}


def chat(content: str | None, *calls: tuple[str, str], tokens: int = 3) -> dict[str, Any]:
    """A chat completion that says this and makes these calls (name, arguments)."""
    made = [
        {"id": f"c{n}-{name}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, **({"tool_calls": made} if made else {})}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": tokens},
    }
