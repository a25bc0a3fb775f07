"""The coverage table that is shown before a run."""

from __future__ import annotations

import numpy as np
from rich.table import Table
from rich.text import Text

from chase.cli.terminal import plain_console
from chase.data.coverage import Coverage

FEW = 20
"""Up to this many clients get a row each; more are summed up."""


def class_list(table: Coverage, client: int, limit: int = 6) -> str:
    """The classes that a client holds, largest first."""
    held = table.held[client]
    order = [int(c) for c in np.argsort(-held, kind="stable") if held[c]]
    names = [table.classes[c] if table.classes[c].strip() else repr(table.classes[c]) for c in order[:limit]]
    return " ".join(names) + (f" +{len(order) - limit}" if len(order) > limit else "")


def coverage_table(table: Coverage) -> Table:
    """Samples, classes and labelled count per client; the smallest, middle and largest of many."""
    out = Table(box=None, padding=(0, 2))
    labeled = table.labeled.sum(axis=1)
    if len(table.clients) > FEW:
        for title in (f"{len(table.clients)} clients", "least", "median", "most"):
            out.add_column(title, justify="right")
        for name, values in (("samples", table.samples), ("classes", table.classes_held), ("labelled", labeled)):
            out.add_row(name, str(values.min()), f"{np.median(values):.0f}", str(values.max()))
        return out
    longest = max(len(name) for name in ("client", *table.clients))
    out.add_column("client", justify="right", no_wrap=True, min_width=min(32, longest), max_width=32)
    for title in ("samples", "classes", "labelled"):
        out.add_column(title, justify="right", no_wrap=True, min_width=len(title))
    out.add_column("holds", no_wrap=True, overflow="ellipsis")
    for client, name in enumerate(table.clients):
        numbers = (table.samples[client], table.classes_held[client], labeled[client])
        out.add_row(Text(name), *(str(number) for number in numbers), Text(class_list(table, client)))
    return out


def show_coverage(table: Coverage, notes: list[str]) -> None:
    """Print the table and what is wrong."""
    console = plain_console(soft_wrap=True)
    console.print(coverage_table(table))
    for note in notes:
        console.print(f"warning: {note}")
