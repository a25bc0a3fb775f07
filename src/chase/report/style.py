"""How every figure looks: colours for all eyes, a line style and a marker per series, and ink that follows the page.

Figures are inline SVG with live text. Neutral strokes are drawn in two marker colours that become CSS
variables, so one figure serves the light page, the dark page and paper.
"""

from __future__ import annotations

import html
import io
import itertools
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from chase.core.pools import in_words

if TYPE_CHECKING:  # matplotlib takes most of a second to import: only where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

INK, GRID, PAPER = "#010203", "#040506", "#070809"
_FIRST = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c", INK, "#8f6b2e")
_MORE = ("#883355", "#8877ff", "#007777", "#99bb77", "#5511ee", "#774433")
COLOURS = (*_FIRST, *_MORE)
"""Okabe and Ito's, their black as the ink of the page; a brown for their yellow, which a light page swallows.

The others were searched for by machine: far from those nine and from each other for normal, red-blind and green-blind
eyes, with a contrast of two or more to the light and to the dark page.
"""
LINES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "d")
HATCHES = ("", "///", "xxx", "\\\\\\", "---", "|||", "+++")


@dataclass(frozen=True)
class Fill:
    """How an area is filled: hatched where its colour alone would not tell it apart in grey."""

    colour: str
    hatch: str = ""

    @classmethod
    def of(cls, number: int) -> Fill:
        """The n-th of several areas beside each other."""
        return cls(COLOURS[number % len(COLOURS)], HATCHES[number % len(HATCHES)])

    @property
    def options(self) -> dict[str, Any]:
        """As matplotlib takes it."""
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": PAPER, "linewidth": 0.4}


_FILLS = {
    "labeled": Fill("#0072b2"),
    "asked": Fill("#e69f00", "xxx"),
    "unlabeled": Fill("#9ad0f0"),
    "dormant": Fill("#9aa1a8", "///"),
    "set_aside": Fill("#cc79a7", "---"),
}
POOLS = {pool: (in_words(pool), fill) for pool, fill in _FILLS.items()}
"""Pools from the bottom of a stack to its top: what they are called and how they are filled."""

_VARIABLES = {INK: "var(--ink)", GRID: "var(--grid)", PAPER: "var(--paper)", "#0072b2": "var(--blue)"}

WIDTH, HEIGHT = 4.9, 3.0
"""Inches: two figures beside each other on a screen, one on a phone with text still readable."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "chase",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,
}

_numbers = itertools.count(1)


SERIES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (0, ("FedRandom", "random", "network, random")),
    (1, ("EV", "ev", "w/o CDB", "learned", "network, ev")),
    (2, ("CHASe", "chase", "FAmS", "CDB", "federation", "CHASe (mu = 0.3)", "network, chase")),
    (3, ("FedEntropy", "entropy", "closed-form, entropy")),
    (4, ("FAL(Entropy)", "entropy@global", "closed-form, margin")),
    (5, ("FedCoreset", "coreset", "CHASe, all-global", "closed-form, badge")),
    (6, ("FAL(Coreset)", "coreset@global", "isolated", "random each round", "closed-form, posterior")),
    (7, ("FedLL4AL", "ll4al", "CDB-Global", "CHASe (mu = 0)", "closed-form, typical")),
    (8, ("FAL(LL4AL)", "ll4al@global", "CDB-Local", "closed-form, balanced-margin")),
    (10, ("w/o S", "FAm", "closed-form, random")),
    (11, ("w/o FAm", "no FAm", "closed-form, ev")),
    (4, ("subset alone",)),
    (3, ("KAFAL (KSAS)", "ksas")),
    (9, ("no labels",)),
    (5, ("LoGo", "logo-chase")),
    (6, ("number-class", "ActiveLab decides")),
    (7, ("EV + GEV", "+gev", "new samples only")),
    (4, ("FEAL", "feal")),
    (7, ("FairFAL", "fairfal")),
    (13, ("IFAL", "ifal")),
    (12, ("network with closed-form head, random",)),
    (13, ("network with closed-form head, ev",)),
    (14, ("network with closed-form head, chase",)),
)
"""The colour of each method, which looks the same in every figure of every study.

Methods on one line never stand in one figure; those of one colour never in one study, so that fifteen are enough.
"""
NUMBERS = {label: number for number, (_, labels) in enumerate(SERIES) for label in labels}
_OF_OTHERS = [colour for number, colour in enumerate(COLOURS) if number != SERIES[NUMBERS["no labels"]][0]]
"""Colours of series by place: any study may have an arm without labels beside them."""


@dataclass(frozen=True)
class Look:
    """How a series is drawn: told apart by colour, by line and by marker."""

    colour: str
    line: Any
    marker: str

    @classmethod
    def of(cls, number: int) -> Look:
        """Repeats only after some hundred series."""
        return cls(*(kind[number % len(kind)] for kind in (COLOURS, LINES, MARKERS)))

    @classmethod
    def named(cls, label: str, place: int) -> Look:
        """A known method's own look; another's by its place among the series."""
        number = NUMBERS.get(label, len(SERIES) + place)
        colour = COLOURS[SERIES[number][0]] if label in NUMBERS else _OF_OTHERS[(2 + place) % len(_OF_OTHERS)]
        return replace(cls.of(number), colour=colour)


def new_axes(
    xlabel: str, ylabel: str, legend_rows: int = 0, width: float = WIDTH, height: float = HEIGHT
) -> tuple[Figure, Axes]:
    """An empty figure, taller by its legend; only for use within ``styled``."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height + 0.2 * legend_rows), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return figure, axes


def new_panels(count: int, columns: int, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels with the same axes, row by row; only for use within ``styled``."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    rows = -(-count // columns)
    found: list[Axes] = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for empty in found[count:]:
        empty.remove()
    for lowest in found[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)
    return figure, found[:count]


def styled() -> Any:
    """The context in which figures are made and written."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def ticks(most: int, whole: bool = False) -> MaxNLocator:
    """Where an axis of this many intervals at most has its ticks."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=most, integer=whole)


def linear_shades(top: float) -> Normalize:
    """Shades from 0 to this number."""
    from matplotlib.colors import Normalize

    return Normalize(0.0, top)


def logarithmic_shades(top: float) -> LogNorm:
    """Shades from 1 to this number, or to 2 if it is less."""
    from matplotlib.colors import LogNorm

    return LogNorm(1.0, max(2.0, top))


def legend_shape(labels: list[str], width: float = WIDTH) -> tuple[int, int]:
    """(columns, rows) of a legend above a figure of this width, in inches."""
    if len(labels) < 2:
        return 1, 0
    per_label = 0.62 + 0.082 * max(len(label) for label in labels)
    columns = max(1, min(len(labels), int((width - 0.3) / per_label)))
    return columns, -(-len(labels) // columns)


def add_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """The legend above the figure, left-aligned."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, borderpad=0, columnspacing=1.4)


def add_scale(figure: Figure, axes: Axes | list[Axes], shades: Any, unit: str) -> None:
    """The bar that tells what shades mean; its numbers are plain, also where they are powers of ten."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, NullFormatter

    bar = figure.colorbar(shades, ax=axes, pad=0.02, aspect=28, label=unit)
    bar.outline.set_edgecolor(GRID)
    bar.ax.tick_params(color=INK, which="both")
    if isinstance(shades.norm, LogNorm):
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())


def drawn(figure: Figure) -> str:
    """The figure as matplotlib writes it; its ``savefig`` writes the same, but draws everything twice."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer, canvas = io.StringIO(), cast(Any, FigureCanvasSVG(figure))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the text stays text: the browser has the letters
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def to_svg(figure: Figure, title: str) -> str:
    """The figure as SVG to stand in an HTML page, with ids of its own and a title for screen readers."""
    text = drawn(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    prefix = f"f{next(_numbers)}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text)
    text = re.sub(r"url\(#", f"url(#{prefix}", text)
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "var(--font)", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", text)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", text)
    named = html.escape(title, quote=True)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{named}" ', 1)
    return re.sub(r">\s+<", "><", text).strip()
