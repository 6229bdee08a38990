"""The ledgers of wide.yaml: what `read_ledger` reads, worked out from a ledger's name alone.

A ledger is the same for everybody and changes for nobody, so parts of a task cannot disturb each other,
and the sum that a part must come to is known without a table (`open_sum`).
"""

from __future__ import annotations

import random
import re

ENTRIES = 12
"""Lines of one ledger."""
GOODS = ("timber", "rope", "tar", "salt", "cloth", "iron", "wax", "grain")


def read_ledger(ledger: str) -> str:
    """The ledger as text: a line an entry, with day, goods, amount and whether it is open or void."""
    lines = [
        f"{day:02d}  {goods:<7}{amount:>5}  {state}"
        for day, goods, amount, state in entries(ledger)
    ]
    return "\n".join([f"Ledger {ledger}", *lines])


def open_sum(ledger: str) -> int:
    """What the open entries come to."""
    return sum(amount for _, _, amount, state in entries(ledger) if state == "open")


def entries(ledger: str) -> list[tuple[int, str, int, str]]:
    """Day, goods, amount and state of each entry.

    Raises:
        ValueError: no ledger has that name.
    """
    if not re.fullmatch(r"[A-X][0-9]{2}", ledger):
        raise ValueError(f"there is no ledger {ledger!r}; their names are like A07")
    chance = random.Random(f"wide/1/{ledger}")  # the same on every machine
    days = sorted(chance.sample(range(1, 29), ENTRIES))
    return [
        (day, chance.choice(GOODS), chance.randint(3, 480), chance.choice(("open", "open", "void")))
        for day in days
    ]
