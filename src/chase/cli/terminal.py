"""Tables in the terminal."""

from __future__ import annotations

import os
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from chase.report.tables import ReportTable

NO_LIMIT = 10_000
EDGES = 2
"""What Rich leaves out when it measures a table with a box."""


def print_table(table: ReportTable, console: Console | None = None) -> None:
    """Print a table; words to the left, numbers to the right."""
    console = console or screen()
    drawn = RichTable(title=table.title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for place, column in enumerate(table.columns):
        words = [word for text in (column, *(row[place] for row in table.texts)) for word in text.split()]
        width = min(40, max(map(len, words), default=1))  # a figure is never cut in two
        justify: Literal["left", "right"] = "left" if table.is_text(place) else "right"
        drawn.add_column(column, justify=justify, min_width=width, overflow="fold")
    for row in table.texts:
        drawn.add_row(*row)
    if least(drawn, console) + EDGES > console.width:  # a narrow terminal loses the lines, never a column
        drawn.box, drawn.pad_edge, drawn.collapse_padding = None, False, True
    console.print(drawn, width=max(console.width, least(drawn, console)), crop=False)


def least(drawn: RichTable, console: Console) -> int:
    """The fewest characters across that cut no figure."""
    return drawn.__rich_measure__(console, console.options.update(width=NO_LIMIT)).minimum


def screen() -> Console:
    """The standard output; where it is no terminal and says no width, wide enough to lose no column."""
    found = Console(highlight=False)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=200)
