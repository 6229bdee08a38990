"""What a person sees while a sweep runs: one line a cell, in place on a terminal, plain lines elsewhere.

The display is told of facts (`began`, `finished`, `graded`) by the flow and owns no truth: what it counts
is forgotten with it. In a Prefect worker, where nobody looks at a terminal, it logs to the flow run.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SAY_EVERY = 10.0
"""Seconds between two plain progress lines, where there is no terminal to redraw."""


@dataclass
class CellCount:
    """One cell's state, as far as the display knows it."""

    label: str
    planned: int
    done: int = 0
    reused: int = 0
    infra: int = 0
    solved: int | None = None
    graded: int = 0
    cost: float | None = None
    refused: str | None = None
    errors: dict[str, int] = field(default_factory=dict)


class Display:
    """The live account of one sweep.

    Args:
        say: where plain lines go.
        live: redraw a table in place (a terminal); otherwise a line now and then.
    """

    def __init__(self, say: Callable[[str], None] | None = None, live: bool | None = None) -> None:
        self._say = say or (lambda text: print(text, flush=True))
        self._live = sys.stdout.isatty() if live is None else live
        self._lock = threading.Lock()
        self._cells: list[CellCount] = []
        self._began = time.monotonic()
        self._said = 0.0
        self._last = (0, 0)
        self._note = ""
        self._fresh = 0
        self._screen: Any = None

    # ------------------------------------------------------------ facts

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._screen is not None:
            self._screen.console.print(text, markup=False, highlight=False)
        else:
            self._say(text)

    def note(self, text: str) -> None:
        """What is being done now; replaced by the next note."""
        self._note = text
        if self._screen is None:
            self._say(text)

    def began(self, labels: list[tuple[str, int, str | None]]) -> None:
        """The cells: label, planned attempts, reason of refusal."""
        self._cells = [CellCount(label, planned, refused=why) for label, planned, why in labels]
        self._began = time.monotonic()

    def reused(self, cell: int, count: int) -> None:
        """So many attempts of the cell were done before."""
        self._cells[cell].reused += count
        self._cells[cell].done += count

    def finished(self, cell: int, error_class: str | None, cost: float | None) -> None:
        """One attempt of the cell came to its end: with a result, or with an error class."""
        with self._lock:
            count = self._cells[cell]
            if error_class:
                count.infra += 1
                count.errors[error_class] = count.errors.get(error_class, 0) + 1
            else:
                count.done += 1
            self._fresh += 1
            if cost is not None:
                count.cost = (count.cost or 0.0) + cost
        self._tick()

    def graded(self, cell: int, solved: int, graded: int) -> None:
        """The cell has been graded."""
        self._cells[cell].solved, self._cells[cell].graded = solved, graded
        if self._fresh:
            self._tick(final=True)

    # ------------------------------------------------------------ drawing

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """While this lasts, the table is kept up to date on the terminal."""
        if not self._live:
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console()
        with Live(
            console=console, refresh_per_second=4, get_renderable=self._table, transient=True
        ) as screen:
            self._screen = screen
            try:
                yield
            finally:
                self._screen = None

    def _tick(self, final: bool = False) -> None:
        if self._live or not self._cells:
            return
        now = time.monotonic()
        with self._lock:
            if not final and now - self._said < SAY_EVERY:
                return
            self._said = now
            state = (sum(c.done for c in self._cells), sum(c.infra for c in self._cells))
            if state == self._last:  # nothing new since the last line
                return
            self._last = state
        self._say(self.line())

    def line(self) -> str:
        """The whole sweep in one line."""
        planned = sum(count.planned for count in self._cells)
        done = sum(count.done for count in self._cells)
        infra = sum(count.infra for count in self._cells)
        text = f"  {done}/{planned} attempts"
        if infra:
            text += f", {infra} infrastructure errors"
        return f"{text}, {self._pace()}"

    def _pace(self) -> str:
        seconds = time.monotonic() - self._began
        left = sum(c.planned - c.done - c.infra for c in self._cells if not c.refused)
        text = _clock(seconds)
        if self._fresh >= 5 and left > 0:
            text += f", about {_clock(left * seconds / self._fresh)} to go"
        return text

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, caption=f"{self._note} · {self._pace()}")
        table.caption_justify = "left"
        table.add_column("cell", overflow="ellipsis", no_wrap=True)
        for name in ("attempts", "solved", "infra", "cost"):
            table.add_column(name, justify="right", no_wrap=True)
        running = [c for c in self._cells if c.planned and c.done + c.infra < c.planned]
        shown = self._cells if len(self._cells) <= 24 else [*running[:20]]
        for count in shown:
            if count.refused:
                table.add_row(count.label, "refused", "", "", "", style="dim")
                continue
            solved = (
                f"{count.solved / count.graded:.3f}"
                if count.graded and count.solved is not None
                else ""
            )
            cost = "" if count.cost is None else f"${count.cost:.4f}"
            infra = str(count.infra) if count.infra else ""
            style = "dim" if count.done == 0 else ""
            table.add_row(
                count.label, f"{count.done}/{count.planned}", solved, infra, cost, style=style
            )
        if len(self._cells) > len(shown):
            table.add_row(
                f"… and {len(self._cells) - len(shown)} more cells", "", "", "", "", style="dim"
            )
        return table


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f} min"
