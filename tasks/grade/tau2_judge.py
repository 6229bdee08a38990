"""The model that judges natural-language assertions, as upstream's evaluator calls it.

Upstream writes the question and reads the answer; this carries it over the chat wire to the gateway, at
temperature 0, with a token that is good for this one line and no provider's key.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SECONDS = 100.0
"""Longest answer; shorter than a judged grade may take, so that the reason is known."""
REASON_BYTES = 500


class JudgeFailed(Exception):  # noqa: N818 - the condition
    """The judge gave no answer that upstream can read: no grade, and no failure of the agent's."""


class Judge:
    """One grade's judge.

    Args:
        line: `Job.judge`.
        message: upstream's `AssistantMessage`.

    Attributes:
        account: `{"model", "usage"}` once it has answered; the model as it names itself.
    """

    def __init__(self, line: Mapping[str, Any], message: Callable[..., Any]) -> None:
        self.account: dict[str, Any] | None = None
        self._line = line
        self._message = message

    def __call__(self, messages: Sequence[Any], **_upstreams: Any) -> Any:
        """In upstream's place (`generate`): the model it names by default is not the one asked."""
        told = [{"role": message.role, "content": message.content} for message in messages]
        asked = {"model": self._line["model"], "messages": told, "temperature": 0}
        answer = self._post(asked)
        try:
            content = answer["choices"][0]["message"]["content"]
        except (LookupError, TypeError) as error:
            raise JudgeFailed(f"its answer is no chat completion: {error!r}") from error
        named = answer.get("model") or self._line["model"]
        self.account = {"model": named, "usage": answer.get("usage")}
        return self._message(role="assistant", content=content)

    def _post(self, asked: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self._line['model_url'].rstrip('/')}/chat/completions",
            json.dumps(asked).encode(),
            {
                "content-type": "application/json",
                "authorization": f"Bearer {self._line['token']}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            said = error.read(REASON_BYTES).decode("utf-8", "replace")
            raise JudgeFailed(f"it answered with status {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise JudgeFailed(f"it could not be asked: {error}") from error
