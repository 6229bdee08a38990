"""Evidence becomes a warehouse: only what is new, all of it or none, and always the same again.

    1  take the lock            one loader at a time; a crash lets go of it
    2  sweep up                 what a killed loader left
    3  open a private copy      or an empty file, to rebuild
    4  read what is new         from shards where a bundle's hash vouches for them, else from the bundle
    5  publish by rename        a reader has the old file or the new one, never a half

DuckDB's writer shuts out even readers, hence the private copy. What cannot be read is listed in the table
`load_problems` and in the report, and the rest goes in. An older schema, another evidence root or a file
that cannot be opened is rebuilt without a word from anybody: the warehouse is an index, not the truth.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from suites.errors import InputError
from warehouse.describe import install_views
from warehouse.evidence import CorruptBundle, Evidence
from warehouse.manifests import Unreadable, grade_rows, suite_rows, sweep_rows
from warehouse.meta import (
    SCHEMA,
    SCHEMA_FILE,
    needs_newer_duckdb,
    newer,
    read_meta,
    refuse_newer,
    tables_mark,
)
from warehouse.rows import TABLES, rows_of, rows_of_interrupted
from warehouse.scan import Known, News, known_to, news
from warehouse.shards import shard_files
from warehouse.staging import Staging

Say = Callable[[str], None]


@dataclass(frozen=True)
class LoadReport:
    """What a load did.

    Attributes:
        rebuilt: why the warehouse was made anew; None if it was added to.
        rows: rows added, by table (on a rebuild: all of them).
        from_shards: tries whose rows came from shards.
        interrupted: tries that nobody sealed, in all.
        problems: (path relative to the evidence root, what was found), of all that is not in.
        published: False where there was nothing to add.
        seconds: how long it took.
    """

    rebuilt: str | None
    rows: dict[str, int]
    from_shards: int
    interrupted: int
    problems: tuple[tuple[str, str], ...]
    published: bool
    seconds: float

    def __str__(self) -> str:
        if not self.published:
            text = "The warehouse is up to date"
        else:
            counts = ("tries", "grades", "tool_calls", "model_calls", "messages")
            added = ", ".join(f"{self.rows.get(t, 0):,} {t.replace('_', ' ')}" for t in counts)
            text = f"{'Rebuilt the warehouse' if self.rebuilt else 'Loaded'}: {added}"
        text += f" ({self.seconds:.1f} s)."
        for path, reason in self.problems:
            text += f"\n  left out {path}: {reason}"
        return text


def load(
    evidence_root: Path,
    shards_root: Path,
    warehouse_path: Path,
    *,
    rebuild: bool = False,
    say: Say = lambda _: None,
) -> LoadReport:
    """Bring the warehouse up to date with the evidence.

    Args:
        evidence_root: the only truth.
        shards_root: the cache of rows; not looked at by a rebuild.
        warehouse_path: the published file; replaced when there is something to add.
        rebuild: make it anew from bundles alone.
        say: told what takes long, one line at a time.

    Raises:
        InputError: the warehouse was made by a newer dyno, or the disk is full.
    """
    started = time.monotonic()
    warehouse_path.parent.mkdir(parents=True, exist_ok=True)
    with _only_loader(warehouse_path.parent / "warehouse.lock", say):
        private = warehouse_path.with_name(f".{warehouse_path.name}.loading")
        shutil.rmtree(private, ignore_errors=True)
        private.mkdir()
        try:
            return _Load(evidence_root, shards_root, warehouse_path, private, say).run(
                rebuild, started
            )
        except (OSError, duckdb.IOException) as error:
            if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
                raise InputError(
                    "the disk is full; the warehouse is as it was",
                    where=str(warehouse_path.parent),
                    mend="make room there and run `dyno load` again: no evidence is lost",
                ) from error
            raise
        finally:
            shutil.rmtree(private, ignore_errors=True)


@dataclass
class _Load:
    """One load, under the lock."""

    evidence_root: Path
    shards_root: Path
    target: Path
    private: Path
    say: Say
    problems: list[tuple[str, str]] = field(default_factory=list)
    from_shards: int = 0

    def run(self, rebuild: bool, started: float) -> LoadReport:
        """Load into the private copy and publish it if it says something new."""
        # DuckDB keeps its instances by path for a moment after they are closed: a name of its own keeps
        # the next load of this process from being handed the last one's.
        draft = self.private / f"{secrets.token_hex(8)}.duckdb"
        why = "as asked" if rebuild else self._why_anew(draft)
        if why is not None:
            draft.unlink(missing_ok=True)
            if self.target.exists() and not rebuild:
                self.say(f"The warehouse is made anew: {why}.")
        con = duckdb.connect(str(draft), config=_settings(self.private))
        try:
            if why is not None:
                con.execute(SCHEMA_FILE.read_text())
                con.execute(
                    "insert into meta values ('schema', ?), ('tables', ?), ('evidence_root', ?)",
                    [str(SCHEMA), tables_mark(), str(self.evidence_root)],
                )
            added, interrupted, changed = self._add(con, anew=why is not None)
            changed |= install_views(con)
        finally:
            con.close()
        if changed:
            _publish(draft, self.target)
        return LoadReport(
            rebuilt=why,
            rows=added,
            from_shards=self.from_shards,
            interrupted=interrupted,
            problems=tuple(sorted(self.problems)),
            published=changed,
            seconds=time.monotonic() - started,
        )

    def _why_anew(self, draft: Path) -> str | None:
        """Copy the published file to `draft`; why it cannot be added to, or None if it can.

        Raises:
            InputError: it is of a newer dyno, and not ours to throw away.
        """
        if not self.target.exists():
            return "there is none yet"
        shutil.copyfile(self.target, draft)
        try:
            with duckdb.connect(str(draft), read_only=True) as con:
                meta = read_meta(con)
        except duckdb.Error as error:
            if needs_newer_duckdb(error):
                raise newer(self.target) from error
            return "the file cannot be read as a warehouse"
        refuse_newer(meta, self.target)
        if meta.get("tables") != tables_mark():
            return "its tables are not those of this dyno"
        if meta.get("evidence_root") != str(self.evidence_root):
            return f"it was loaded from {meta.get('evidence_root')}"
        return None

    def _add(self, con: duckdb.DuckDBPyConnection, anew: bool) -> tuple[dict[str, int], int, bool]:
        """Insert what is new; rows added by table, tries unsealed, and whether anything changed."""
        shards = {} if anew else _unread_shards(con, self.shards_root)
        known = Known() if anew else known_to(con)
        found = news(self.evidence_root, known)
        if len(found.sealed) > 1_000:
            self.say(f"Reading {len(found.sealed):,} tries …")
        staging = Staging(con, self.private)
        con.begin()
        self._add_plans(con, staging, found)
        self._add_unsealed(con, staging, found, known)
        self._add_sealed(staging, found, shards)
        for path in found.grades:
            with self._listed(path):
                staging.add(grade_rows(path))
        staging.add({"published": [{"attempt_key": k, "try": n} for k, n in found.published]})
        staging.insert()
        changed = anew or any(staging.added.values()) or found.unsealed_changed(known)
        changed |= self._keep_problems(con)
        if changed:
            for shard in shards:
                con.execute("delete from shards where shard = ?", [shard])
            staging.add({"shards": [{"shard": s, "bytes": size} for s, size in shards.items()]})
            staging.insert()
        con.commit()
        return staging.added, len(found.unsealed), changed

    def _add_plans(self, con: duckdb.DuckDBPyConnection, staging: Staging, found: News) -> None:
        """Stage suites and sweeps; a manifest that was written again replaces its rows."""
        told = set()
        for folder in found.suites:
            with self._listed(folder):
                staging.add(suite_rows(folder))
                con.execute("delete from suites where suite_digest = ?", [folder.name])
                told.add(folder.name)
        for path, data in found.manifests:
            with self._listed(path):
                rows = sweep_rows(path, data)
                rows["suites"] = [row for row in rows["suites"] if row["suite_digest"] not in told]
                staging.add(rows)
                for table in ("sweeps", "sweep_cells", "planned"):
                    con.execute(f"delete from {table} where sweep_id = ?", [path.stem])

    def _add_unsealed(
        self, con: duckdb.DuckDBPyConnection, staging: Staging, found: News, known: Known
    ) -> None:
        """Stage what tries have left that nobody sealed; rows of those that went on are replaced."""
        if found.unsealed_changed(known):
            for table in TABLES:
                con.execute(f"delete from {table} where bundle_hash is null")
            for folder in found.unsealed:
                with self._listed(folder):
                    staging.add(rows_of_interrupted(folder))

    def _add_sealed(self, staging: Staging, found: News, shards: dict[str, int]) -> None:
        """Insert from shards what the bundles vouch for, and stage the rest from the bundles."""
        evidence = Evidence(self.evidence_root)
        bundles = []
        for folder in found.sealed:
            with self._listed(folder):
                bundle = evidence.bundle(folder)
                if bundle is not None:
                    bundles.append(bundle)
        taken = staging.insert_from_shards(self.shards_root, shards, bundles) if shards else set()
        self.from_shards = len(taken)
        for bundle in bundles:
            if bundle.hash not in taken:
                with self._listed(bundle.folder):
                    staging.add(rows_of(bundle))

    def _keep_problems(self, con: duckdb.DuckDBPyConnection) -> bool:
        """Replace the table of problems by those met this time; whether they are others."""
        before = con.sql("select path, reason from load_problems").fetchall()
        if sorted(before) == sorted(self.problems):
            return False
        con.execute("delete from load_problems")
        for problem in self.problems:
            con.execute("insert into load_problems values (?, ?)", problem)
        return True

    @contextmanager
    def _listed(self, path: Path) -> Iterator[None]:
        """What cannot be read inside is put on the list, and the load goes on."""
        try:
            yield
            return
        except (CorruptBundle, Unreadable) as error:
            path, reason = error.path, error.reason
        except ValueError as error:
            reason = f"holds a value that JSON does not know ({error})"
        inside = path.is_relative_to(self.evidence_root)
        name = path.relative_to(self.evidence_root) if inside else path
        self.problems.append((name.as_posix(), reason))


def _unread_shards(con: duckdb.DuckDBPyConnection, root: Path) -> dict[str, int]:
    """Shards that have grown since they were last read, with their size now."""
    read = dict(con.sql("select shard, bytes from shards").fetchall())
    return {name: size for name, size in shard_files(root).items() if read.get(name) != size}


def _settings(private: Path) -> dict[str, Any]:
    """A loader's connection: modest, and with no reach beyond this machine."""
    return {
        "threads": 2,
        "memory_limit": "1GB",
        "temp_directory": str(private / "spill"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _publish(draft: Path, target: Path) -> None:
    """Put the finished file in the place of the old one, at once."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)


@contextmanager
def _only_loader(lock: Path, say: Say) -> Iterator[None]:
    """Hold the lock of all loaders of this warehouse; the system drops it with the process."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise
            say("Another load is at work; waiting for it …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
