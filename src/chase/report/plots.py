"""Figures over methods, each an SVG string: lines with bands, stacks, bars, dots and heat maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from chase.report.runs import MethodRuns, Numbers, Quantity
from chase.report.statistics import interval_band
from chase.report.style import (
    HEIGHT,
    PAPER,
    Fill,
    Look,
    add_legend,
    add_scale,
    legend_shape,
    logarithmic_shades,
    new_axes,
    styled,
    ticks,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Spread = Callable[[Numbers], tuple[Numbers, Numbers]]


FEW_SEEDS = 4
"""Below this many seeds an interval would fill the frame: the curves of the single seeds are drawn instead."""


@dataclass(frozen=True)
class Curve:
    """One line and its band, or the lines of its single seeds."""

    label: str
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    each: Numbers | None = None
    """Few seeds: the values of each (seeds, places); the band is then the line itself."""

    @classmethod
    def over_seeds(cls, label: str, x: Numbers, values: Numbers, spread: Spread = interval_band) -> Curve:
        """The mean of values (seeds, places) with its band, or with each seed where there are few."""
        mean = values.mean(axis=0)
        if 1 < len(values) < FEW_SEEDS:
            return cls(label, x, mean, mean, mean, values)
        return cls(label, x, mean, *spread(values))

    def draw_spread(self, axes: Axes, colour: str, alpha: float) -> None:
        """The band, or a thin line per seed."""
        if self.each is None:
            axes.fill_between(self.x, self.low, self.high, color=colour, alpha=alpha, linewidth=0)
            return
        for values in self.each:
            axes.plot(self.x, values, color=colour, linewidth=0.7, alpha=0.55)


def says_spread(methods: Sequence[MethodRuns]) -> str:
    """What stands about a mean in a figure of these methods, as a sentence; empty for single runs."""
    counts = [len(method.runs) for method in methods if len(method.runs) > 1]
    few = "Thin lines are single seeds, the thick line is their mean." if any(c < FEW_SEEDS for c in counts) else ""
    many = "Bands are 95 % intervals of the mean over seeds." if any(c >= FEW_SEEDS for c in counts) else ""
    return " ".join(part for part in (many, few) if part)


def curve(
    method: MethodRuns, x: Quantity, y: Quantity, spread: Spread = interval_band, merge: float = 0.0
) -> Curve | None:
    """The mean of ``y`` over a method's runs against the mean of ``x``, round by round; None without a value.

    Of neighbours nearer than ``merge`` times the range of x the last is kept: rounds that cost no label would
    draw an upright line.
    """
    ys, xs = method.table(y), method.table(x)
    known: NDArray[np.bool_] = np.isfinite(np.concatenate([xs, ys])).all(axis=0)
    if not known.any():
        return None
    known[known] = last_of_near(xs[:, known].mean(axis=0), merge)
    return Curve.over_seeds(method.label, xs[:, known].mean(axis=0), ys[:, known], spread)


def last_of_near(x: Numbers, merge: float) -> NDArray[np.bool_]:
    """Which places of rising x are the last before a step of more than ``merge`` times its range."""
    keep = np.ones(x.size, dtype=np.bool_)
    keep[:-1] = np.diff(x) > merge * (x[-1] - x[0])
    return keep


WHOLE = ("round", "labels given on request")
"""Axes that count."""


def lines(title: str, xlabel: str, ylabel: str, curves: Sequence[Curve | None], from_zero: bool = False) -> str:
    """Lines with bands; a curve that is None keeps its place, so a method looks the same in every figure."""
    drawn = [(Look.named(c.label, i), c) for i, c in enumerate(curves) if c is not None]
    columns, rows = legend_shape([c.label for _, c in drawn])
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        for place, (look, c) in enumerate(drawn):
            every = max(1, c.x.size // 8)
            start = (place * every) // max(1, len(drawn)) if c.x.size > 8 else 0
            c.draw_spread(axes, look.colour, band_alpha(len(drawn)))
            axes.plot(
                c.x,
                c.mean,
                color=look.colour,
                linestyle=look.line,
                marker=look.marker,
                markevery=(start, every),
                markeredgecolor=PAPER,
                markeredgewidth=0.5,
                label=c.label,
            )
        axes.xaxis.set_major_locator(ticks(7, whole=xlabel in WHOLE))
        axes.yaxis.set_major_locator(ticks(6))
        axes.margins(x=0.02)
        keep_means_readable(axes, [c for _, c in drawn])
        keep_percent(axes, ylabel)
        if from_zero:
            axes.set_ylim(bottom=0)
        tell_of_cuts(axes, "bands", from_zero or ylabel.endswith("(%)"))
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def band_alpha(many: int) -> float:
    """How dense a band is drawn: many on top of each other would hide the lines."""
    return min(0.16, 0.64 / many)


def keep_percent(axes: Axes, ylabel: str) -> None:
    """Let an axis of percentages end at 0 and 100, whatever intervals reach."""
    if ylabel.endswith("(%)"):
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -1.0), min(high, 101.0))


def keep_means_readable(axes: Axes, curves: Sequence[Curve], room: float = 0.8, least: float = 0.0) -> None:
    """Let bands reach at most ``room`` times the range of the lines beyond them, or ``least``: few seeds, wide ones."""
    low, high = axes.get_ylim()
    bottom, top = (pick([pick(c.mean if c.each is None else c.each) for c in curves]) for pick in (np.min, np.max))
    span = float(top - bottom) or 0.1 * abs(float(top)) or 1.0
    reach = max(room * span, least)
    axes.set_ylim(max(low, float(bottom) - reach), min(high, float(top) + reach))


def tell_of_cuts(axes: Axes, what: str, from_zero: bool = False) -> None:
    """Say above the axes that bands or bars extend beyond the frame, where they do and values can be there."""
    drawn, (left, right), (bottom, top) = axes.dataLim, axes.get_xlim(), axes.get_ylim()
    low = max(drawn.y0, 0.0) if from_zero else drawn.y0
    high = min(drawn.y1, 100.0) if axes.get_ylabel().endswith("(%)") else drawn.y1
    if low < bottom or high > top or drawn.x1 > right or max(drawn.x0, 0.0) < left:
        axes.set_title(f"some {what} extend beyond the frame", loc="right", fontsize=8)


@dataclass(frozen=True)
class Layer:
    """One part of a stack."""

    label: str
    values: Numbers
    fill: Fill


def with_something(layers: Sequence[Layer]) -> list[Layer]:
    """The layers that are not empty; all of them if every one is."""
    return [layer for layer in layers if np.any(layer.values > 0)] or list(layers)


def stack(title: str, xlabel: str, ylabel: str, x: Numbers, layers: Sequence[Layer]) -> str:
    """Areas on top of each other; a single x becomes one bar."""
    shown = with_something(layers)
    columns, rows = legend_shape([layer.label for layer in shown])
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        base = np.zeros_like(x)
        for layer in shown:
            top = base + layer.values
            if x.size == 1:
                axes.bar(x, layer.values, bottom=base, width=0.5, label=layer.label, **layer.fill.options)
            else:
                axes.fill_between(x, base, top, label=layer.label, **layer.fill.options)
            base = top
        axes.xaxis.set_major_locator(ticks(7, whole=True))
        axes.margins(x=0.5 if x.size == 1 else 0, y=0)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def bars(title: str, xlabel: str, ylabel: str, names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Upright bars of several parts, one bar a name."""
    shown, crowded = with_something(layers), len(names) > 40
    columns, rows = legend_shape([layer.label for layer in shown])
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        base, at = np.zeros(len(names)), np.arange(len(names))
        for layer in shown:
            look = layer.fill.options | ({"linewidth": 0} if crowded else {})
            axes.bar(at, layer.values, bottom=base, width=1.0 if crowded else 0.78, label=layer.label, **look)
            base = base + layer.values
        name_ticks(axes, names)
        axes.grid(axis="x", visible=False)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def lying_bars(title: str, xlabel: str, names: Sequence[str], layers: Sequence[Layer]) -> str:
    """Lying bars of several parts, one bar a name, the first on top."""
    columns, rows = legend_shape([layer.label for layer in layers])
    with styled():
        figure, axes = new_axes(xlabel, "", rows, height=max(HEIGHT, 0.9 + 0.34 * len(names)))
        base, at = np.zeros(len(names)), np.arange(len(names))
        for layer in layers:
            axes.barh(at, layer.values, left=base, height=0.6, label=layer.label, **layer.fill.options)
            base = base + layer.values
        axes.set_yticks(at, [shorten(name) for name in names])
        axes.set_ylim(max(len(names), 3) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def dots(title: str, xlabel: str, ylabel: str, names: Sequence[str], values: Mapping[str, Numbers]) -> str:
    """A marker a method above each name, side by side."""
    columns, rows = legend_shape(list(values))
    with styled():
        figure, axes = new_axes(xlabel, ylabel, rows)
        at = np.arange(len(names))
        step = 0.5 / max(1, len(values) - 1)
        for i, (label, y) in enumerate(values.items()):
            look, shift = Look.named(label, i), (i - (len(values) - 1) / 2) * step
            axes.plot(at + shift, y, look.marker, color=look.colour, label=label)
        name_ticks(axes, names)
        axes.set_xlim(-0.6, len(names) - 0.4)
        low, high = axes.get_ylim()
        low = min(0.0, float(low))
        axes.set_ylim(low, high + 0.05 * (high - low))  # no marker is cut
        add_legend(figure, axes, columns)
        return to_svg(figure, title)


def heat_map(
    title: str, xlabel: str, ylabel: str, names: Sequence[str], x: Numbers, values: Numbers, unit: str, top: float
) -> str:
    """Values (names, x) by shade; cividis reads the same in grey and to colour-blind readers."""
    with styled():
        figure, axes = new_axes(xlabel, ylabel, height=max(2.4, min(6.0, 1.0 + 0.16 * len(names))))
        half = 0.5 if x.size < 2 else 0.5 * float(np.diff(x).min())
        extent = (float(x[0]) - half, float(x[-1]) + half, len(names) - 0.5, -0.5)
        shades = axes.imshow(
            values, aspect="auto", interpolation="nearest", cmap="cividis", vmin=0.0, vmax=top, extent=extent
        )
        axes.grid(visible=False)
        axes.xaxis.set_major_locator(ticks(7, whole=True))
        step = max(1, -(-len(names) // 25))
        axes.set_yticks(range(0, len(names), step), [shorten(n, 14) for n in names[::step]])
        add_scale(figure, axes, shades, unit)
        return to_svg(figure, title)


def count_map(title: str, clients: Sequence[str], classes: Sequence[str], counts: Numbers) -> str:
    """Counts (clients, classes) by shade on a logarithmic scale; what is not there at all stays blank."""
    with styled():
        figure, axes = new_axes("class", "client", height=max(2.4, min(6.0, 1.2 + 0.16 * len(clients))))
        shades = axes.imshow(
            np.ma.masked_less(counts, 1),
            aspect="auto",
            interpolation="nearest",
            cmap="cividis",
            norm=logarithmic_shades(float(counts.max())),
        )
        axes.grid(visible=False)
        name_ticks(axes, [name if name.strip() else repr(name) for name in classes])
        step = max(1, -(-len(clients) // 25))
        axes.set_yticks(range(0, len(clients), step), [keep_end(n) for n in clients[::step]])
        add_scale(figure, axes, shades, "samples")
        return to_svg(figure, title)


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Names below an axis: all of them, or every few where they would touch."""
    room = 46
    longest = max((len(name) for name in names), default=1)
    turned = longest * len(names) > room and longest > 3
    step = max(1, -(-len(names) // (24 if turned else 16)))
    axes.set_xticks(range(0, len(names), step), [shorten(name, 16) for name in names[::step]])
    if turned:
        axes.tick_params(axis="x", labelrotation=90 if len(names) > 12 else 45)


def shorten(name: str, most: int = 26) -> str:
    """A name that fits beside an axis, on one line."""
    name = on_one_line(name)
    return name if len(name) <= most else name[: most - 1] + "…"


def on_one_line(name: str) -> str:
    """A name without breaks."""
    return name.replace("\n", "⏎").replace("\t", "⇥")


def keep_end(name: str, most: int = 20) -> str:
    """A client's name that fits beside an axis; owners' names often begin alike."""
    name = on_one_line(name)
    return name if len(name) <= most else "…" + name[1 - most :]
