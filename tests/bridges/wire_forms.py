"""One chat request as the other wires would put it, for tests of what is the same on all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from bridges import scripted_chat, scripted_messages, scripted_responses
from bridges.scripted_behaviours import Asked

Request = Mapping[str, Any]


def as_responses(request: Request) -> dict[str, Any]:
    """On the responses wire; the first system message as `instructions`."""
    items: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"input": items}
    for message in request["messages"]:
        if message["role"] == "system" and not items:
            asked["instructions"] = message["content"]
        elif message["role"] == "tool":
            given = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output", **given})
        elif message.get("content"):
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            content = [{"type": kind, "text": message["content"]}]
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in message.get("tool_calls") or ():
            items.append({"type": "function_call", "call_id": call.get("id"), **call["function"]})
    asked["tools"] = [{"type": "function", **t["function"]} for t in request.get("tools") or ()]
    asked["parallel_tool_calls"] = request.get("parallel_tool_calls", True)
    return asked


def as_messages(request: Request) -> dict[str, Any]:
    """On the messages wire; results of one response in one message of the user."""
    messages: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"messages": messages, "max_tokens": 99}
    for message in request["messages"]:
        role, content = message["role"], []
        if role == "system" and not messages:
            asked["system"] = [{"type": "text", "text": message["content"]}]
            continue
        if role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": message["content"],
            }
            if messages[-1]["role"] == "user":
                messages[-1]["content"].append(result)
                continue
            role, content = "user", [result]
        elif message.get("content"):
            content = [{"type": "text", "text": message["content"]}]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            given = json.loads(function.get("arguments") or "{}")
            block = {"type": "tool_use", "id": call.get("id"), "name": function["name"]}
            content.append({**block, "input": given})
        messages.append({"role": role, "content": content})
    asked["tools"] = [
        {"name": t["function"]["name"], "input_schema": {}} for t in request.get("tools") or ()
    ]
    if request.get("parallel_tool_calls") is False:
        asked["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    return asked


ASKED: dict[str, Callable[[Request], Asked]] = {
    "chat": scripted_chat.asked_of,
    "responses": lambda request: scripted_responses.asked_of(as_responses(request)),
    "messages": lambda request: scripted_messages.asked_of(as_messages(request)),
}
"""What a behaviour makes of a chat request, on each wire."""
