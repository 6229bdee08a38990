"""A terminal picture from what a command really printed: the text stays text, and nothing is fetched.

    script -qc "stty cols 92; dyno scorecard smoke" /dev/null |
        python docs/pictures/draw.py "dyno scorecard smoke" docs/pictures/scorecard.svg 92

Arguments: the title (the command line), the SVG file, the columns the command was given.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Rich names a font by a web address; a picture must not ask anybody for anything."""


def draw(title: str, text: str, columns: int) -> str:
    """The SVG of a terminal that shows `text` (with its ANSI colours)."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text.replace("\r", "").rstrip("\n")), soft_wrap=False)
    svg = FONT.sub("", console.export_svg(title=title, unique_id="dyno"))
    return svg.replace(
        "font-family: Fira Code, monospace", "font-family: Menlo, Consolas, monospace"
    )


if __name__ == "__main__":
    title, target, columns = sys.argv[1:]
    Path(target).write_text(draw(title, sys.stdin.read(), int(columns)), "utf-8")
