"""Scripted responses on the chat-completions wire, in one piece and streamed like the real thing.

Usage is counted by a rule anybody can repeat, so that a meter can be checked to the token: a
quarter of the characters, rounded up, of the compact JSON of `messages` and `tools`, and of what is
answered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from bridges.scripted_behaviours import Asked, Step

PATH = "chat/completions"
_PIECE = 24
"""Characters of text or arguments in one event of a stream."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def asked_of(request: Mapping[str, Any]) -> Asked:
    """What a behaviour needs of a request."""
    messages = [m for m in request.get("messages") or () if isinstance(m, dict)]
    assistants = [m for m in messages if m.get("role") == "assistant"]
    users = [m for m in messages if m.get("role") == "user"]
    prompts = [_text(m.get("content")) for m in messages if m.get("role") in ("user", "system")]
    calls = [c for m in assistants for c in m.get("tool_calls") or ()]
    tools = [t.get("function") or t for t in request.get("tools") or () if isinstance(t, dict)]
    return Asked(
        made=len(calls),
        assistants=len(assistants),
        last_user=_text(users[-1].get("content")) if users else "",
        tools=tuple(t["name"] for t in tools if isinstance(t.get("name"), str)),
        parallel=request.get("parallel_tool_calls") is not False,
        called=tuple(map(_name, calls)),
        texts=sum(
            bool(_text(m.get("content")).strip()) and not m.get("tool_calls") for m in assistants
        ),
        written_calls=sum(_written(prompt, "[assistant calls ") for prompt in prompts),
        written_texts=sum(_written(prompt, "[assistant]") for prompt in prompts),
    )


def _written(prompt: str, mark: str) -> int:
    """How many lines begin so."""
    return prompt.count(f"\n{mark}") + prompt.startswith(mark)


def _name(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def usage_of(request: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """The usage block of a response."""
    sent = len(_compact(request.get("messages") or [])) + len(_compact(request.get("tools") or []))
    said = len(step.text or "") + sum(len(c.tool) + len(c.arguments) for c in step.calls)
    prompt, completion = -(-sent // 4), -(-said // 4)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def whole(model: str, identity: str, step: Step, usage: Mapping[str, Any]) -> dict[str, Any]:
    """The response in one piece; `identity` makes its ids."""
    message: dict[str, Any] = {"role": "assistant", "content": step.text}
    if step.calls:
        message["tool_calls"] = [
            {"id": _id("call_", identity, at), **_function(call.tool, call.arguments)}
            for at, call in enumerate(step.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(step)}
    return {**_head(model, identity, "chat.completion"), "choices": [choice], "usage": usage}


def events(
    model: str, identity: str, step: Step, usage: Mapping[str, Any], include_usage: bool
) -> Iterator[bytes]:
    """The response as server-sent events, `[DONE]` last."""
    head = _head(model, identity, "chat.completion.chunk")
    extra = {"usage": None} if include_usage else {}

    def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _event({**head, "choices": [choice], **extra})

    yield event({"role": "assistant", "content": None if step.calls else ""})
    for piece in _pieces(step.text or ""):
        yield event({"content": piece})
    for at, call in enumerate(step.calls):
        opening = {"index": at, "id": _id("call_", identity, at), **_function(call.tool, "")}
        yield event({"tool_calls": [opening]})
        for piece in _pieces(call.arguments):
            yield event({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield event({}, _reason(step))
    if include_usage:
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def wants_stream(request: Mapping[str, Any]) -> bool:
    """Whether the response is to be streamed."""
    return request.get("stream") is True


def wants_usage(request: Mapping[str, Any]) -> bool:
    """Whether a stream is to end with a usage event."""
    options = request.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _head(model: str, identity: str, kind: str) -> dict[str, Any]:
    return {
        "id": _id("chatcmpl-", identity, 0),
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _function(name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _reason(step: Step) -> str:
    return "tool_calls" if step.calls else "stop"


def _id(prefix: str, identity: str, at: int) -> str:
    return prefix + sha256(f"{identity}/{at}".encode()).hexdigest()[:24]


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + _compact(value).encode("utf-8", "surrogatepass") + b"\n\n"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(p.get("text") or "") for p in parts if isinstance(p, dict))
