"""Tables of methods against each other: differences with intervals, costs, and what a target took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from chase.report.runs import Method, Numbers, RunData, clock
from chase.report.statistics import (
    NOISE,
    UNKNOWN,
    Difference,
    Interval,
    Reached,
    accuracy_after,
    differences,
    interval,
    label_area,
    last_shared_round,
    reached,
)
from chase.report.tables import NONE, Table, number

BASELINES = ("random", "FedRandom")


def baseline(methods: Sequence[Method], named: str = "") -> Method | None:
    """What the others are compared with: the method of this label, else random selection; None if there is none."""
    wanted = [m for m in methods if m.label == named] or [
        m for m in methods if m.first.settings.get("strategy") == "random"
    ]
    return wanted[0] if wanted and len(methods) > 1 else None


def with_interval(found: Interval, digits: int = 1, scale: float = 1.0, signed: bool = False) -> str:
    """``83.1 (82.0 to 84.2)``; the mean alone for one seed, a dash for none."""
    if not found.count:
        return NONE

    def said(value: float) -> str:
        text = number(value, digits, scale)
        return f"+{text}" if signed and not text.startswith("-") and float(text.replace(",", "")) != 0 else text

    return said(found.mean) + (f" ({said(found.low)} to {said(found.high)})" if found.count > 1 else "")


def of_runs(method: Method, of_run: Callable[[RunData], float]) -> Interval:
    """Mean and interval over a method's runs."""
    return interval(np.array([of_run(run) for run in method.runs], dtype=np.float64))


def results(methods: Sequence[Method], named: str = "") -> Table:
    """Accuracy and label area of each method with intervals and, beside them, the paired difference."""
    end, base = last_shared_round(methods), baseline(methods, named)
    columns = ["method", "seeds", f"accuracy after round {end}, %", "area under the label curve, %"]
    found: dict[str, Difference] = {}
    if base is not None:
        columns += [f"minus {base.label}, points", "area, points", "p (Holm)", "verdict"]
        found = {d.label: d for d in differences(methods, base, accuracy_after(end))}
        areas = {d.label: d for d in differences(methods, base, label_area(end))}
    rows = []
    for method in methods:
        row = [
            method.label,
            str(len(method.runs)),
            with_interval(of_runs(method, accuracy_after(end))),
            with_interval(of_runs(method, label_area(end))),
        ]
        if base is not None:
            own = found.get(method.label)
            row += (
                [NONE] * 4
                if own is None
                else [
                    with_interval(own.interval, 2, signed=True),
                    with_interval(areas[method.label].interval, 2, signed=True),
                    NONE if own.p is None else number(own.p, 3),
                    own.verdict,
                ]
            )
        rows.append(row)
    return Table(columns, rows, "Results")


def targets(methods: Sequence[Method]) -> list[float]:
    """Accuracies worth asking after: what every run reached and what the best method ends with, in %."""
    bests = [np.nanmax(100 * run.series("test_accuracy")) for m in methods for run in m.runs]
    known = [b for b in bests if np.isfinite(b)]
    ends = [float(np.nanmean(100 * m.last("test_accuracy"))) for m in methods if m.last("test_accuracy").size]
    if not known or not ends:
        return []
    return sorted({float(np.floor(min(known))), float(np.floor(max(ends)))})


REACHED = "Up to the first round that reached it; means over the seeds that got there, lowest and highest in brackets."


def to_reach(methods: Sequence[Method], percents: Sequence[float]) -> Table:
    """Rounds, labels, seconds and inferences that each method took to an accuracy."""
    rows, time = [], clock(methods)
    for percent in percents:
        for method in methods:
            each = [reached(run, percent, time) for run in method.runs]
            got = sum(np.isfinite(r.round) for r in each)
            rows.append([f"{percent:g} %", method.label, f"{got} of {len(each)}", *_spent(each)])
    columns = ("accuracy", "method", "seeds that got there", "round", "labels", time.name, "inferences")
    return Table(columns, rows, "What it took to reach an accuracy", text_columns=2)


def _spent(each: Sequence[Reached]) -> list[str]:
    """Means with the lowest and the highest: an interval about so few would reach below nothing."""

    def of(name: str) -> Numbers:
        values = np.array([getattr(r, name) for r in each], dtype=np.float64)
        return values[np.isfinite(values)]

    return [with_range(of(name)) for name in ("round", "labels", "seconds", "inferences")]


def with_range(values: Numbers) -> str:
    """``34 (30 to 40)``: the mean, the lowest and the highest; the value alone for one, a dash for none."""
    if not values.size:
        return NONE
    ends = f" ({number(float(values.min()), 0)} to {number(float(values.max()), 0)})" if values.size > 1 else ""
    return number(float(values.mean()), 0) + ends


def cost(methods: Sequence[Method], named: str = "") -> Table:
    """What a round of each method costs, and how many times the baseline's seconds that is."""
    base, time = baseline(methods, named), clock(methods)

    def a_round(method: Method, key: str) -> Interval:
        return of_runs(method, lambda run: float(np.nanmean(run.series(key))))

    against = a_round(base, time.key).mean if base is not None else float("nan")
    rows = []
    for method in methods:
        seconds = a_round(method, time.key)
        rows.append(
            [
                method.label,
                with_interval(of_runs(method, lambda run: run.last("test_accuracy")), 1, 100),
                with_interval(of_runs(method, lambda run: run.last("labels")), 0),
                with_interval(seconds, 2),
                number(seconds.mean / against, 2) if against else NONE,
                with_interval(a_round(method, "inferred_samples"), 0),
                with_interval(a_round(method, "inferences"), 0),
            ]
        )
    times = f"times {base.label}" if base is not None else "times"
    spent = f"{time.name} a round"
    columns = ("method", "accuracy, %", "labels", spent, times, "inferred a client", "inferences a round")
    table = Table(columns, rows, "Cost")
    return (
        table
        if base is not None
        else Table([c for c in columns if c != "times"], [[c for i, c in enumerate(r) if i != 4] for r in rows], "Cost")
    )


def findings(methods: Sequence[Method], named: str = "") -> list[str]:
    """What the comparison found, a sentence a method, plainly."""
    base, end = baseline(methods, named), last_shared_round(methods)
    if base is None or not end:
        return []
    at_base = of_runs(base, accuracy_after(end))
    found = []
    for difference in differences(methods, base, accuracy_after(end)):
        method = next(m for m in methods if m.label == difference.label)
        found.append(sentence(difference, of_runs(method, accuracy_after(end)), base.label, at_base, end))
    return found


def sentence(difference: Difference, own: Interval, base: str, at_base: Interval, end: int) -> str:
    """One difference in words."""
    between, seeds = difference.interval, difference.interval.count
    text = f"{difference.label} against {base} after round {end}: {own.mean:.1f} % against {at_base.mean:.1f} %"
    if not seeds:
        return f"{text}; no seed in common, so no difference can be given."
    text += f", {between.mean:+.2f} points"
    if difference.verdict == UNKNOWN:
        return f"{text} with one seed, which says nothing about noise."
    test = f", p = {difference.p:.3f} after Holm" if difference.p is not None else ""
    said = "a difference within noise" if difference.verdict == NOISE else f"{difference.verdict} than {base}"
    if difference.verdict != NOISE and difference.p is None:
        said += " by this interval alone (too few seeds for a test)"
    return f"{text} (95 % interval {between.low:+.2f} to {between.high:+.2f}, {seeds} seeds{test}): {said}."
