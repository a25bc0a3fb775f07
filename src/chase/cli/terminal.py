"""Tables and consoles of the terminal. What people wrote is shown as it is: brackets and colons are no markup."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from chase.report.tables import ReportTable

NO_LIMIT = 10_000
EDGES = 2
"""What Rich leaves out when it measures a table with a box."""


def print_table(table: ReportTable, console: Console | None = None) -> None:
    """Print a table; words to the left, numbers to the right."""
    console = console or screen()
    title = Text(table.title, style="table.title") if table.title else None
    drawn = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for place, column in enumerate(table.columns):
        words = [word for text in (column, *(row[place] for row in table.texts)) for word in text.split()]
        width = min(40, max(map(len, words), default=1))  # a figure is never cut in two
        justify: Literal["left", "right"] = "left" if table.is_text(place) else "right"
        drawn.add_column(Text(column), justify=justify, min_width=width, overflow="fold")
    for row in table.texts:
        drawn.add_row(*map(Text, row))
    if least(drawn, console) + EDGES > console.width:  # a narrow terminal loses the lines, never a column
        drawn.box, drawn.pad_edge, drawn.collapse_padding = None, False, True
    console.print(drawn, width=max(console.width, least(drawn, console)), crop=False)


def least(drawn: RichTable, console: Console) -> int:
    """The fewest characters across that cut no figure."""
    return drawn.__rich_measure__(console, console.options.update(width=NO_LIMIT)).minimum


def screen() -> Console:
    """The standard output; where it is no terminal and says no width, wide enough to lose no column."""
    found = plain_console()
    return found if found.is_terminal or "COLUMNS" in os.environ else plain_console(width=200)


class PlainConsole(Console):
    """A console that leaves a closed output to ``main``; Rich would end with exit code 1."""

    def on_broken_pipe(self) -> None:
        """Called while a BrokenPipeError is handled."""
        raise


def plain_console(**options: Any) -> Console:
    """A console that shows text as it is: ``[/x]`` is no markup and ``:x:`` no emoji."""
    return PlainConsole(highlight=False, markup=False, emoji=False, **options)


def can_show(text: str) -> bool:
    """Whether the standard output can show these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def share_bar(share: float, width: int = 30) -> str:
    """A bar of which a share is filled."""
    full, empty = "█░" if can_show("█░") else "#."
    return (full * round(width * min(1.0, share))).ljust(width, empty)
