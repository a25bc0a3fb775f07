"""Statistics against numbers worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chase.report import method_tables
from chase.report.comparison_section import comparison_section
from chase.report.runs import MethodRuns, by_method, find_runs, read_run
from chase.report.statistics import (
    ABOVE,
    BELOW,
    HIGHER,
    LOWER,
    NOISE,
    NOT_SIGNIFICANT,
    NOTHING,
    UNKNOWN,
    Difference,
    Interval,
    accuracy_after,
    differences,
    holm,
    interval,
    interval_band,
    label_area,
    last_shared_round,
    paired,
    paired_p,
    reached,
)


def test_interval_is_students_t():
    """1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.303, half width 4.303 / sqrt(3) = 2.484."""
    found = interval(np.array([1.0, 2.0, 3.0, np.nan]))
    assert (found.mean, found.count) == (2.0, 3)
    assert found.high - found.mean == pytest.approx(2.484, abs=1e-3)
    assert found.mean - found.low == pytest.approx(2.484, abs=1e-3)
    alone = interval(np.array([5.0]))
    assert (alone.mean, alone.count) == (5.0, 1)
    assert np.isnan(alone.low)
    assert interval(np.array([])).count == 0


def test_a_band_is_an_interval_at_every_round():
    low, high = interval_band(np.array([[1.0, 4.0], [3.0, 4.0]]))
    assert high == pytest.approx([2 + 12.706, 4.0], abs=1e-2), "t(0.975, 1) = 12.706, deviation sqrt(2)"
    assert low[1] == 4.0
    one = interval_band(np.array([[1.0, 4.0]]))
    assert one[0].tolist() == one[1].tolist() == [1.0, 4.0]


def test_holm_steps_down_and_keeps_the_order():
    """0.01 * 3, then max(0.03, 0.03 * 2), then max(0.06, 0.04)."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_comparisons_that_are_still_to_come_count():
    """0.01 * 4, then 0.02 * 3; with p = 1 of the other two the first are the same."""
    assert holm([0.02, 0.01], planned=4) == pytest.approx([0.06, 0.04])
    assert holm([0.02, 0.01, 1.0, 1.0]) == pytest.approx([0.06, 0.04, 1.0, 1.0])
    assert holm([0.02, 0.01, 0.001, 0.5], planned=2) == holm([0.02, 0.01, 0.001, 0.5])


def test_paired_test_of_differences():
    """1, 2, 3: t = 2 / (1 / sqrt 3) = 3.464 with 2 degrees of freedom: p = 0.0742."""
    assert paired_p(np.array([1.0, 2.0, 3.0])) == pytest.approx(0.0742, abs=1e-4)
    assert paired_p(np.zeros(6)) == 1.0
    assert paired_p(np.ones(6)) == 0.0


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([1.0, 1.1, 0.9], ABOVE), ([-1.0, -1.1, -0.9], BELOW), ([1.0, -1.0, 0.5], NOISE), ([4.0], UNKNOWN)],
)
def test_below_six_seeds_a_verdict_only_says_where_the_interval_lies(values, verdict):
    assert Difference("a", np.array(values)).verdict == verdict


@pytest.mark.parametrize(
    ("mean", "p", "verdict"),
    [(1.0, 0.01, HIGHER), (-1.0, 0.01, LOWER), (1.0, 0.05, NOT_SIGNIFICANT), (0.01, 0.8, NOISE)],
)
def test_a_test_decides_where_there_is_one(mean, p, verdict):
    assert Difference("a", mean + np.array([-0.1, 0.1] * 3), p).verdict == verdict


def test_intervals_end_where_values_can_be():
    assert Interval(50.0, -31.5, 131.5, 2).within(0, 100) == Interval(50.0, 0.0, 100.0, 2)
    assert Interval(3.0, -1.0, 7.0, 2).within(0) == Interval(3.0, 0.0, 7.0, 2)


def test_a_small_p_is_not_called_zero():
    said = [str(method_tables.p_value(p)) for p in (None, 0.0, 0.0004, 0.0006, 0.25)]
    assert said == ["–", "< 0.001", "< 0.001", "0.001", "0.250"]


def seeds(make_run, name, ends, **settings):
    return [make_run(f"{name}{seed}", [0.1, end], seed=seed, **settings) for seed, end in enumerate(ends)]


def test_differences_are_paired_by_seed_and_tested_from_six_seeds_on(make_run):
    ours = [0.5, 0.6, 0.7, 0.52, 0.61, 0.71]
    theirs = [0.4, 0.5, 0.6, 0.41, 0.5, 0.62]
    places = seeds(make_run, "a", ours, strategy="chase") + seeds(make_run, "b", theirs, strategy="random")
    methods = by_method(find_runs(places))
    base = method_tables.baseline(methods)
    assert base is not None
    assert base.label == "random"
    (six,) = differences(methods, base, accuracy_after(2))
    assert six.values == pytest.approx([10, 10, 10, 11, 11, 9])
    assert six.p is not None
    assert six.p < 0.001
    assert six.verdict == HIGHER
    few = by_method(find_runs([*places[:3], *places[6:9]]))
    (three,) = differences(few, few[1], accuracy_after(2))
    assert three.p is None
    other = by_method(find_runs(places[:1]))[0]
    assert paired(other, by_method(find_runs(places[7:8]))[0], accuracy_after(2)).size == 0, "no seed in common"


def test_the_sentence_says_noise_plainly(make_run):
    places = seeds(make_run, "a", [0.5, 0.4, 0.6], strategy="chase") + seeds(
        make_run, "b", [0.4, 0.5, 0.6], strategy="random"
    )
    (text,) = method_tables.findings(by_method(find_runs(places)))
    assert text.startswith("chase against random after round 2: 50.0 % against 50.0 %, ")
    assert "3 seeds): within noise. Area under the label curve: +0.00 points (95 % interval" in text
    assert text.endswith("3 seeds): within noise.")
    (alone,) = method_tables.findings(by_method(find_runs([places[0], places[3]])))
    assert "+10.00 points with one seed, which says nothing about noise" in alone


def test_area_is_the_mean_accuracy_over_labels(make_run):
    """Labels 0, 2, 4 at 10, 20, 60 %: (15 * 2 + 40 * 2) / 4 = 27.5; up to round 2, 15."""
    run = read_run(make_run("a", [0.1, 0.2, 0.6]))
    alone = by_method([run])
    assert label_area(alone, 3)(run) == pytest.approx(27.5)
    assert label_area(alone, 2)(run) == pytest.approx(15.0)
    assert np.isnan(label_area(alone, 1)(run))


def test_areas_are_over_the_labels_that_all_runs_have(make_run):
    """The second run stops at 2 labels; the first at 10, 20, 60 % is then (10 + 20) / 2 = 15, not 27.5."""
    runs = [read_run(make_run("a", [0.1, 0.2, 0.6])), read_run(make_run("b", [0.3, 0.5], strategy="random"))]
    area = label_area(by_method(runs), 3)
    assert [area(run) for run in runs] == pytest.approx([15.0, 40.0])


def test_a_run_that_bought_no_labels_leaves_the_areas_of_the_others_alone(make_run):
    """The first at 10, 20, 60 % over 0, 2, 4 labels has 27.5 with or without the run that stays at 0 labels."""
    run, none = (read_run(make_run(name, [0.1, 0.2, 0.6], strategy=s)) for name, s in (("a", "ev"), ("b", "random")))
    none = replace(none, metrics=[{**line, "labels": 0} for line in none.metrics])
    area = label_area(by_method([run, none]), 3)
    assert area(run) == pytest.approx(27.5)
    assert np.isnan(area(none))


def test_means_in_a_sentence_are_over_the_seeds_that_both_have(make_run):
    places = seeds(make_run, "a", [0.5, 0.9], strategy="chase") + seeds(make_run, "b", [0.4], strategy="random")
    (text,) = method_tables.findings(by_method(find_runs(places)))
    assert "50.0 % against 40.0 %, +10.00 points with one seed" in text


def test_an_area_that_cannot_be_measured_is_called_that(make_run):
    places = seeds(make_run, "a", [0.5, 0.6], strategy="chase") + seeds(make_run, "b", [0.4, 0.5], strategy="random")
    methods = [
        MethodRuns(m.label, [replace(run, metrics=run.metrics[:1]) for run in m.runs])
        for m in by_method(find_runs(places))
    ]
    (text,) = method_tables.findings(methods)
    assert text.endswith(
        "Area under the label curve: no seed in which both were measured, so no difference can be given."
    )
    assert method_tables.results(methods).texts[0][-2:] == ["–", NOTHING]


def test_an_area_beyond_noise_is_told_beside_an_end_within_it(make_run):
    """All end at 50 %, but the first is at 30, 31 and 32 % after round 2 where the others are at 10."""
    ours = [make_run(f"a{n}", [0.1, 0.3 + n / 100, 0.5], seed=n, strategy="chase") for n in range(3)]
    theirs = [make_run(f"b{n}", [0.1, 0.1, 0.5], seed=n, strategy="random") for n in range(3)]
    methods = by_method(find_runs(ours + theirs))
    (text,) = method_tables.findings(methods)
    assert "+0.00 points (95 % interval +0.00 to +0.00, 3 seeds): within noise. Area" in text
    assert text.endswith("higher by this interval alone (too few seeds for a test).")
    by_round = method_tables.by_round(methods)
    assert by_round is not None
    assert by_round.columns[1:] == ("1", "2", "3")
    assert by_round.texts == [["chase", "0.00 (0.00 to 0.00)", "+21.00 (+18.52 to +23.48)", "0.00 (0.00 to 0.00)"]]
    table = method_tables.results(methods)
    assert list(table.columns[4:]) == [
        "accuracy minus random's, points",
        "accuracy: verdict",
        "area minus random's, points",
        "area: verdict",
    ]
    assert [table.texts[0][i] for i in (5, 7)] == [NOISE, ABOVE]
    assert [table.is_text(i) for i in range(8)] == [True, False, False, False, False, True, False, True]


def test_what_an_accuracy_took(make_run):
    run = read_run(make_run("a", [0.1, None, 0.6, 0.5]))
    found = reached(run, 55.0)
    assert (found.round, found.labels, found.seconds, found.inferences) == (3.0, 4.0, 1.5, 300.0)
    assert np.isnan(reached(run, 70.0).labels)


def test_what_an_accuracy_took_is_told_with_lowest_and_highest(make_run):
    """Two of three seeds reach 55 %, in rounds 2 and 4: mean 3; labels are twice the rounds before: 2 and 6."""
    runs = [make_run("a", [0.1, 0.6, 0.6, 0.6]), make_run("b", [0.1, 0.2, 0.3, 0.6], seed=1)]
    method = by_method(find_runs([*runs, make_run("c", [0.1, 0.1, 0.1, 0.1], seed=2)]))
    table = method_tables.to_reach(method, [55.0, 90.0])
    assert table.texts[0][2:5] == ["2 of 3", "3 (2–4)", "4 (2–6)"]
    assert table.texts[1][2:4] == ["0 of 3", "–"]
    assert method_tables.to_reach(by_method(find_runs(runs[:1])), [55.0]).texts[0][2:4] == ["1 of 1", "2"]


def test_the_last_shared_round_is_one_that_all_have_evaluated(make_run):
    methods = by_method(find_runs([make_run("a", [0.1, 0.2, None]), make_run("b", [0.1, 0.2, 0.3], seed=1)]))
    assert last_shared_round(methods) == 2


def test_many_comparisons_are_one_sentence_and_a_fold(make_run, tmp_path) -> None:
    for seed in (0, 1, 2):
        make_run(f"random-{seed}", [0.5, 0.60 + seed / 100], strategy="random", seed=seed)
        for strategy, value in (("margin", 0.70), ("entropy", 0.60), ("badge", 0.50), ("bald", 0.45)):
            make_run(f"{strategy}-{seed}", [0.5, value + seed / 100], strategy=strategy, seed=seed)
    methods = by_method(find_runs([tmp_path]))
    assert method_tables.in_one_sentence(methods) == "", "four comparisons are told one by one"
    make_run("coreset", [0.5, 0.9], strategy="coreset", seed=0)
    methods = by_method(find_runs([tmp_path]))
    assert method_tables.in_one_sentence(methods) == (
        "Accuracy after round 2 minus that of random, in points. Interval above 0: margin (+10.00). "
        "Within noise: entropy (+0.00). Interval below 0: badge (-10.00); bald (-15.00). "
        "One seed only: coreset (+30.00)."
    )
    section = comparison_section(methods)
    assert section is not None
    folded = section.body.split("<details>")[1].split("</details>")[0]
    assert folded.count("against random after round 2") == 5
    assert section.body.count("against random after round 2") == 5
