"""Evidence on disk: what every try left, and when an attempt counts as done.

    evidence/
      attempts/<kk>/<key>/            kk: the key's first two characters
        try-0001/                     one execution; the number is claimed by an exclusive mkdir
          bridge.jsonl  model.jsonl   what the host journaled (see bridges/journal.py)
          conversation.jsonl          the simulated user's side, where a task has one
          stdout  stderr              what the harness printed, cut at the limit
          answer                      its final answer, where stdout is a format that holds one
          final/  verify/             end state, and what verifiers left
          attempt.json                stamp, ending, blame, timings, and the hash of each file above;
                                      written last, by rename: a try without it is `interrupted`
        published                     name of the try that counts; exclusive create, so the first wins
        grades/<grader>@<version>-<spec8>[~n].json
      sweeps/<sweep_id>.json          what a sweep planned
      suites/<digest>/                suite.yaml and tasks.jsonl as they were run

Invariants. A bundle is never edited after its `attempt.json` exists. Only a try with a real ending is
published; a try that ended in an infrastructure error keeps its bundle and is not. A grade is a file of
its own and a new grade never edits an old one. The hash of a bundle is the sha256 of `attempt.json`,
which holds the hashes of all the rest: a torn or edited bundle is found, not believed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suites.canonical import canonical_json, file_sha256

FORMAT = 1
"""Version of `attempt.json`; a reader refuses a newer one."""


class CorruptBundle(Exception):  # noqa: N818 - the condition, as Harbor's and mini-swe-agent's names do
    """A bundle whose files do not match its `attempt.json`, or that cannot be read.

    Attributes:
        path: the try's folder.
        reason: what was found.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True)
class Bundle:
    """A finished try: its folder and the content of its `attempt.json`.

    Attributes:
        folder: `…/<key>/try-0001`.
        record: `attempt.json` as a dict (docs/evidence.md has every key).
        hash: sha256 of the bytes of `attempt.json`, hex.
    """

    folder: Path
    record: dict[str, Any]
    hash: str

    @property
    def key(self) -> str:
        """The attempt key."""
        return self.folder.parent.name

    @property
    def try_number(self) -> int:
        """1 for the first try."""
        return int(self.folder.name.removeprefix("try-"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of one of its journals; [] where the try left none.

        Raises:
            CorruptBundle: the file's hash is not the recorded one, or a line is not JSON.
        """
        stated = self.record["files"].get(name)
        if stated is None:
            return []
        try:
            data = (self.folder / name).read_bytes()
        except OSError as error:
            raise CorruptBundle(self.folder, f"{name}: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != stated["sha256"]:
            raise CorruptBundle(self.folder, f"{name}: its hash is not the one in attempt.json")
        try:
            return [json.loads(line) for line in data.splitlines() if line]
        except ValueError as error:
            raise CorruptBundle(self.folder, f"{name}: a line is not JSON ({error})") from error

    def text(self, name: str) -> str:
        """`stdout`, `stderr` or `answer`, undecodable bytes replaced; "" where there is none."""
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


class Evidence:
    """The evidence root, and every question asked of it. No state beside the folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def attempt_folder(self, key: str) -> Path:
        """The folder of one attempt key (not created)."""
        return self.root / "attempts" / key[:2] / key

    def keys(self) -> Iterator[str]:
        """Every attempt key that has a folder, in order."""
        top = self.root / "attempts"
        if not top.is_dir():
            return
        for shelf in sorted(os.listdir(top)):  # noqa: PTH208  names are all that is wanted
            yield from sorted(os.listdir(top / shelf))  # noqa: PTH208

    # ------------------------------------------------------------ writing

    def claim_try(self, key: str) -> Path:
        """Make the folder of this attempt's next try; no other process gets the same."""
        folder = self.attempt_folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(p.name[4:]) for p in folder.glob("try-*")), default=0)
        while True:
            chosen = folder / f"try-{number:04d}"
            try:
                chosen.mkdir()
            except FileExistsError:
                number += 1
            else:
                return chosen

    def finish(self, folder: Path, record: dict[str, Any]) -> Bundle:
        """Seal a try: hash its files into `record`, write `attempt.json` last, by rename.

        Args:
            folder: the try's folder, all other files written.
            record: all of `attempt.json` but `format` and `files`.
        """
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.name != "attempt.json":
                files[path.relative_to(folder).as_posix()] = {
                    "bytes": path.stat().st_size,
                    "sha256": file_sha256(path),
                }
        record = {"format": FORMAT, **record, "files": files}
        data = json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True).encode()
        write_atomically(folder / "attempt.json", data)
        return Bundle(folder, record, hashlib.sha256(data).hexdigest())

    def publish(self, bundle: Bundle) -> bool:
        """Make this try the attempt's result. False if another try already is."""
        marker = bundle.folder.parent / "published"
        draft = bundle.folder.parent / f".published-{bundle.folder.name}-{os.getpid()}"
        draft.write_text(bundle.folder.name + "\n")
        try:
            os.link(draft, marker)
        except FileExistsError:
            if self.is_done(bundle.key):
                return False
            # A marker that names no finished try (a power cut can leave it empty) is no result.
            os.replace(draft, marker)  # noqa: PTH105
            return True
        finally:
            draft.unlink(missing_ok=True)
        return True

    # ------------------------------------------------------------ reading

    def bundle(self, folder: Path) -> Bundle | None:
        """The finished try in `folder`; None if it is `interrupted` (no `attempt.json`).

        Raises:
            CorruptBundle: `attempt.json` is not readable, or of a newer format.
        """
        try:
            data = (folder / "attempt.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptBundle(folder, f"attempt.json: {error.strerror}") from error
        try:
            record = json.loads(data)
            version = record["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptBundle(folder, f"attempt.json is not a record ({error!r})") from error
        if version > FORMAT:
            raise CorruptBundle(
                folder, f"attempt.json has format {version}; this dyno reads up to {FORMAT}"
            )
        return Bundle(folder, record, hashlib.sha256(data).hexdigest())

    def published(self, key: str) -> Bundle | None:
        """The try that counts for this attempt; None if the attempt is not done."""
        folder = self.attempt_folder(key)
        try:
            name = (folder / "published").read_text().strip()
        except FileNotFoundError:
            return None
        return self.bundle(folder / name) if name else None

    def is_done(self, key: str) -> bool:
        """True if a try is published and its `attempt.json` is there. Cheap: nothing is hashed."""
        folder = self.attempt_folder(key)
        try:
            name = (folder / "published").read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return bool(name) and (folder / name / "attempt.json").is_file()

    def tries(self, key: str) -> list[Path]:
        """Folders of all tries of this attempt, finished or not, in order."""
        return sorted(self.attempt_folder(key).glob("try-*"))

    # ------------------------------------------------------------ grades

    def grades(self, key: str) -> list[dict[str, Any]]:
        """Every grade of this attempt, oldest first. A broken file is no grade (loading names it)."""
        found = []
        folder = self.attempt_folder(key) / "grades"
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208  a glob costs five times as much
        except FileNotFoundError:
            return []
        for name in names:
            if not name.endswith(".json") or name.startswith("."):
                continue
            try:
                found.append({**json.loads((folder / name).read_bytes()), "file": name})
            except (OSError, ValueError):
                continue
        return sorted(found, key=lambda grade: (grade["graded_at"], grade["file"]))

    def write_grade(self, key: str, grade: dict[str, Any]) -> bool:
        """Keep a grade. False where one that says the same already stands.

        Args:
            grade: `grader`, `grader_version`, `spec_hash`, `bundle_hash`, `graded_at` and the rest
                (docs/evidence.md); two grades that differ in `graded_at` alone say the same.
        """
        folder = self.attempt_folder(key) / "grades"
        folder.mkdir(exist_ok=True)
        stem = f"{grade['grader']}@{grade['grader_version']}-{grade['spec_hash'][:8]}"
        body = {k: v for k, v in grade.items() if k != "graded_at"}
        number = 1
        while True:
            path = folder / (f"{stem}.json" if number == 1 else f"{stem}~{number}.json")
            if path.exists():
                try:
                    old = json.loads(path.read_bytes())
                    old.pop("graded_at", None)
                    if canonical_json(old) == canonical_json(body):
                        return False
                except ValueError:
                    pass  # a broken grade is left where it is; ours goes beside it
                number += 1
                continue
            draft = folder / f".{path.name}-{os.getpid()}-{number}"
            draft.write_bytes(
                json.dumps(grade, indent=1, ensure_ascii=False, sort_keys=True).encode()
            )
            try:
                os.link(draft, path)
            except FileExistsError:
                continue
            finally:
                draft.unlink()
            return True


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write beside, flush to disk, rename over: a reader sees all of it or none of it."""
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
