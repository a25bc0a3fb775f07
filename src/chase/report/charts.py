"""Further figures: named matrices by shade, and points with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import MaxNLocator

from chase.report.plots import Curve, keep_means_readable, name_ticks, shorten
from chase.report.runs import Numbers
from chase.report.statistics import Interval
from chase.report.style import GRID, INK, Look, add_legend, legend_shape, new_axes, styled, to_svg

ROOM = 3.0
"""How far bands about zero may reach beyond the lines, in times their range."""
FEW = 12
"""Up to this many rows and columns the values stand in their cells."""


def matrix(
    title: str,
    axes_names: tuple[str, str],
    x: Sequence[str],
    y: Sequence[str],
    values: Numbers,
    unit: str,
    logarithmic: bool = False,
) -> str:
    """Values (y, x) by shade; cividis reads the same in grey and to colour-blind readers."""
    with styled():
        figure, axes = new_axes(*axes_names, height=max(2.6, min(6.0, 1.1 + 0.2 * len(y))))
        shown = np.where(values > 0, values, np.nan) if logarithmic else values
        top = float(np.nanmax(values)) if values.size and np.isfinite(values).any() else 1.0
        scale = LogNorm(1, max(2.0, top)) if logarithmic else Normalize(0.0, top or 1.0)
        shades = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="cividis", norm=scale)
        axes.grid(visible=False)
        name_ticks(axes, x)
        step = max(1, -(-len(y) // 25))
        axes.set_yticks(range(0, len(y), step), [shorten(name, 14) for name in y[::step]])
        if max(len(x), len(y)) <= FEW:
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value) and value:
                    ink = "#111111" if value > 0.55 * top else "#ffffff"
                    axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)
        bar = figure.colorbar(shades, ax=axes, pad=0.02, aspect=28, label=unit)
        bar.outline.set_edgecolor(GRID)
        bar.ax.tick_params(color=INK)
        return to_svg(figure, title)


@dataclass(frozen=True)
class Point:
    """A method in a figure of one quantity against another."""

    label: str
    x: Interval
    y: Interval


def _half(found: Interval) -> float:
    return found.mean - found.low if found.count > 1 else 0.0


def points(title: str, xlabel: str, ylabel: str, marks: Sequence[Point]) -> str:
    """A marker a method with its intervals in both directions."""
    columns, rows = legend_shape([mark.label for mark in marks])
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        for place, mark in enumerate(marks):
            look = Look.of(place)
            axes.errorbar(
                mark.x.mean,
                mark.y.mean,
                xerr=_half(mark.x),
                yerr=_half(mark.y),
                fmt=look.marker,
                color=look.colour,
                markersize=7,
                elinewidth=1.1,
                capsize=2.5,
                label=mark.label,
            )
        axes.margins(0.12)
        axes.set_xlim(left=0)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def differences(title: str, ylabel: str, curves: Sequence[Curve | None]) -> str:
    """Lines with bands about zero; a curve that is None keeps its place."""
    drawn = [(Look.of(place), c) for place, c in enumerate(curves) if c is not None]
    columns, rows = legend_shape([c.label for _, c in drawn])
    with styled():
        figure, axes = new_axes("round", ylabel, rows)
        axes.axhline(0.0, color=INK, linewidth=1.0)
        for look, c in drawn:
            axes.fill_between(c.x, c.low, c.high, color=look.colour, alpha=0.16, linewidth=0)
            every = max(1, c.x.size // 8)
            axes.plot(
                c.x, c.mean, color=look.colour, linestyle=look.line, marker=look.marker, markevery=every, label=c.label
            )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.margins(x=0.02)
        keep_means_readable(axes, [c for _, c in drawn], ROOM)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)
