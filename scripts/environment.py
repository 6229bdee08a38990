"""Make `.venv` from the lock file, or say in one line what is missing and how to get it.

Runs on whatever `python3` is there, so it is written for old ones too; the standard library only. When
the lock file and pyproject.toml are the ones the environment was made from, it ends at once.
"""

import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
STAMP = os.path.join(VENV, "made-from")


def main():
    """Exit code 0 with a working .venv, else 2 with a line on what to do."""
    wanted = fingerprint()
    if read(STAMP) == wanted:
        return 0
    python = find_python()
    if python is None:
        found = ".".join(str(part) for part in sys.version_info[:2])
        return fail(
            "dyno needs Python 3.11 or newer; this is %s. Install one (Debian: apt-get install "
            "python3.11 python3.11-venv), or: make PYTHON=/path/to/python3.11 sweep" % found
        )
    say("making the environment in .venv from requirements.lock (about a minute, once)")
    probe = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True)
    if probe.returncode != 0:
        return fail(
            "the python3-venv package is missing. Debian: apt-get install python3-venv; then run "
            "the same command again"
        )
    if not os.path.exists(os.path.join(VENV, "bin", "pip")):
        shutil.rmtree(VENV, ignore_errors=True)
        made = subprocess.run([python, "-m", "venv", VENV])
        if made.returncode != 0:
            return fail("the environment could not be made in %s; see the lines above" % VENV)
    pip = [
        os.path.join(VENV, "bin", "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
    ]
    say("installing the locked packages, each checked against its hash")
    if subprocess.run(
        [*pip, "--require-hashes", "-r", os.path.join(ROOT, "requirements.lock")]
    ).returncode:
        return fail(
            "a package could not be installed; see the lines above (is the registry reached?)"
        )
    say("installing dyno itself")
    if subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT]).returncode:
        return fail("dyno could not be installed into .venv; see the lines above")
    with open(STAMP, "w") as file:
        file.write(wanted)
    return 0


def find_python():
    """This interpreter if it is new enough, else a newer one on PATH, else None."""
    if sys.version_info >= (3, 11):
        return sys.executable
    for name in ("python3.14", "python3.13", "python3.12", "python3.11"):
        if shutil.which(name):
            return name
    return None


def fingerprint():
    """A hash of what the environment is made from."""
    digest = hashlib.sha256()
    for name in ("requirements.lock", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read(path):
    """A small file's text; "" where there is none."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def say(text):
    """A line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(text):
    """Say what to do; exit code 2."""
    sys.stderr.write("dyno: " + text + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
