"""Benchmark packages in the cache: one folder a version, whole or not there at all.

Claim: a folder `downloads/<package>-<version>` exists only once every file of it is in place, and its
bytes are those of the pinned wheel: the hash is checked here, not left to the installer. Unpacking goes
to a draft beside it that is renamed when it is whole, so two processes at once, or a `kill -9` in the
middle, leave a draft at most, which a later fetch sweeps away.

    downloads/
      bfcl-eval-2026.3.23/                    the pinned wheel, unpacked
      bfcl-eval-2026.3.23+source.1a2b3c4d/    someone's checkout, copied: named by what is in it

A local wheel stands for the download and must have the pinned hash. A folder (unpacked, installed, or
a checkout) is a source of its own: its version names its content, so its results are never mixed with
the package's, and it is copied here so that grading tomorrow uses what converting used today.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from suites.canonical import digest, file_sha256
from suites.drafts import discard, draft_of
from suites.errors import InputError
from suites.home import dyno_home

DOWNLOAD_SECONDS = 300
LARGEST_UNPACKED = 2_000_000_000
"""Bytes; a wheel that claims more is a mistake or a bomb."""

Say = Callable[[str], None]


def silent(message: str) -> None:
    """The `say` of who wants no progress."""


@dataclass(frozen=True)
class Package:
    """A benchmark's package in the cache.

    Attributes:
        name: the distribution's name (`bfcl-eval`).
        version: the pinned version, or `<version>+source.<hash8>` for a folder or checkout.
        sha256: of the wheel, or over the names and bytes of the files copied from a folder.
        folder: holds the import package (`bfcl_eval/`).
        pinned: True where it is the pinned wheel, byte for byte.
    """

    name: str
    version: str
    sha256: str
    folder: Path
    pinned: bool


def package_folder(name: str, version: str) -> Path:
    """Where that version lies in the cache, fetched or not."""
    return dyno_home() / "downloads" / f"{name}-{version}"


def fetch_package(
    name: str, version: str, sha256: str, source: Path | str | None = None, say: Say = silent
) -> Path:
    """The unpacked folder of a pinned package (see `fetch`)."""
    return fetch(name, version, sha256, source, say).folder


def fetch(
    name: str,
    version: str,
    sha256: str,
    source: Path | str | None = None,
    say: Say = silent,
    find: Find | None = None,
) -> Package:
    """The package in the cache, fetched if it is not there yet.

    Args:
        name: distribution name.
        version: exact version.
        sha256: hash of its wheel, hex.
        source: a local wheel, or a folder or checkout that holds the import package; None asks the
            package index that pip is set up for.
        say: called with one line before anything that takes long.
        find: tells what of a folder is the package; None: the import package of the distribution's
            name, its code and JSON.

    Raises:
        InputError: no network, a wheel of another hash, an unsafe archive, or nothing usable in
            `source`.
    """
    if source is not None:
        path = Path(source).expanduser()
        if path.is_dir():
            return _adopt(name, version, path, say, find or _python_package(name.replace("-", "_")))
        _check_wheel(path, name, version, sha256)
    folder = package_folder(name, version)
    if folder.is_dir():
        if _is_intact(folder):
            return Package(name, version, sha256, folder, pinned=True)
        say(f"{folder}: changed since it was unpacked; fetching it again")
        discard(folder)
    if source is not None:
        _unpack(Path(source).expanduser(), folder)
    else:
        say(f"Fetching {name} {version} from the package index …")
        with tempfile.TemporaryDirectory(prefix="dyno-fetch-") as inbox:
            wheel = _download(name, version, Path(inbox))
            _check_wheel(wheel, name, version, sha256, downloaded=True)
            _unpack(wheel, folder)
    return Package(name, version, sha256, folder, pinned=True)


# ---------------------------------------------------------------- the pinned wheel


def _download(name: str, version: str, inbox: Path) -> Path:
    """One wheel, none of its dependencies (they are gigabytes, and neither data nor grader needs them)."""
    command = [sys.executable, "-m", "pip", "download", f"{name}=={version}"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(inbox)]
    command += [
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--retries=2",
        "--timeout=15",
    ]
    mend = (
        f"on a machine with network: pip download --no-deps {name}=={version}; then give the file here: "
        f"--source PATH/TO/{name.replace('-', '_')}-{version}-….whl (a folder or checkout does too)"
    )
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"{name} {version}: the download took longer than {DOWNLOAD_SECONDS} s", mend=mend
        ) from error
    wheels = sorted(inbox.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next(
            (line for line in reversed(said) if "ERROR" in line), said[-1] if said else ""
        )
        raise InputError(
            f"{name} {version} could not be downloaded ({reason.strip() or 'pip said nothing'})",
            mend=mend,
        )
    return wheels[0]


def _check_wheel(
    path: Path, name: str, version: str, sha256: str, *, downloaded: bool = False
) -> None:
    """Refuse every wheel but the pinned one: a figure must not carry a version it was not made with."""
    if not path.is_file():
        raise InputError(
            f"{path}: there is no such file or folder",
            mend="--source takes a wheel, an unpacked or installed package's folder, or a checkout",
        )
    found = file_sha256(path)
    if found == sha256:
        return
    if downloaded:
        mend = (
            "the package index served another file under that name; check its address, and tell us"
        )
    else:
        mend = (
            f"give the wheel of {name}=={version}; or unpack this one and give the folder: its suites "
            "are then stamped with a version of their own"
        )
    raise InputError(
        f"this is not the pinned {name} {version}: expected sha256 {sha256}, found {found}",
        where=str(path),
        mend=mend,
    )


def _unpack(wheel: Path, folder: Path) -> None:
    with draft_of(folder, replace=False) as draft:
        try:
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    _check_member(member, wheel)
                if sum(member.file_size for member in archive.infolist()) > LARGEST_UNPACKED:
                    raise InputError("unpacks to more than 2 GB", where=str(wheel))
                archive.extractall(draft)
        except zipfile.BadZipFile as error:
            raise InputError(f"not a wheel ({error})", where=str(wheel)) from error


def _check_member(member: zipfile.ZipInfo, wheel: Path) -> None:
    """Refuse names that would land outside the folder, and anything that is not a plain file."""
    name = member.filename
    parts = name.replace("\\", "/").split("/")
    mode = member.external_attr >> 16
    is_link = (mode & 0o170000) == 0o120000
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\\" in name or is_link:
        raise InputError(f"holds an unsafe path: {name!r}", where=str(wheel))


def _is_intact(folder: Path) -> bool:
    """True if every file is as the wheel's own RECORD lists it (some 20 ms for 13 MB)."""
    records = list(folder.glob("*.dist-info/RECORD"))
    if len(records) != 1:
        return False
    for name, stated, _size in csv.reader(io.StringIO(records[0].read_text("utf-8"))):
        if not stated:
            continue
        algorithm, _, value = stated.partition("=")
        try:
            data = (folder / name).read_bytes()
        except OSError:
            return False
        found = (
            base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()
        )
        if found != value:
            return False
    return True


# ---------------------------------------------------------------- folders and checkouts


@dataclass(frozen=True)
class Found:
    """What of somebody's folder is the package.

    Attributes:
        place: where it was found, for people.
        under: folder of the copy that the files go to; "" for the copy itself.
        files: by their path in `under`; nothing that a run may have left.
        version: as the folder states it.
    """

    place: Path
    under: str
    files: dict[str, Path]
    version: str | None


Find = Callable[[Path], Found]
"""What of a folder is the package (InputError: nothing is). It finds the same in the copy."""


def _adopt(name: str, version: str, source: Path, say: Say, find: Find) -> Package:
    """Copy a package out of a folder; the copy's name says what is in it."""
    found = find(source)
    sha256 = _content_hash(found.files)
    stamp = f"{found.version or version}+source.{sha256[:8]}"
    folder = package_folder(name, stamp)
    if folder.is_dir() and not _holds(folder, find, sha256):
        say(f"{folder}: changed since it was copied; copying it again")
        discard(folder)
    if not folder.is_dir():
        say(f"Copying {found.place} as {name} {stamp}")
        with draft_of(folder, replace=False) as draft:
            for relative, path in found.files.items():
                target = draft / found.under / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    return Package(name, stamp, sha256, folder, pinned=False)


def _holds(folder: Path, find: Find, sha256: str) -> bool:
    try:
        return _content_hash(find(folder).files) == sha256
    except InputError:
        return False


def files_below(folder: Path, suffixes: Iterable[str], prefix: str = "") -> dict[str, Path]:
    """The plain files below a folder that have one of these suffixes, by `prefix` and relative path."""
    wanted = frozenset(suffixes)
    return {
        prefix + path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in wanted and path.is_file() and not path.is_symlink()
    }


def _content_hash(files: dict[str, Path]) -> str:
    return digest({relative: file_sha256(path) for relative, path in files.items()})


def _python_package(package: str) -> Find:
    """Finds an import package: itself, one level down, or where the gorilla repository has it."""

    def find(source: Path) -> Found:
        for candidate in (
            source,
            source / package,
            source / "berkeley-function-call-leaderboard" / package,
            source / "src" / package,
        ):
            if candidate.name == package and (candidate / "data").is_dir():
                place = candidate.resolve()
                files = files_below(place, (".py", ".json"))
                return Found(place, package, files, stated_version(place.parent, package))
        raise InputError(
            f"there is no {package}/ with its data/ in it",
            where=str(source),
            mend=f"--source takes a wheel, a folder that holds {package}/, or a checkout of the benchmark",
        )

    return find


def stated_version(folder: Path, distribution: str) -> str | None:
    """The version an unpacked or installed package says it has, from the dist-info in that folder."""
    for metadata in sorted(folder.glob(f"{distribution}-*.dist-info/METADATA")):
        match = re.search(r"^Version: (\S+)$", metadata.read_text("utf-8", "replace"), re.MULTILINE)
        if match:
            return match[1]
    return None
