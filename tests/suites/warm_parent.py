"""A process that imports what a warm harness names and forks once for each launch, as dyno's launcher does.

warm_parent.py SCRIPT IMPORT …      one JSON line a launch: {argv, env, folder} → {code, cpu_seconds}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path


def launch(script: str, order: dict[str, object]) -> None:
    """Become the harness; never returns."""
    folder = Path(str(order["folder"]))
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    sys.argv = [script, *order["argv"]]  # type: ignore[misc]
    runpy.run_path(script, run_name="__main__")


def main() -> None:
    script, *imports = sys.argv[1:]
    for name in imports:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                launch(script, json.loads(line))
            finally:
                os._exit(99)
        _, status, used = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"code": code, "cpu_seconds": used.ru_utime + used.ru_stime}), flush=True)


if __name__ == "__main__":
    main()
