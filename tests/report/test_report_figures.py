"""What figures show where seeds are few and methods many."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.axes import Axes

from chase.report import charts, plots
from chase.report.statistics import Interval, interval
from chase.report.style import COLOURS, NUMBERS, SERIES, Look
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
    looks = [Look.of(number) for number in range(len(SERIES))]
    assert len({(look.colour, str(look.line), look.marker) for look in looks}) == len(SERIES)
    for study in STUDIES.values():
        for part in study.parts:
            drawn = [NUMBERS.get(arm.label, arm.label) for arm in part.with_no_labels().arms]
            assert len(set(drawn)) == len(drawn), f"two arms of {study.name} look alike"


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
