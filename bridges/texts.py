"""The text of a tool's result: what an agent reads, bounded, and fit for every wire.

A tool may return megabytes, or characters that no UTF-8 can hold. An agent reads at most
`RESULT_BYTES` of it, the head and the tail, with the number of bytes between them told in the text
and in the journal.
"""

from __future__ import annotations

RESULT_BYTES = 262_144
"""Longest text of one result, in UTF-8 bytes, without the line that tells of the cut."""


def fit(text: str, limit: int = RESULT_BYTES) -> tuple[str, int]:
    """The text as it is sent, and how many of its bytes were left out (0: none)."""
    if len(text) <= limit // 4 and text.isascii():
        return text, 0
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode(), 0
    head = data[: limit - limit // 3].decode(errors="ignore")
    tail = data[-(limit // 3) :].decode(errors="ignore")
    cut = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {cut} bytes left out …]\n{tail}", cut
