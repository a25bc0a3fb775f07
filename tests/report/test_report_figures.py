"""What figures show where seeds are few and methods many."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from matplotlib.axes import Axes

from chase.report import charts, plots
from chase.report.statistics import Interval, interval
from chase.report.style import COLOURS, INK, NUMBERS, SERIES, Look
from chase.studies.catalog import STUDIES
from chase.studies.study import METHODS


def numbers(svg: str) -> list[float]:
    """The numbers beside the axes."""
    return [float(text.replace("−", "-")) for text in re.findall(r">([−\d.]+)</text>", svg)]


def test_an_axis_of_percentages_ends_at_0_and_100() -> None:
    x, mean = np.array([0.0, 1.0]), np.array([10.0, 90.0])
    drawn = plots.lines("t", "", "accuracy (%)", [plots.Curve("a", x, mean, mean - 60, mean + 60)])
    assert min(numbers(drawn)) >= 0
    assert max(numbers(drawn)) <= 100
    wide = interval(np.array([20.0, 60.0]))
    assert wide.low < 0
    lines = [charts.Series("accuracy", [0.0, 1.0], [wide, wide])]
    found = charts.values("t", "accuracy (%)", "mu", ["0", "1"], [0.0, 1.0], lines)
    assert min(numbers(found)) >= 0


def test_logarithmic_shades_have_plain_numbers() -> None:
    counts = np.array([[1.0, 10.0], [200.0, 3000.0]])
    for drawn in (
        plots.count_map("t", ["a", "b"], ["c", "d"], counts),
        charts.matrix("t", ("x", "y"), ["a", "b"], ["c", "d"], counts, "samples", logarithmic=True),
    ):
        assert "mathdefault" not in drawn
        assert ">1,000</text>" in drawn


def test_the_nine_methods_of_the_paper_have_colours_of_their_own() -> None:
    assert len({Look.of(number).colour for number in range(9)}) == 9 <= len(COLOURS)


def test_many_bands_are_drawn_thinner() -> None:
    assert plots.band_alpha(1) == plots.band_alpha(4) == 0.16
    assert plots.band_alpha(9) < 0.08


def test_a_method_looks_the_same_in_every_study() -> None:
    """Whatever its place, EV is EV; the paper's nine methods differ in colour, all known ones in something."""
    assert Look.named("EV", 0) == Look.named("EV", 7) == Look.named("ev", 3)
    arms = {arm.label for study in STUDIES.values() for part in study.parts for arm in part.arms}
    values = {label for label in arms if " = " in label and "(" not in label}
    assert arms - values <= set(NUMBERS)
    assert len({Look.named(arm.label, 0).colour for arm in METHODS}) == 9
    looks = [Look.named(labels[0], 0) for _, labels in SERIES]
    assert len({(look.colour, str(look.line), look.marker) for look in looks}) == len(SERIES)


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_methods_of_a_study_share_a_colour(name: str) -> None:
    """Not even with an arm without labels; every two colours are apart for colour-blind eyes and on both pages."""
    for part in STUDIES[name].parts:
        arms = part.with_no_labels().arms
        colours = [Look.named(arm.label, place).colour for place, arm in enumerate(arms)]
        assert len(set(colours)) == len(colours)
        for one, other in itertools.combinations(colours, 2):
            seen = [colour_distance(one, other, eyes) for eyes in EYES]
            assert seen[0] > 18, (one, other)
            assert min(seen) > (9 if {one, other} & set(COLOURS[9:]) else 6), (one, other)
    for colour in COLOURS[9:]:
        assert all(contrast(colour, page) >= 2 for page in ("#ffffff", "#1b2026"))


EYES = (
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
)
"""What normal, red-blind and green-blind eyes see of linear RGB (Machado et al. 2009)."""
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(colour: str) -> np.ndarray:
    colour = "#1c2127" if colour == INK else colour
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def colour_distance(one: str, other: str, eyes: np.ndarray) -> float:
    """Distance in CIELAB."""
    places = []
    for colour in (one, other):
        x, y, z = np.cbrt(np.clip(eyes @ linear(colour), 0, 1) @ TO_XYZ.T / TO_XYZ.sum(axis=1))
        places.append(np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]))
    return float(np.linalg.norm(places[0] - places[1]))


def contrast(one: str, other: str) -> float:
    """Of the Web Content Accessibility Guidelines, from 1 to 21."""
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) + 0.05 for colour in (one, other))
    return high / low


def test_methods_are_not_joined_by_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line between two methods would mean something between them; along a quantity it does."""
    drawn: list[str] = []
    plain = Axes.errorbar
    monkeypatch.setattr(Axes, "errorbar", lambda *a, **k: (drawn.append(k["linestyle"]), plain(*a, **k))[1])
    found = [Interval(50.0, 40.0, 60.0, 3), Interval(70.0, 65.0, 75.0, 3)]
    svg = charts.values("t", "%", "", ["FedRandom", "CHASe, all-global"], [0, 1], [charts.Series("a", [0, 1], found)])
    charts.values("t", "%", "mu", ["0.2", "0.4"], [0.2, 0.4], [charts.Series("a", [0.2, 0.4], found)])
    assert drawn == ["none", Look.named("a", 0).line]
    assert "CHASe, all-global" in svg
