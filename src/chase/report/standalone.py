"""Figures of a page as files of their own."""

from __future__ import annotations

import re

from chase.report.style import GRID, INK, PAPER

LIGHT = {"var(--ink)": "#1c2127", "var(--grid)": "#dfe3e8", "var(--paper)": "#ffffff", INK: "#1c2127"}
LIGHT |= {GRID: "#dfe3e8", PAPER: "#ffffff", "var(--font)": "sans-serif", "var(--blue)": "#0072b2"}
SHOWN = 1.3
"""Pixels a point: two figures stand beside each other on a page."""


def standalone(svg: str) -> str:
    """A figure of a page as a file of its own: light colours, ids that never change, and the names that SVG needs."""
    for variable, colour in LIGHT.items():
        svg = svg.replace(variable, colour)
    svg = re.sub(r'((?:\bid="|href="#|url\(#))f\d+-', r"\1", svg)  # only figures of one page need ids of their own
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    size = f'width="{SHOWN * float(box[1]):.0f}" height="{SHOWN * float(box[2]):.0f}" ' if box else ""
    svg = re.sub(r"<svg ", f"<svg {names} {size}", svg, count=1)
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1) + "\n"
