"""Further figures: named matrices by shade, and points with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chase.report.plots import (
    Curve,
    band_alpha,
    keep_end,
    keep_means_readable,
    keep_percent,
    name_ticks,
    shorten,
    tell_of_cuts,
)
from chase.report.runs import Numbers
from chase.report.statistics import Interval
from chase.report.style import (
    INK,
    Look,
    add_legend,
    add_scale,
    legend_shape,
    linear_shades,
    logarithmic_shades,
    new_axes,
    new_panels,
    styled,
    ticks,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        scale = logarithmic_shades(top) if logarithmic else linear_shades(top or 1.0)
        shades = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap="cividis", norm=scale)
        axes.grid(visible=False)
        name_ticks(axes, x)
        step = max(1, -(-len(y) // 25))
        axes.set_yticks(range(0, len(y), step), [keep_end(name) for name in y[::step]])
        if max(len(x), len(y)) <= FEW:
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value) and value:
                    ink = "#111111" if value > 0.55 * top else "#ffffff"
                    axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)
        add_scale(figure, axes, shades, unit)
        return to_svg(figure, title)


PANELS, NAMED = 4, 12
"""Small maps beside each other, and up to how many rows each of them is named."""


def small_maps(
    title: str, axes_names: tuple[str, str], x: Numbers, rows: Sequence[str], maps: Mapping[str, Numbers], unit: str
) -> str:
    """A small map of percentages (rows, x) by shade for each name; blank where there is no value."""
    columns, each = min(PANELS, len(maps)), max(0.8, min(1.7, 0.3 + 0.085 * len(rows)))
    half = 0.5 if x.size < 2 else 0.5 * float(np.diff(x).min())
    extent = (float(x[0]) - half, float(x[-1]) + half, len(rows) - 0.5, -0.5)
    step = max(1, -(-len(rows) // NAMED))
    shade = linear_shades(max(float(np.nanmax(values, initial=0.0)) for values in maps.values()) or 100.0)
    with styled():
        figure, panels = new_panels(len(maps), columns, height=0.6 + (each + 0.25) * -(-len(maps) // columns))
        for axes, (name, values) in zip(panels, maps.items(), strict=True):
            shades = axes.imshow(
                values, aspect="auto", interpolation="nearest", cmap="cividis", norm=shade, extent=extent
            )
            axes.grid(visible=False)
            axes.set_title(keep_end(name, 16), fontsize=8, pad=3)
            axes.xaxis.set_major_locator(ticks(3, whole=True))
            axes.set_yticks(range(0, len(rows), step), [shorten(row, 10) for row in rows[::step]])
            axes.tick_params(labelsize=7)
        figure.supxlabel(axes_names[0], fontsize=9.5)
        figure.supylabel(axes_names[1], fontsize=9.5)
        add_scale(figure, panels, shades, unit)
        return to_svg(figure, title)


@dataclass(frozen=True)
class Point:
    """A method in a figure of one quantity against another."""

    label: str
    x: Interval
    y: Interval


def _half(found: Interval) -> float:
    return found.mean - found.low if found.count > 1 else 0.0


def keep_near(axes: Axes, found: Sequence[Interval]) -> None:
    """Let bars reach only so far beyond the means: those of two seeds can be longer than any scale."""
    means = np.array([f.mean for f in found if f.count])
    if means.size:
        flat = Curve("", means, means, means, means)
        keep_means_readable(axes, [flat], ROOM, least=10.0)


def points(title: str, xlabel: str, ylabel: str, marks: Sequence[Point]) -> str:
    """A marker a method with its intervals in both directions."""
    columns, rows = legend_shape([mark.label for mark in marks])
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        for place, mark in enumerate(marks):
            look = Look.named(mark.label, place)
            x, y, across, up = mark.x.mean, mark.y.mean, _half(mark.x), _half(mark.y)
            axes.errorbar(x, y, up, across, fmt="none", ecolor=look.colour, elinewidth=1.1, capsize=2.5)
            axes.plot(x, y, look.marker, color=look.colour, markersize=7, clip_on=False, label=mark.label)
        axes.margins(0.12)
        keep_near(axes, [mark.y for mark in marks])
        keep_percent(axes, ylabel)
        _, right = axes.get_xlim()
        axes.set_xlim(0, min(right, 1.6 * max((mark.x.mean for mark in marks), default=right)) or 1.0)
        tell_of_cuts(axes, "bars", from_zero=True)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


@dataclass(frozen=True)
class Series:
    """One quantity at places, with intervals."""

    label: str
    at: Sequence[float]
    found: Sequence[Interval]


APART = 0.02
"""How far apart series stand at a place, as a share of the axis: their bars would lie on each other."""


def values(
    title: str, ylabel: str, xlabel: str, names: Sequence[str], at: Sequence[float], lines: Sequence[Series]
) -> str:
    """Quantities at named places, with intervals; a legend where there are several.

    Lines join them along a quantity (``xlabel``); names without one, such as methods, stand by themselves.
    """
    several = len(lines) > 1
    columns, rows = legend_shape([series.label for series in lines]) if several else (1, 0)
    width = (max(at) - min(at)) * APART if at else 0.0
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        for place, series in enumerate(lines):
            look = Look.named(series.label, place)
            axes.errorbar(
                [x + (place - (len(lines) - 1) / 2) * width for x in series.at],
                [f.mean for f in series.found],
                yerr=[_half(f) for f in series.found],
                linestyle=look.line if xlabel else "none",
                marker=look.marker,
                color=look.colour,
                markersize=6,
                linewidth=1.2,
                elinewidth=1.1,
                capsize=3,
                label=series.label,
            )
        keep_near(axes, [f for series in lines for f in series.found])
        keep_percent(axes, ylabel)
        axes.set_xticks(list(at), [shorten(name, 20) for name in names])
        if not xlabel and sum(map(len, names)) > 40:
            for label in axes.get_xticklabels():
                label.set(rotation=30, ha="right", rotation_mode="anchor")
        axes.margins(x=0.08)
        tell_of_cuts(axes, "bars", from_zero=True)
        if several:
            add_legend(figure, axes, columns)
        return to_svg(figure, title)


def reliability(title: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Accuracy against confidence in bins, a line per method, and the diagonal of a calibrated model."""
    columns, rows = legend_shape(list(found))
    with styled():
        figure, axes = new_axes("mean confidence (%)", "accuracy (%)", rows)
        axes.plot([0, 100], [0, 100], color=INK, linewidth=0.8, linestyle=":")
        for place, (label, bins) in enumerate(found.items()):
            look = Look.named(label, place)
            axes.plot(
                [100 * row["confidence"] for row in bins],
                [100 * row["accuracy"] for row in bins],
                color=look.colour,
                linestyle=look.line,
                marker=look.marker,
                label=label,
            )
        axes.set_xlim(-2, 102)
        axes.set_ylim(-2, 102)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def differences(title: str, ylabel: str, curves: Sequence[Curve | None]) -> str:
    """Lines with bands about zero; a curve that is None keeps its place."""
    drawn = [(Look.named(c.label, place), c) for place, c in enumerate(curves) if c is not None]
    columns, rows = legend_shape([c.label for _, c in drawn])
    with styled():
        figure, axes = new_axes("round", ylabel, rows)
        axes.axhline(0.0, color=INK, linewidth=1.0)
        for look, c in drawn:
            c.draw_spread(axes, look.colour, band_alpha(len(drawn)))
            every = max(1, c.x.size // 8)
            axes.plot(
                c.x, c.mean, color=look.colour, linestyle=look.line, marker=look.marker, markevery=every, label=c.label
            )
        axes.xaxis.set_major_locator(ticks(7, whole=True))
        axes.margins(x=0.02)
        keep_means_readable(axes, [c for _, c in drawn], ROOM)
        tell_of_cuts(axes, "bands")
        add_legend(figure, axes, columns)
        return to_svg(figure, title)
