from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from suites.canonical import file_sha256
from suites.drafts import OLD_SECONDS
from suites.errors import InputError
from tasks.convert.fetch import fetch, fetch_package, package_folder

NAME, VERSION = "toy-bench", "1.0"
FILES = {"toy_bench/__init__.py": b"", "toy_bench/data/one.json": b'{"id": "one"}\n'}


def make_wheel(path: Path, files: dict[str, bytes] = FILES) -> Path:
    """A wheel with a RECORD, as pip would serve it."""
    record = f"toy_bench-{VERSION}.dist-info/RECORD"
    lines = [f"{name},sha256={digest64(data)},{len(data)}" for name, data in files.items()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(record, "\n".join([*lines, f"{record},,"]) + "\n")
    return path


def digest64(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNO_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "toy_bench-1.0-py3-none-any.whl")


def test_a_local_wheel_with_the_pinned_hash_is_unpacked_once(home: Path, wheel: Path) -> None:
    sha256 = file_sha256(wheel)
    first = fetch(NAME, VERSION, sha256, wheel)
    assert first.folder == home / "downloads" / "toy-bench-1.0"
    assert first.pinned
    assert (first.folder / "toy_bench/data/one.json").read_bytes() == b'{"id": "one"}\n'

    inode = first.folder.stat().st_ino
    assert fetch_package(NAME, VERSION, sha256).stat().st_ino == inode  # and needs no source again


def test_a_wheel_of_another_hash_is_refused_with_both_hashes_and_a_way_out(
    home: Path, wheel: Path
) -> None:
    with pytest.raises(InputError) as caught:
        fetch(NAME, VERSION, "0" * 64, wheel)
    assert caught.value.where == str(wheel)
    assert "0" * 64 in caught.value.what
    assert file_sha256(wheel) in caught.value.what
    assert "unpack this one and give the folder" in (caught.value.mend or "")
    assert not package_folder(NAME, VERSION).exists()


def test_a_source_that_is_not_there_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        fetch(NAME, VERSION, "0" * 64, tmp_path / "nothing.whl")


@pytest.mark.parametrize(
    "name", ["../out.py", "/tmp/out.py", "a/../../out.py", "C:/out.py", "a\\..\\b.py"]
)
def test_a_path_that_leaves_the_folder_is_refused_and_nothing_is_left(
    home: Path, tmp_path: Path, name: str
) -> None:
    wheel = tmp_path / "bad.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy_bench/__init__.py", b"")
        info = zipfile.ZipInfo("x")
        info.filename = name
        archive.writestr(info, b"boo")
    with pytest.raises(InputError, match="unsafe path"):
        fetch(NAME, VERSION, file_sha256(wheel), wheel)
    assert list((home / "downloads").iterdir()) == []


def test_a_symbolic_link_in_a_wheel_is_refused(home: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "link.whl"
    info = zipfile.ZipInfo("toy_bench/link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="unsafe path"):
        fetch(NAME, VERSION, file_sha256(wheel), wheel)


def test_a_file_that_is_no_wheel_is_refused(home: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "text.whl"
    wheel.write_text("hello")
    with pytest.raises(InputError, match="not a wheel"):
        fetch(NAME, VERSION, file_sha256(wheel), wheel)


def test_a_cache_that_was_changed_is_noticed_and_fetched_again(home: Path, wheel: Path) -> None:
    sha256 = file_sha256(wheel)
    folder = fetch(NAME, VERSION, sha256, wheel).folder
    (folder / "toy_bench/data/one.json").write_text("{}")
    said: list[str] = []
    fetch(NAME, VERSION, sha256, wheel, said.append)
    assert "changed since it was unpacked" in said[0]
    assert (folder / "toy_bench/data/one.json").read_bytes() == FILES["toy_bench/data/one.json"]


def test_a_folder_is_a_source_of_its_own_named_by_its_content(
    home: Path, wheel: Path, tmp_path: Path
) -> None:
    sha256 = file_sha256(wheel)
    pinned = fetch(NAME, VERSION, sha256, wheel)
    unpacked = fetch(NAME, VERSION, sha256, pinned.folder)
    assert not unpacked.pinned
    assert unpacked.version == f"1.0+source.{unpacked.sha256[:8]}"
    assert unpacked.folder != pinned.folder

    repository = tmp_path / "repo" / "berkeley-function-call-leaderboard" / "toy_bench"
    for name, data in FILES.items():
        path = repository.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert fetch(NAME, VERSION, sha256, tmp_path / "repo").version == unpacked.version

    (repository / "checker.py").write_text("right = True\n")  # another checker is another source
    assert fetch(NAME, VERSION, sha256, repository).version != unpacked.version


def test_a_copied_source_outlives_the_folder_it_came_from(
    home: Path, wheel: Path, tmp_path: Path
) -> None:
    source = tmp_path / "mine" / "toy_bench"
    (source / "data").mkdir(parents=True)
    (source / "data" / "one.json").write_text("{}\n")
    copied = fetch(NAME, VERSION, "0" * 64, source)
    (source / "data" / "one.json").unlink()
    assert (copied.folder / "toy_bench/data/one.json").read_text() == "{}\n"


def test_a_folder_without_the_package_is_refused(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no toy_bench/ with its data/"):
        fetch(NAME, VERSION, "0" * 64, tmp_path)


def test_without_network_there_is_one_error_that_says_how_to_go_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError) as caught:
        fetch(NAME, VERSION, "0" * 64)
    assert "toy-bench 1.0 could not be downloaded" in caught.value.what
    assert "--source" in (caught.value.mend or "")
    assert "\n" not in caught.value.what


FETCH = """
import sys
from tasks.convert import fetch as fetching
if sys.argv[3] == "slow":
    import time, zipfile
    plain = zipfile.ZipFile.extract
    def extractall(self, path):
        for member in self.infolist():
            plain(self, member, path)
            print("unpacked", flush=True)
            time.sleep(60)
    zipfile.ZipFile.extractall = extractall
fetching.fetch("toy-bench", "1.0", sys.argv[1], sys.argv[2])
"""


def start(home: Path, wheel: Path, pace: str = "fast") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", FETCH, file_sha256(wheel), str(wheel), pace]
    return subprocess.Popen(
        command, env={**os.environ, "DYNO_HOME": str(home)}, stdout=subprocess.PIPE
    )


def test_two_processes_that_fetch_at_once_both_find_it_whole(home: Path, wheel: Path) -> None:
    both = [start(home, wheel), start(home, wheel)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert [path.name for path in (home / "downloads").iterdir()] == ["toy-bench-1.0"]


def test_a_kill_in_the_middle_leaves_no_half_package(home: Path, wheel: Path) -> None:
    process = start(home, wheel, "slow")
    assert process.stdout is not None
    assert process.stdout.readline() == b"unpacked\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not package_folder(NAME, VERSION).exists()
    assert len(list((home / "downloads").glob(".draft-*"))) == 1

    long_ago = time.time() - OLD_SECONDS - 1
    for draft in (home / "downloads").glob(".draft-*"):
        os.utime(draft, (long_ago, long_ago))
    fetch(NAME, VERSION, file_sha256(wheel), wheel)
    assert [path.name for path in (home / "downloads").iterdir()] == ["toy-bench-1.0"]
