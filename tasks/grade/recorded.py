"""The evidence of one try as a grader sees it: verified rows, never a grade."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.grade.calls import EvidenceHole
from tasks.grade.jobs import Job
from warehouse.evidence import Bundle, CorruptBundle, Evidence


@dataclass(frozen=True)
class Recorded:
    """What a try left.

    Attributes:
        bridge: rows of `bridge.jsonl`.
        model: rows of `model.jsonl`.
        conversation: rows of `conversation.jsonl`; none where there was no conversation.
        ending: how the try ended.
        stdout: reads what the harness printed, or the answer in it.
        bundle_hash: of the bundle; "" for rows without one.
    """

    bridge: list[dict[str, Any]] = field(default_factory=list)
    model: list[dict[str, Any]] = field(default_factory=list)
    conversation: list[dict[str, Any]] = field(default_factory=list)
    ending: str = "clean"
    stdout: Callable[[], str] = str
    bundle_hash: str = ""


def read(job: Job) -> Recorded:
    """The evidence a job names.

    Raises:
        CorruptBundle: the bundle is unfinished, or not as its `attempt.json` says.
        EvidenceHole: the record says that rows were lost, or that the try is no result.
    """
    if job.folder is None:
        rows = job.rows or {}
        return Recorded(
            bridge=rows.get("bridge", []),
            model=rows.get("model", []),
            conversation=rows.get("conversation", []),
            ending=rows.get("ending", "clean"),
            stdout=lambda: str(rows.get("stdout", "")),
        )
    folder = Path(job.folder)
    bundle = Evidence(folder.parent).bundle(folder)
    if bundle is None:
        raise CorruptBundle(folder, "there is no attempt.json: the try was interrupted")
    if bundle.record.get("error"):
        raise EvidenceHole(f"the try ended in an infrastructure error: {bundle.record['error']}")
    if (bundle.record.get("host") or {}).get("dropped"):
        raise EvidenceHole("the host says that rows of its journal were lost")
    return Recorded(
        bridge=bundle.rows("bridge.jsonl"),
        model=bundle.rows("model.jsonl"),
        conversation=bundle.rows("conversation.jsonl"),
        ending=bundle.record["ending"],
        stdout=lambda: _stdout(bundle),
        bundle_hash=bundle.hash,
    )


def _stdout(bundle: Bundle) -> str:
    """What the harness printed, its hash checked as the rows' are; its final answer alone where it printed
    a format that holds one (tasks/attempt/telemetry.py), for the rest of that would satisfy many a check."""
    name = "answer" if "answer" in bundle.record["files"] else "stdout"
    stated = bundle.record["files"].get(name)
    if stated is None:
        return ""
    try:
        data = (bundle.folder / name).read_bytes()
    except OSError as error:
        raise CorruptBundle(bundle.folder, f"{name}: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != stated["sha256"]:
        raise CorruptBundle(bundle.folder, f"{name}: its hash is not the one in attempt.json")
    return data.decode("utf-8", "replace")
