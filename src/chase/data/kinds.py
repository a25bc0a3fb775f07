"""The kinds of samples and the columns of tables, apart from ``resident``: the labelling page needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

Kind = Literal["image", "text", "vectors", "table"]
KINDS: tuple[Kind, ...] = ("image", "text", "vectors", "table")


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: Literal["numeric", "categorical"] = "numeric"
    values: tuple[str, ...] = ()
    """The categories of a categorical column; a cell holds the number of its category, NaN if it has none."""

    @property
    def width(self) -> int:
        """Numbers that a network sees of it: value and "is missing", or one per category."""
        return len(self.values) if self.kind == "categorical" else 2

    def to_json(self) -> dict[str, Any]:
        """For a file or a message."""
        return {"name": self.name, "kind": self.kind, "values": list(self.values)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Column:
        """The column that ``to_json`` described."""
        return cls(body["name"], body["kind"], tuple(body["values"]))


def row_cells(row: NDArray[Any], columns: tuple[Column, ...] = ()) -> list[tuple[str, str]]:
    """A row of a table as a person reads it: name and value of each column; of a vector the numbers."""
    if not columns:
        return [(str(at), f"{value:.6g}") for at, value in enumerate(row.tolist())]
    cells = []
    for column, value in zip(columns, row.tolist(), strict=True):
        missing = value != value
        shown = column.values[int(value)] if column.values and not missing else f"{value:.7g}"
        cells.append((column.name, "(missing)" if missing else shown))
    return cells
