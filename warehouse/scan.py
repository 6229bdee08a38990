"""What the evidence holds that the warehouse does not: names and sizes only, no bundle is opened.

Finished tries and grades never change, so one that is in needs no second look. What may change is looked
at each time: manifests (by their hash) and tries that nobody sealed (by the size of their journals).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.rows import journal_bytes

if TYPE_CHECKING:
    import duckdb

Try = tuple[str, int]
"""An attempt key and the number of one of its tries."""


@dataclass(frozen=True)
class Known:
    """What the warehouse holds already.

    Attributes:
        sealed: finished tries.
        unsealed: interrupted tries, with the size of their journals when they were read.
        published: attempts whose counting try is known.
        grades: (attempt key, file name).
        sweeps: sweep id to the hash of its manifest.
        suites: digests of the suites whose tasks are known.
    """

    sealed: frozenset[Try] = frozenset()
    unsealed: dict[Try, int] = field(default_factory=dict)
    published: frozenset[str] = frozenset()
    grades: frozenset[tuple[str, str]] = frozenset()
    sweeps: dict[str, str] = field(default_factory=dict)
    suites: frozenset[str] = frozenset()


@dataclass
class News:
    """What is to be loaded, in the order of its names.

    Attributes:
        sealed: folders of finished tries.
        unsealed: folders of all tries that nobody sealed, known ones too, with their journals' size.
        published: attempts that are done, with the try that counts.
        grades: grade files.
        manifests: sweep manifests that are new or were written again, with their bytes.
        suites: folders of suite snapshots.
    """

    sealed: list[Path] = field(default_factory=list)
    unsealed: dict[Path, int] = field(default_factory=dict)
    published: list[Try] = field(default_factory=list)
    grades: list[Path] = field(default_factory=list)
    manifests: list[tuple[Path, bytes]] = field(default_factory=list)
    suites: list[Path] = field(default_factory=list)

    def unsealed_changed(self, known: Known) -> bool:
        """True if a try was begun, went on, was sealed or is gone since the last load."""
        now = {try_of(folder): size for folder, size in self.unsealed.items()}
        return now != known.unsealed


def known_to(con: duckdb.DuckDBPyConnection) -> Known:
    """What this warehouse holds."""
    tries = con.sql(
        "select attempt_key, try, journal_bytes, bundle_hash is null from tries"
    ).fetchall()
    return Known(
        sealed=frozenset((key, number) for key, number, _, open_ in tries if not open_),
        unsealed={(key, number): size for key, number, size, open_ in tries if open_},
        published=frozenset(
            key for (key,) in con.sql("select attempt_key from published").fetchall()
        ),
        grades=frozenset(con.sql("select attempt_key, grade_file from grades").fetchall()),
        sweeps=dict(con.sql("select sweep_id, manifest_sha256 from sweeps").fetchall()),
        suites=frozenset(
            digest for (digest,) in con.sql("select distinct suite_digest from tasks").fetchall()
        ),
    )


def news(root: Path, known: Known) -> News:
    """Walk the evidence root and list what is new.

    Args:
        root: the evidence root; one that is not there holds nothing.
        known: what need not be listed.
    """
    found = News()
    for name in _names(root / "sweeps"):
        if name.endswith(".json") and name[0] != ".":
            path = root / "sweeps" / name
            data = path.read_bytes()
            if known.sweeps.get(path.stem) != hashlib.sha256(data).hexdigest():
                found.manifests.append((path, data))
    for name in _names(root / "suites"):
        if name not in known.suites and name[0] != ".":
            found.suites.append(root / "suites" / name)
    top = f"{root}/attempts"
    for shelf in _names(top):
        for key in _names(f"{top}/{shelf}"):
            _look_at(f"{top}/{shelf}/{key}", key, known, found)
    return found


def try_of(folder: Path) -> Try:
    """Attempt key and number of a try's folder."""
    return folder.parent.name, int(folder.name[4:])


def _look_at(folder: str, key: str, known: Known, found: News) -> None:
    """List what is new about one attempt; its folder is text, for a path object costs more than the look."""
    names = _names(folder)
    for name in names:
        if (
            name.startswith("try-")
            and name[4:].isdigit()
            and (key, int(name[4:])) not in known.sealed
        ):
            path = Path(folder, name)
            if (path / "attempt.json").exists():
                found.sealed.append(path)
            elif path.is_dir():
                found.unsealed[path] = journal_bytes(path)
    if "published" in names and key not in known.published:
        counts = Path(folder, "published").read_text(errors="replace").strip()
        if counts[4:].isdigit() and Path(folder, counts, "attempt.json").exists():
            found.published.append((key, int(counts[4:])))
    if "grades" in names:
        for name in _names(f"{folder}/grades"):
            if name.endswith(".json") and name[0] != "." and (key, name) not in known.grades:
                found.grades.append(Path(folder, "grades", name))


def _names(folder: Path | str) -> list[str]:
    """What lies in a folder, sorted; [] where there is no such folder."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208  names are all that is wanted
    except (FileNotFoundError, NotADirectoryError):
        return []
