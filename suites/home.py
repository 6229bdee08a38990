"""Where things live: the project (read-only at run time) and DYNO_HOME (all that is generated).

DYNO_HOME/                (default: .dyno/ in the clone; the environment variable moves it)
  downloads/              fetched packages, by name and hash
  harnesses/<name>/       installed programs of harnesses, in bin/ or node_modules/.bin/
  suites/<name>/          converted suites: suite.yaml, tasks.jsonl, omitted.jsonl
  evidence/               the only truth; another root by DYNO_EVIDENCE, to share it between hosts
    attempts/<kk>/<key>/  one folder an attempt key (see warehouse/evidence.py)
    sweeps/<id>.json      what each sweep planned
    suites/<digest>/      the suites that sweeps ran, as they were
  shards/                 a cache of evidence rows for loading
  warehouse.duckdb        the published index (rebuildable)
  prefect/                the local Prefect server's database, logs, results
"""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def dyno_home() -> Path:
    """The state folder, absolute; not created here."""
    return Path(os.environ.get("DYNO_HOME") or PROJECT / ".dyno").absolute()


def evidence_root() -> Path:
    """The evidence folder: DYNO_EVIDENCE if set, else `evidence/` in DYNO_HOME."""
    chosen = os.environ.get("DYNO_EVIDENCE")
    return Path(chosen).absolute() if chosen else dyno_home() / "evidence"
