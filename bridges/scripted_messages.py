"""Scripted responses on Anthropic's messages wire, in one piece and streamed like the real thing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bridges.metering import Usage
from bridges.scripted_behaviours import Asked, Step, ToolCall
from bridges.scripted_wire import event, identifier, pieces, text_of, written

PATH = "messages"

_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def asked_of(request: Mapping[str, Any]) -> Asked:
    """What a behaviour needs of a request; system messages may stand among the others."""
    messages = [m for m in request.get("messages") or () if isinstance(m, dict)]
    assistants = [m for m in messages if m.get("role") == "assistant"]
    users = [m for m in messages if m.get("role") == "user" and not _blocks(m, "tool_result")]
    prompts = [text_of(m.get("content")) for m in messages if m.get("role") in ("user", "system")]
    prompts.append(text_of(request.get("system")))
    calls = [block for m in assistants for block in _blocks(m, "tool_use")]
    tools = [t for t in request.get("tools") or () if isinstance(t, dict)]
    choice = request.get("tool_choice")
    alone = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
    return Asked(
        made=len(calls),
        assistants=len(assistants),
        last_user=text_of(users[-1].get("content")) if users else "",
        tools=tuple(t["name"] for t in tools if isinstance(t.get("name"), str)),
        parallel=not alone,
        called=tuple(str(call.get("name")) for call in calls),
        texts=sum(
            bool(text_of(m.get("content")).strip()) and not _blocks(m, "tool_use")
            for m in assistants
        ),
        written_calls=written(prompts, "[assistant calls "),
        written_texts=written(prompts, "[assistant]"),
    )


def read_parts(request: Mapping[str, Any]) -> list[Any]:
    """What of a request a model reads."""
    parts = [request.get("messages") or [], request.get("tools") or []]
    return [*parts, request["system"]] if request.get("system") else parts


def whole(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> dict[str, Any]:
    """The message in one piece; `identity` makes its ids."""
    content = [
        {**block, "input": _value(call)} if call else block
        for block, call in _content(identity, step)
    ]
    head = _message(model, identity, content, usage_block(usage))
    return {**head, "stop_reason": _reason(step)}


def events(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> Iterator[bytes]:
    """The message as server-sent events."""
    for value in _told(model, identity, step, usage):
        yield event(value, value["type"])


def _told(model: str, identity: str, step: Step, usage: Usage) -> Iterator[dict[str, Any]]:
    told = usage_block(usage)
    begun = {
        **told,
        "output_tokens": 1,
        "output_tokens_details": None,
    }  # as the real thing: not yet
    yield {"type": "message_start", "message": _message(model, identity, [], begun)}
    for at, (block, call) in enumerate(_content(identity, step)):
        empty = {**block, "input": {}} if call else {**block, "text": ""}
        yield {"type": "content_block_start", "index": at, "content_block": empty}
        if at == 0:
            yield {"type": "ping"}
        for piece in pieces(call.arguments if call else block["text"]):
            delta = (
                {"type": "input_json_delta", "partial_json": piece}
                if call
                else {"type": "text_delta", "text": piece}
            )
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    ending = {"stop_reason": _reason(step), "stop_sequence": None}
    spent = {key: told[key] for key in ("output_tokens", "output_tokens_details")}
    yield {"type": "message_delta", "delta": ending, "usage": spent}
    yield {"type": "message_stop"}


def error(status: int, message: str) -> dict[str, Any]:
    """Anthropic's error object."""
    kind = _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def usage_block(usage: Usage) -> dict[str, Any]:
    """As this wire tells it: each kind of input by itself, thinking inside the output."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }


def _message(
    model: str, identity: str, content: list[dict[str, Any]], usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": identifier("msg_", identity, 0),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _content(identity: str, step: Step) -> Iterator[tuple[dict[str, Any], ToolCall | None]]:
    """The blocks of a message, a call's without its input."""
    if step.text:
        yield {"type": "text", "text": step.text}, None
    for at, call in enumerate(step.calls):
        identity_of = identifier("toolu_", identity, at)
        yield {"type": "tool_use", "id": identity_of, "name": call.tool}, call


def _value(call: ToolCall) -> Any:
    """The input of a call; as text where a playbook wrote what is no JSON."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _reason(step: Step) -> str:
    return "tool_use" if step.calls else "end_turn"


def _blocks(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return [block for block in blocks if isinstance(block, dict) and block.get("type") == kind]
