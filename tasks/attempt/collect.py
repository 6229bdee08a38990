"""What a harness leaves in its working directory, kept as evidence within bounds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

KEPT_FILES, KEPT_BYTES = 200, 4_000_000
"""How much of what a harness left in its working directory is kept as evidence."""


def keep_files(source: Path, target: Path) -> None:
    """Copy the files a harness left (regular ones, up to the caps) and list those that were not kept."""
    room, left_out = KEPT_BYTES, []
    kept = 0
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        name = path.relative_to(source)
        try:
            size = path.stat().st_size
            if kept >= KEPT_FILES or size > room:
                left_out.append({"path": name.as_posix(), "bytes": size})
                continue
            (target / "files" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / "files" / name)
        except OSError as error:
            left_out.append({"path": name.as_posix(), "error": error.strerror})
            continue
        kept, room = kept + 1, room - size
    if left_out:
        target.mkdir(exist_ok=True)
        (target / "left_out.json").write_text(json.dumps(left_out[:1000]))
