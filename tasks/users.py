"""Who plays the simulated user of a sweep: a model, the task's own script, or a record of what one said.

    scripted       does what each task's script says (controls and tests)
    replay:FILE    says what FILE holds, JSON: {TASK ID: [{"content": text} | {"calls": [{tool,
                   arguments}]}, …]}, or one such list for every task
    any other      a model, by name, path or `vendor/id`

A user is part of what an agent meets: it is in the key of every attempt that is a conversation, and in
the stamp, since scores against two users are two scores.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suites.canonical import digest
from suites.errors import InputError
from suites.loading import REPLAY, SCRIPTED_USER, load_player
from suites.schema import Model, Task

Kind = Literal["model", "scripted", "replay"]
Said = list[dict[str, Any]]


@dataclass(frozen=True)
class User:
    """Who plays the users of one sweep.

    Attributes:
        model: where a model plays it.
        path: the record's file, where one is replayed.
        sha256: of that file, hex.
        said: what the record holds: by task id, or one list for every task.
    """

    kind: Kind
    model: Model | None = None
    path: str | None = None
    sha256: str | None = None
    said: dict[str, Said] | Said | None = None

    @classmethod
    def of(cls, ref: str | Model) -> User:
        """The user that a sweep names.

        Raises:
            InputError: there is no such model or file, or it cannot play a user.
        """
        if ref == SCRIPTED_USER:
            return cls("scripted")
        if isinstance(ref, str) and ref.startswith(REPLAY):
            return cls._replayed(ref.removeprefix(REPLAY))
        return cls("model", load_player("user", ref))

    @classmethod
    def _replayed(cls, path: str) -> User:
        try:
            data = Path(path).read_bytes()
            said = json.loads(data)
        except OSError as error:
            raise InputError(
                f"`user` is 'replay:{path}', which cannot be read: {error.strerror}",
                mend="give the path from where you run dyno",
            ) from error
        except ValueError as error:
            raise InputError(f"is not JSON: {error}", where=path, mend=_FORM) from error
        listed = said.items() if isinstance(said, dict) else [("", said)]
        for task_id, messages in listed:
            _check_said(path, task_id, messages)
        return cls("replay", None, path, hashlib.sha256(data).hexdigest(), said)

    @classmethod
    def read(cls, definition: dict[str, Any]) -> User:
        """The user as a plan's manifest states it (`definition`)."""
        model = definition.get("model")
        return cls(
            definition["kind"],
            Model.model_validate(model) if model else None,
            definition.get("path"),
            definition.get("sha256"),
            definition.get("said"),
        )

    @property
    def definition(self) -> dict[str, Any]:
        """All of it, for the manifest; with what a record holds, so that the file may go."""
        told = {
            "kind": self.kind,
            "model": self.model.model_dump(mode="json", exclude_defaults=True)
            if self.model
            else None,
            "path": self.path,
            "sha256": self.sha256,
            "said": self.said,
        }
        return {key: value for key, value in told.items() if value is not None}

    @property
    def name(self) -> str:
        """What the stamp calls it."""
        return self.model.name if self.model else self.kind

    def part(self, model_part: dict[str, Any] | None, task: Task | None = None) -> dict[str, Any]:
        """What an agent's run depends on, for the key of an attempt (`task`) or for the configuration.

        Args:
            model_part: of the user's model, where it is one.
            task: only what this task's user says of a record; None: the whole record.
        """
        if self.kind == "replay":
            held = digest(self.said_of(task)) if task else self.sha256
            return {"kind": "replay", "said": held}
        return {"kind": self.kind, **({"model": model_part} if model_part else {})}

    def lacks(self, task: Task) -> str | None:
        """Why it cannot play the user of this task, in words; None if it can."""
        if self.kind == "scripted" and (task.user is None or task.user.script is None):
            return f"the user of the task {task.id} has no script: name a model as `user`"
        if self.kind == "replay" and not self.said_of(task):
            return f"{self.path} holds nothing that the user of the task {task.id} says"
        return None

    def said_of(self, task: Task) -> Said:
        """What a record holds for this task; [] for none."""
        said = self.said or []
        return said.get(task.id, []) if isinstance(said, dict) else said


_FORM = 'it holds {"TASK ID": [{"content": "…"} or {"calls": [{"tool": "…", "arguments": {}}]}]}'


def _check_said(path: str, task_id: str, messages: Any) -> None:
    """Refuse a record that the host would refuse in every attempt."""
    if not isinstance(messages, list):
        raise InputError(
            f"holds {type(messages).__name__}, not a list of messages",
            where=f"{path}: {task_id}" if task_id else path,
            mend=_FORM,
        )
    for number, message in enumerate(messages):
        if isinstance(message, dict) and set(message) == {"content"}:
            right = isinstance(message["content"], str)
        elif isinstance(message, dict) and set(message) == {"calls"}:
            calls = message["calls"]
            right = isinstance(calls, list) and all(
                isinstance(call, dict)
                and isinstance(call.get("tool"), str)
                and isinstance(call.get("arguments", {}), dict)
                and set(call) <= {"tool", "arguments"}
                for call in calls
            )
        else:
            right = False
        if not right:
            raise InputError(
                "is not a message of a user", where=f"{path}: {task_id}[{number}]", mend=_FORM
            )
