"""Scripted responses on OpenAI's responses wire, in one piece and streamed like the real thing.

Tools may come in a namespace: a call of one names both. Inside, the two are one name, `namespace__name`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from bridges.metering import Usage
from bridges.scripted_behaviours import Asked, Step, ToolCall
from bridges.scripted_chat import error as error  # OpenAI's wires word their errors alike
from bridges.scripted_wire import event, identifier, pieces, text_of, written

PATH = "responses"

_CALLS = ("function_call", "custom_tool_call")


def asked_of(request: Mapping[str, Any]) -> Asked:
    """What a behaviour needs of a request."""
    items = _items(request)
    users = [m for m in items if _is_message(m, "user")]
    prompts = [
        text_of(m.get("content")) for m in items if _is_message(m, "user", "system", "developer")
    ]
    prompts.append(text_of(request.get("instructions")))
    turns = _turns(items)
    calls = [item for item in items if item.get("type") in _CALLS]
    return Asked(
        made=len(calls),
        assistants=len(turns),
        last_user=text_of(users[-1].get("content")) if users else "",
        tools=tuple(_offers(request)),
        parallel=request.get("parallel_tool_calls") is not False,
        called=tuple(_joined(call.get("namespace"), str(call.get("name"))) for call in calls),
        texts=sum(
            any(text_of(item.get("content")).strip() for item in turn)
            and not any(item.get("type") in _CALLS for item in turn)
            for turn in turns
        ),
        written_calls=written(prompts, "[assistant calls "),
        written_texts=written(prompts, "[assistant]"),
    )


def read_parts(request: Mapping[str, Any]) -> list[Any]:
    """What of a request a model reads."""
    parts = [request.get("input") or [], request.get("tools") or []]
    return [*parts, request["instructions"]] if request.get("instructions") else parts


def whole(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> dict[str, Any]:
    """The response in one piece; `identity` makes its ids."""
    output = _output(request, identity, step)
    return _response(request, model, identity, "completed", output, usage)


def events(
    request: Mapping[str, Any], model: str, identity: str, step: Step, usage: Usage
) -> Iterator[bytes]:
    """The response as server-sent events; the last one holds all of it."""
    output = _output(request, identity, step)
    for number, value in enumerate(_told(request, model, identity, output, usage)):
        yield event({**value, "sequence_number": number}, value["type"])


def _told(
    request: Mapping[str, Any],
    model: str,
    identity: str,
    output: list[dict[str, Any]],
    usage: Usage,
) -> Iterator[dict[str, Any]]:
    begun = _response(request, model, identity, "in_progress", [], None)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for at, item in enumerate(output):
        opened = {**item, "status": "in_progress", **_EMPTY[item["type"]]}
        yield {"type": "response.output_item.added", "output_index": at, "item": opened}
        yield from _parts(item, {"item_id": item["id"], "output_index": at})
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    done = _response(request, model, identity, "completed", output, usage)
    yield {"type": "response.completed", "response": done}


_EMPTY: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}
_DELTAS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


def _parts(item: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What comes between an item's beginning and its end."""
    if item["type"] != "message":
        kind, key = _DELTAS[item["type"]]
        for piece in pieces(item[key]):
            yield {"type": f"{kind}.delta", **where, "delta": piece}
        yield {"type": f"{kind}.done", **where, "name": item["name"], key: item[key]}
        return
    part = item["content"][0]
    where = {**where, "content_index": 0}
    yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": part}


def _output(request: Mapping[str, Any], identity: str, step: Step) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if step.text or not step.calls:
        text = {"type": "output_text", "text": step.text or "", "annotations": [], "logprobs": []}
        head = {"type": "message", "id": identifier("msg_", identity, 0), "status": "completed"}
        output.append({**head, "role": "assistant", "content": [text]})
    offers = _offers(request)
    for at, call in enumerate(step.calls):
        output.append(_call(call, identity, at, offers.get(call.tool)))
    return output


def _call(
    call: ToolCall, identity: str, at: int, offer: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A call by the names under which the tool is offered."""
    offer = offer or {"kind": "function", "name": call.tool}
    named = {"call_id": identifier("call_", identity, at), "name": offer["name"]}
    if offer.get("namespace"):
        named["namespace"] = offer["namespace"]
    if offer["kind"] == "custom":
        told = {"type": "custom_tool_call", "id": identifier("ctc_", identity, at)}
        return {**told, "status": "completed", **named, "input": _free(call.arguments)}
    told = {"type": "function_call", "id": identifier("fc_", identity, at), "status": "completed"}
    return {**told, **named, "arguments": call.arguments}


def _free(arguments: str) -> str:
    """The text for a tool that takes free text: `{"input": …}`, or what was written in its place."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def _response(
    request: Mapping[str, Any],
    model: str,
    identity: str,
    status: str,
    output: list[dict[str, Any]],
    usage: Usage | None,
) -> dict[str, Any]:
    return {
        "id": identifier("resp_", identity, 0),
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "metadata": request.get("metadata") or {},
        "model": model,
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "reasoning": request.get("reasoning") or {"effort": None, "summary": None},
        "store": request.get("store") is not False,
        "temperature": request.get("temperature", 1.0),
        "text": request.get("text") or {"format": {"type": "text"}},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "top_p": request.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": usage_block(usage) if usage else None,
        "user": None,
    }


def usage_block(usage: Usage) -> dict[str, Any]:
    """As this wire tells it: cached tokens inside the input, reasoning inside the output."""
    given = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": given + usage.output,
    }


def _items(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = request.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [item for item in given or () if isinstance(item, dict)]


def _is_message(item: Mapping[str, Any], *roles: str) -> bool:
    return item.get("type", "message") == "message" and item.get("role") in roles


def _turns(items: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The model's items by the response that they came in: what it says, then what it calls."""
    turns: list[list[Mapping[str, Any]]] = []
    goes_on = False
    for item in items:
        speaks, calls = _is_message(item, "assistant"), item.get("type") in _CALLS
        if speaks or (calls and not goes_on):
            turns.append([])
        if speaks or calls:
            turns[-1].append(item)
        goes_on = speaks or calls or (goes_on and item.get("type") == "reasoning")
    return turns


def _offers(request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tools offered, by the name that behaviours know; those without a name are the provider's."""
    found: dict[str, dict[str, Any]] = {}
    for tool in request.get("tools") or ():
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            continue
        if tool.get("type") != "namespace":
            found[tool["name"]] = {"kind": tool.get("type"), "name": tool["name"]}
            continue
        for inner in tool.get("tools") or ():
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                offer = {
                    "kind": inner.get("type"),
                    "name": inner["name"],
                    "namespace": tool["name"],
                }
                found[_joined(tool["name"], inner["name"])] = offer
    return found


def _joined(namespace: Any, name: str) -> str:
    if not isinstance(namespace, str) or not namespace:
        return name
    return f"{namespace.removesuffix('__')}__{name}"
