"""A value is rounded once, where it is shown, and every place that shows it shows the same digits."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chase.cli.progress import percent
from chase.report import method_tables, tables
from chase.report.cells import exact, mean_and_range, number, with_interval
from chase.report.quality import in_words
from chase.report.runs import by_method, find_runs
from chase.report.statistics import interval
from chase.report.table_files import comparison_tables


@given(right=st.integers(0, 2000), tested=st.integers(1, 2000))
def test_tables_sentences_and_cards_show_the_same_digits(right: int, tested: int) -> None:
    value = min(1.0, right / tested)
    once = str(Decimal(100 * value).quantize(Decimal("0.1"), ROUND_HALF_EVEN))
    assert str(number(value, 1, 100)) == once
    assert str(mean_and_range(np.array([value]), 1, 100)) == once
    assert str(with_interval(interval(np.array([100 * value])))) == once
    assert f"{value:.1%}" == f"{once}%"
    assert percent(value) == f"{once} %"


@given(st.floats(0, 1e9, allow_nan=False))
def test_files_for_programs_have_every_digit(value: float) -> None:
    assert float(exact(value)) == value


def test_a_difference_is_that_of_the_values_not_of_what_is_shown(make_run, tmp_path) -> None:
    """84.96 % and 84.94 % are shown as 85.0 and 84.9, and differ by 0.02 points, not by 0.1."""
    make_run("margin", [0.5, 0.8496], strategy="margin")
    make_run("random", [0.5, 0.8494], strategy="random")
    methods = by_method(find_runs([tmp_path]))
    found = method_tables.results(methods)
    assert [row[2] for row in found.texts] == ["85.0", "84.9"]
    assert found.texts[0][list(found.columns).index("accuracy minus random's, points")] == "+0.02"
    assert "85.0 % against 84.9 %, +0.02 points" in method_tables.findings(methods)[0]
    written = comparison_tables(methods)["results"]
    assert [float(row[2].value) for row in written.rows] == pytest.approx([84.96, 84.94], abs=1e-9)
    assert tables.round_by_round(methods[0].first).texts[-1][1] == "85.0"


def test_the_line_at_the_end_of_a_run_rounds_what_was_measured() -> None:
    found = {
        "accuracy": 0.84949,
        "accuracy_interval": [0.80049, 0.89951],
        "tested": 400,
        "majority_accuracy": 0.10049,
        "balanced_accuracy": 0.84951,
        "ece": 0.04449,
    }
    said = in_words(found)
    for shown in ("accuracy 84.9 %", "80.0 to 90.0 %", "class: 10.0 %", "balanced accuracy 85.0 %", "error 0.044"):
        assert shown in said
