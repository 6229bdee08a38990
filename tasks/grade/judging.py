"""A judge's line to its model, opened at the host for the length of one grade.

Claim: the judge is metered like every model and apart from the agent: its calls land in a `model.jsonl` of
their own, with requestor `judge`, and the grade worker holds a token that ends with the grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bridges.channel import Channel

OPEN_SECONDS = 60.0
"""How long the host may take to open or close a line."""
LIMITS = {"tool_seconds": 60}
"""A judge has no tools; a host wants to be told."""


@contextmanager
def judge_line(
    host: Channel, model: Mapping[str, Any], folder: Path, attempt: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """A line for one grade.

    Args:
        host: the host's line (`Processes.host()`).
        model: the judge, as an agent's model is given to `Host.open`.
        folder: where `judge-<n>/` is made for its record; it is never one that exists already.
        attempt: the key of the attempt that is judged.

    Yields:
        `Job.judge`, and the host's summary of what was asked (`model_calls`, `usage`, `cost`), which is
        empty until the line is closed.

    Raises:
        RemoteError, ChannelClosed: the host refuses the model, or is gone.
    """
    number, own = _own_folder(folder)
    key = f"{attempt}-judge"
    summary: dict[str, Any] = {}
    opened = host.call(
        "open",
        attempt=key,
        folder=str(own),
        environments=[],
        limits=LIMITS,
        model={**model, "requestor": "judge"},
        timeout=OPEN_SECONDS,
        **{"try": number},
    )
    line = {
        "model_url": opened["model_url"],
        "token": opened["model_token"],
        "model": model.get("model") or model["name"],
    }
    try:
        yield line, summary
    finally:
        summary |= host.call("close", attempt=key, timeout=OPEN_SECONDS, **{"try": number})


def _own_folder(folder: Path) -> tuple[int, Path]:
    number = 1
    while True:
        own = folder / f"judge-{number}"
        try:
            own.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return number, own.absolute()
