"""Typed cells of tables: a number stays a number until a table is shown or written.

CSV takes ``exact``; the terminal, HTML, Markdown and LaTeX take the text, rounded as the cell says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from chase.report.runs import Numbers
from chase.report.statistics import Interval

NONE = "–"
"""What stands where nothing was measured."""


@dataclass(frozen=True)
class Spread:
    """What lies about a number: the ends of its interval, or the lowest and the highest of its values."""

    low: float
    high: float
    kind: Literal["interval", "range"]


@dataclass(frozen=True)
class Number:
    """A number in the unit of its column, and how it is shown."""

    value: float | None
    digits: int = 2
    spread: Spread | None = None
    signed: bool = False
    """Show a plus before what is above 0."""
    least: float = 0.0
    """What is smaller is shown as "< least"."""
    unit: str = ""

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.value is not None and bool(np.isfinite(self.value))

    @property
    def head(self) -> str:
        """The number as it is shown, thousands marked; a dash for none."""
        if self.value is None or not self.known:
            return NONE
        if 0 <= self.value < self.least / 2:
            return f"< {self.least:g}"
        return self._shown(self.value) + self.unit

    @property
    def tail(self) -> str:
        """What stands in brackets after it, brackets included; empty where there is nothing to say."""
        if not self.known or self.spread is None:
            return ""
        low, high = self._shown(self.spread.low), self._shown(self.spread.high)
        if self.spread.kind == "range":
            return "" if low == high else f"({low}–{high})"
        return f"({low} to {high})"

    def _shown(self, value: float) -> str:
        rounded = round(value, self.digits) + 0.0  # never "-0"
        return f"{rounded:{'+' if self.signed and rounded else ''},.{self.digits}f}"

    def __str__(self) -> str:
        return f"{self.head} {self.tail}".rstrip()


Cell = str | int | Number


def exact(value: float | None) -> str:
    """Every digit of a number, for a program to read; empty for none."""
    if value is None or not np.isfinite(value):
        return ""
    return f"{value:.0f}" if float(value).is_integer() else repr(float(value))


def number(value: float | None, digits: int = 2, scale: float = 1.0) -> Number:
    """A number, in the unit of its column after ``scale``."""
    return Number(None if value is None else scale * value, digits)


def mean_and_range(values: Numbers, digits: int = 2, scale: float = 1.0) -> Number:
    """The mean and, over several runs, the smallest and largest: ``83.1 (82.0–84.2)``."""
    known = scale * values[np.isfinite(values)]
    if not known.size:
        return Number(None, digits)
    spread = Spread(float(known.min()), float(known.max()), "range") if known.size > 1 else None
    return Number(float(known.mean()), digits, spread)


def with_interval(found: Interval, digits: int = 1, signed: bool = False) -> Number:
    """``83.1 (82.0 to 84.2)``; the mean alone for one seed, a dash for none."""
    if not found.count:
        return Number(None, digits)
    spread = Spread(found.low, found.high, "interval") if found.count > 1 else None
    return Number(found.mean, digits, spread, signed)


def p_value(p: float | None) -> Number:
    """Three digits of a p; a dash where nothing was tested."""
    return Number(p, 3, least=0.001)
