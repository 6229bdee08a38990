"""Folders that are there whole or not at all.

A folder that others read (a fetched package, a converted suite) is filled as a draft beside its place
and renamed over it. A process that dies leaves a draft at most, which a later one sweeps away; of two
that write the same folder at once, each writes a whole one.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suites.errors import InputError

PREFIX = ".draft-"
OLD_SECONDS = 3600
"""A draft older than this belongs to a process that died."""


@contextmanager
def draft_of(folder: Path, *, replace: bool) -> Iterator[Path]:
    """A folder to fill, which takes the place of `folder` when the block ends well.

    Args:
        folder: where it goes.
        replace: whether it goes over one that is there; if not, the one that was first stays.

    Raises:
        InputError: the disk is full, or the place cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        draft = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder.parent))
        try:
            yield draft
            draft.chmod(0o755)
            _put(draft, folder, replace)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            where=str(folder),
            mend="free some space, or set DYNO_HOME to a folder you can write to",
        ) from error


def discard(folder: Path) -> None:
    """Take a folder away in one step, then delete it at leisure."""
    grave = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder.parent))
    try:
        folder.rename(grave / "old")
    except FileNotFoundError:
        pass  # another process has just moved it
    shutil.rmtree(grave, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Delete the drafts in a folder that processes left when they died."""
    for draft in parent.glob(f"{PREFIX}*"):
        try:
            if time.time() - draft.stat().st_mtime > OLD_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)
        except FileNotFoundError:
            pass


def _put(draft: Path, folder: Path, replace: bool) -> None:
    for _ in range(100):
        try:
            draft.rename(folder)
            return
        except OSError:
            if not folder.is_dir():
                raise
        if not replace:
            return
        discard(folder)
    raise OSError(errno.EBUSY, "other processes keep writing it")
