"""Reports of own data, as their users see them: names are not changed, markers not cut, counts are whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chase.report import plots
from chase.report.notes import run_notes


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of every figure that is made."""
    found: list[Any] = []

    def keep(figure: Any, title: str) -> str:
        found.append(figure.axes[0])
        return ""

    monkeypatch.setattr(plots, "to_svg", keep)
    return found


def test_a_note_that_begins_with_the_name_of_a_file_keeps_it() -> None:
    class Noted:
        label, seed = "margin", 0
        notes = ("befunde.csv is not UTF-8", "a class is called NA", "n2 is a name")

    method: Any = Noted()
    method.runs = [method]
    assert run_notes([method]) == ["befunde.csv is not UTF-8.", "A class is called NA.", "n2 is a name."]


def test_no_marker_is_cut_at_the_top(axes: list[Any]) -> None:
    plots.dots("Labels by class", "class", "labels", ["a", "b"], {"margin": np.array([145.0, 143.0])})
    bottom, top = axes[0].get_ylim()
    assert bottom <= 0
    assert top >= 145 + 0.04 * 145
    plots.dots("Accuracy by class", "class", "accuracy (%)", ["a", "b"], {"margin": np.array([100.0, 0.0])})
    assert axes[1].get_ylim()[1] > 103


def test_labels_are_counted_in_whole_numbers(axes: list[Any]) -> None:
    line = plots.Curve("margin", np.array([0.0, 10.0]), flat := np.array([50.0, 60.0]), flat, flat)
    plots.lines("Accuracy over labels", "labels given on request", "test accuracy (%)", [line])
    assert all(float(tick).is_integer() for tick in axes[0].get_xticks())
