"""Scripted responses on the chat-completions wire, in one piece and streamed like the real thing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from bridges.metering import Usage
from bridges.scripted_behaviours import Asked, Step
from bridges.scripted_wire import event, identifier, pieces, text_of, written

PATH = "chat/completions"


def asked_of(request: Mapping[str, Any]) -> Asked:
    """What a behaviour needs of a request."""
    messages = [m for m in request.get("messages") or () if isinstance(m, dict)]
    assistants = [m for m in messages if m.get("role") == "assistant"]
    users = [m for m in messages if m.get("role") == "user"]
    prompts = [text_of(m.get("content")) for m in messages if m.get("role") in ("user", "system")]
    calls = [c for m in assistants for c in m.get("tool_calls") or ()]
    tools = [t.get("function") or t for t in request.get("tools") or () if isinstance(t, dict)]
    return Asked(
        made=len(calls),
        assistants=len(assistants),
        last_user=text_of(users[-1].get("content")) if users else "",
        tools=tuple(t["name"] for t in tools if isinstance(t.get("name"), str)),
        parallel=request.get("parallel_tool_calls") is not False,
        called=tuple(map(_name, calls)),
        texts=sum(
            bool(text_of(m.get("content")).strip()) and not m.get("tool_calls") for m in assistants
        ),
        written_calls=written(prompts, "[assistant calls "),
        written_texts=written(prompts, "[assistant]"),
    )


def _name(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def read_parts(request: Mapping[str, Any]) -> list[Any]:
    """What of a request a model reads."""
    return [request.get("messages") or [], request.get("tools") or []]


def usage_block(usage: Usage) -> dict[str, Any]:
    """As this wire tells it: cached tokens inside the prompt, reasoning inside the completion."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    details = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        details["cache_write_tokens"] = usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def whole(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> dict[str, Any]:
    """The response in one piece; `identity` makes its ids."""
    message: dict[str, Any] = {"role": "assistant", "content": step.text}
    if step.calls:
        message["tool_calls"] = [
            {"id": identifier("call_", identity, at), **_function(call.tool, call.arguments)}
            for at, call in enumerate(step.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(step)}
    head = _head(model, identity, "chat.completion")
    return {**head, "choices": [choice], "usage": usage_block(usage)}


def events(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> Iterator[bytes]:
    """The response as server-sent events, `[DONE]` last; usage where the request asks for it."""
    include_usage = _wants_usage(request)
    head = _head(model, identity, "chat.completion.chunk")
    extra = {"usage": None} if include_usage else {}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event({**head, "choices": [choice], **extra})

    yield chunk({"role": "assistant", "content": None if step.calls else ""})
    for piece in pieces(step.text or ""):
        yield chunk({"content": piece})
    for at, call in enumerate(step.calls):
        opening = {
            "index": at,
            "id": identifier("call_", identity, at),
            **_function(call.tool, ""),
        }
        yield chunk({"tool_calls": [opening]})
        for piece in pieces(call.arguments):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, _reason(step))
    if include_usage:
        yield event({**head, "choices": [], "usage": usage_block(usage)})
    yield b"data: [DONE]\n\n"


_ERRORS: dict[int, tuple[str, str | None]] = {
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
}


def error(status: int, message: str) -> dict[str, Any]:
    """OpenAI's error object."""
    kind, code = _ERRORS.get(
        status, ("server_error" if status >= 500 else "invalid_request_error", None)
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _wants_usage(request: Mapping[str, Any]) -> bool:
    options = request.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _head(model: str, identity: str, kind: str) -> dict[str, Any]:
    return {
        "id": identifier("chatcmpl-", identity, 0),
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _function(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _reason(step: Step) -> str:
    return "tool_calls" if step.calls else "stop"
