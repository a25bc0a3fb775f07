"""What differences between methods are worth: intervals over seeds, pairing by seed, areas, and costs to a target.

Runs of one seed share partition, initial labels and initial weights, so methods are compared seed by
seed. Below ``TEST_FROM`` seeds only intervals are given; from there on a paired t-test, Holm-corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from chase.report.runs import WALL, Clock, MethodRuns, Numbers, RunData, main_series

LEVEL = 0.05
CONFIDENCE = 1 - LEVEL
TEST_FROM = 6
"""Seeds from which on a test is made."""

NOISE, UNKNOWN, NOTHING = "within noise", "one seed: unknown", "not measured"
HIGHER, LOWER = "higher", "lower"
NOT_SIGNIFICANT = "not significant"
"""What a test says; not significant: the interval of this difference alone lies on one side of 0, but the test that
counts the others too does not decide."""
ABOVE, BELOW = "interval above 0", "interval below 0"
"""What is said with too few seeds for a test."""

OfRun = Callable[[RunData], float]


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval (Student's t); low and high are NaN for a single value."""

    mean: float
    low: float
    high: float
    count: int

    def within(self, least: float, most: float = np.inf) -> Interval:
        """The same, its ends kept where values can be: few seeds, and it reaches below no label or above 100 %."""
        return Interval(self.mean, max(self.low, least), min(self.high, most), self.count) if self.count > 1 else self


def interval(values: Numbers) -> Interval:
    """Mean and interval of values, those that are not finite left out."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    low, high = interval_band(known[:, None]) if known.size > 1 else (np.array([np.nan]), np.array([np.nan]))
    return Interval(float(known.mean()), float(low[0]), float(high[0]), int(known.size))


def interval_band(values: Numbers) -> tuple[Numbers, Numbers]:
    """Ends of the 95 % interval of values (runs, rounds), by round; the value itself for one run."""
    mean = values.mean(axis=0)
    runs = values.shape[0]
    if runs < 2:
        return mean, mean
    half = stdtrit(runs - 1, 0.5 + CONFIDENCE / 2) * values.std(axis=0, ddof=1) / np.sqrt(runs)
    return mean - half, mean + half


@dataclass(frozen=True)
class Difference:
    """One method minus another, paired by seed."""

    label: str
    values: Numbers
    """A difference a seed that both have."""
    p: float | None = None
    """Of a two-sided paired t-test, Holm-corrected over the methods compared; None below TEST_FROM seeds."""

    @property
    def interval(self) -> Interval:
        """Of the differences."""
        return interval(self.values)

    @property
    def verdict(self) -> str:
        """Higher, lower, not significant or within noise; without a test, where the interval lies."""
        found = self.interval
        if found.count < 2:
            return UNKNOWN if found.count else NOTHING
        if self.p is not None:
            if self.p >= LEVEL:
                return NOISE if found.low <= 0.0 <= found.high else NOT_SIGNIFICANT
            return HIGHER if found.mean > 0 else LOWER
        return NOISE if found.low <= 0.0 <= found.high else ABOVE if found.mean > 0 else BELOW


def paired(method: MethodRuns, other: MethodRuns, of_run: OfRun) -> Numbers:
    """``of_run`` of a method minus that of the other, for every seed that both have and that has both values."""
    theirs = {run.seed: of_run(run) for run in other.runs}
    found = np.array([of_run(run) - theirs[run.seed] for run in method.runs if run.seed in theirs], dtype=np.float64)
    known: Numbers = found[np.isfinite(found)]
    return known


def paired_p(values: Numbers) -> float:
    """Two-sided p of a paired t-test that the mean of the differences is 0."""
    if np.all(values == values[0]):
        return 1.0 if values[0] == 0 else 0.0
    from scipy.stats import ttest_1samp  # more than a second to import: only where a test is made

    return float(ttest_1samp(values, 0.0).pvalue)


def holm(p_values: Sequence[float], planned: int = 0) -> list[float]:
    """Holm's step-down correction, in the order given.

    ``planned``: how many comparisons there will be, where some are still to come; they count as if they had p = 1, so
    that no p rises when they have come.
    """
    if planned > len(p_values):
        return holm([*p_values, *[1.0] * (planned - len(p_values))])[: len(p_values)]
    order = np.argsort(p_values, kind="stable")
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def differences(methods: Sequence[MethodRuns], against: MethodRuns, of_run: OfRun) -> list[Difference]:
    """Every other method minus ``against``; with enough seeds, tested and corrected together."""
    found = [Difference(m.label, paired(m, against, of_run)) for m in methods if m is not against]
    tested = [place for place, d in enumerate(found) if d.values.size >= TEST_FROM]
    for place, p in zip(tested, holm([paired_p(found[place].values) for place in tested]), strict=True):
        found[place] = Difference(found[place].label, found[place].values, p)
    return found


def last_shared_round(methods: Sequence[MethodRuns]) -> int:
    """The last round that every run has done and evaluated; 0 if there is none."""
    shared: set[int] | None = None
    for run in (run for method in methods for run in method.runs):
        done = {int(r) for r in run.rounds[np.isfinite(run.series("test_accuracy"))]}
        shared = done if shared is None else shared & done
    return max(shared or {0})


def of_shared_seeds(methods: Sequence[MethodRuns]) -> list[MethodRuns]:
    """Methods with the runs of the seeds that all have: a mean over others differs by their partitions. All if none."""
    if not methods:
        return []
    shared = set.intersection(*(set(method.seeds) for method in methods))
    return [replace(m, runs=[run for run in m.runs if run.seed in shared or not shared]) for m in methods]


def accuracy_after(round: int, main: str = "accuracy") -> OfRun:
    """Test accuracy, or another main metric, in percent after a round."""

    def of_run(run: RunData) -> float:
        found = main_series(run, main)[run.rounds == round]
        return float(found[0]) if found.size else float("nan")

    return of_run


def label_curve(run: RunData, until: int, main: str = "accuracy") -> tuple[Numbers, Numbers]:
    """(labels, main metric) up to a round; of the rounds of one count of labels, the last evaluated stands for it."""
    x, y = run.series("labels"), main_series(run, main)
    known = np.isfinite(x) & np.isfinite(y) & (run.rounds <= until)
    x, y = x[known], y[known]
    last = np.append(np.diff(x) > 0, True)[: x.size]
    return x[last], y[last]


def label_area(methods: Sequence[MethodRuns], until: int, main: str = "accuracy") -> OfRun:
    """Area under accuracy (or ``main``) over labels up to a round, divided by the labels: the mean, in percent.

    Trapezia between counts of labels, over the counts that all runs of all methods went through; NaN without any. A
    run that bought no labels has no such curve: its area is NaN, and it does not count for the others.
    """
    ends = [(x[0], x[-1]) for m in methods for run in m.runs if (x := label_curve(run, until, main)[0]).size > 1]
    low, high = (max(first for first, _ in ends), min(last for _, last in ends)) if ends else (0.0, 0.0)

    def of_run(run: RunData) -> float:
        x, y = label_curve(run, until, main)
        if x.size < 2 or high <= low:
            return float("nan")
        at = np.concatenate([[low], x[(x > low) & (x < high)], [high]])
        return float(np.trapezoid(np.interp(at, x, y), at) / (high - low))

    return of_run


@dataclass(frozen=True)
class Reached:
    """What a run had spent when it first reached an accuracy (or another main metric); NaN if it never did."""

    round: float
    labels: float
    seconds: float
    inferences: float


def reached(run: RunData, percent: float, clock: Clock = WALL, main: str = "accuracy") -> Reached:
    """Costs up to the first round whose accuracy, or main metric, is at least ``percent``."""
    there = np.flatnonzero(main_series(run, main) >= percent)
    if not there.size:
        return Reached(*(float("nan"),) * 4)
    at = int(there[0])
    return Reached(
        float(run.rounds[at]),
        float(run.series("labels")[at]),
        float(clock.elapsed(run)[at]),
        float(np.cumsum(run.series("inferences"))[at]),
    )
