"""HTML from the templates beside this file; whatever is no markup is escaped."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from chase.report.cells import Cell, Number
from chase.report.tables import ReportTable

__all__ = ["Markup", "html_figure", "html_table", "markup", "together"]


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("chase.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def markup(template: str, **values: object) -> Markup:
    """A template with its values."""
    return Markup(_templates().get_template(f"{template}.html").render(**values).strip())


def together(parts: list[Markup]) -> Markup:
    """Pieces of a page one after another."""
    return Markup("\n").join(parts)


def html_table(table: ReportTable, note: str = "") -> Markup:
    """A table that scrolls sideways where it is wider than the screen."""
    kinds = ["word" if table.is_text(i) else "number" for i in range(len(table.columns))]
    rows = [[(kind, *_parts(cell)) for kind, cell in zip(kinds, row, strict=True)] for row in table.rows]
    columns = list(zip(kinds, table.columns, strict=True))
    return markup("table", title=table.title, columns=columns, rows=rows, note=note)


def _parts(cell: Cell) -> tuple[str, str]:
    """The text of a cell, and the spread that goes below it."""
    return (cell.head, cell.tail) if isinstance(cell, Number) else (str(cell), "")


def html_figure(svg: str, title: str, caption: str = "") -> Markup:
    """A figure with its heading and what it shows."""
    return markup("figure", svg=Markup(svg), title=title, caption=caption)
