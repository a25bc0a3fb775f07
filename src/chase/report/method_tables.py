"""Tables of methods against each other: differences with intervals, costs, and what a target took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report.cells import NONE, Cell, Number, mean_and_range, number, p_value, with_interval
from chase.report.runs import MethodRuns, RunData, clock, last_known, main_metric, main_name, main_series
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
    OfRun,
    Reached,
    accuracy_after,
    differences,
    interval,
    label_area,
    last_shared_round,
    of_shared_seeds,
    reached,
)
from chase.report.tables import ReportTable, some_rounds


def baseline(methods: Sequence[MethodRuns], named: str = "") -> MethodRuns | None:
    """What the others are compared with: the method of this label, else random selection; None if there is none."""
    wanted = [m for m in methods if m.label == named] or [
        m for m in methods if m.first.settings.get("strategy") == "random"
    ]
    return wanted[0] if wanted and len(methods) > 1 else None


def of_runs(method: MethodRuns, of_run: OfRun) -> Interval:
    """Mean and interval over a method's runs."""
    return interval(np.array([of_run(run) for run in method.runs], dtype=np.float64))


def results(methods: Sequence[MethodRuns], named: str = "") -> ReportTable:
    """Main metric and label area of each method with intervals and, beside them, the paired differences."""
    end, base, main = last_shared_round(methods), baseline(methods, named), main_metric(methods)
    measures = {main_name(main): accuracy_after(end, main), "area": label_area(methods, end, main)}
    columns = ["method", "seeds", f"{main_name(main)} after round {end}, %", "area under the label curve, %"]
    rows: list[list[Cell]] = [
        [m.label, len(m.runs), *(with_interval(of_runs(m, of).within(0, 100)) for of in measures.values())]
        for m in methods
    ]
    words = set()
    if base is not None:
        for what, of in measures.items():
            found = {d.label: d for d in differences(methods, base, of)}
            tested = any(d.p is not None for d in found.values())
            columns += [f"{what} minus {base.label}'s, points", *([f"{what}: p (Holm)"] if tested else [])]
            words.add(len(columns))
            columns.append(f"{what}: verdict")
            for method, row in zip(methods, rows, strict=True):
                own = found.get(method.label)
                row += _difference_cells(own, tested) if own else [NONE] * (3 if tested else 2)
    return ReportTable(columns, rows, "Results", words=frozenset(words))


def _difference_cells(own: Difference, tested: bool) -> list[Cell]:
    return [with_interval(own.interval, 2, signed=True), *([p_value(own.p)] if tested else []), own.verdict]


BY_ROUND = "The intervals are not corrected for multiple comparisons: about one in twenty misses by chance."


def by_round(methods: Sequence[MethodRuns], named: str = "") -> ReportTable | None:
    """Differences of the main metric from the baseline's after some rounds; None without a baseline."""
    base, rounds, main = baseline(methods, named), some_rounds(methods), main_metric(methods)
    if base is None or len(rounds) < 2:
        return None
    after = [{d.label: d.interval for d in differences(methods, base, accuracy_after(r, main))} for r in rounds]
    rows: list[list[Cell]] = [
        [m.label, *(with_interval(a[m.label], 2, signed=True) for a in after)] for m in methods if m is not base
    ]
    columns = (f"{main_name(main)} minus {base.label}'s, points, after round", *map(str, rounds))
    return ReportTable(columns, rows, "Difference by round")


def targets(methods: Sequence[MethodRuns]) -> list[float]:
    """Values of the main metric worth asking after: what every run reached, what the best method ends with, in %."""
    main = main_metric(methods)
    bests = [np.nanmax(main_series(run, main)) for m in methods for run in m.runs]
    known = [b for b in bests if np.isfinite(b)]
    ends = [float(np.mean(values)) for m in methods if (values := last_known(m, main)).size]
    if not known or not ends:
        return []
    return sorted({float(np.floor(value + 1e-9)) for value in (min(known), max(ends))})  # 45, not 44.99...


REACHED = "Up to the first round that reached it; means over the seeds that reached it, lowest and highest in brackets."


def to_reach(methods: Sequence[MethodRuns], percents: Sequence[float]) -> ReportTable:
    """Rounds, labels, seconds and inferences that each method took to a value of the main metric."""
    rows: list[list[Cell]] = []
    time, main = clock(methods), main_metric(methods)
    for percent in percents:
        for method in methods:
            each = [reached(run, percent, time, main) for run in method.runs]
            got = sum(np.isfinite(r.round) for r in each)
            rows.append([Number(percent, 0, unit=" %"), method.label, f"{got} of {len(each)}", *_spent(each)])
    columns = (main_name(main), "method", "seeds that reached it", "round", "labels", time.name, "inferences")
    title = f"Cost of reaching {'an accuracy' if main == 'accuracy' else f'a value of {main_name(main)}'}"
    return ReportTable(columns, rows, title, text_columns=2)


def _spent(each: Sequence[Reached]) -> list[Number]:
    """Means with the lowest and the highest: an interval about so few would reach below nothing."""
    spent = {name: np.array([getattr(r, name) for r in each]) for name in ("round", "labels", "seconds", "inferences")}
    return [mean_and_range(values, 0) for values in spent.values()]


def cost(methods: Sequence[MethodRuns], named: str = "") -> ReportTable:
    """What a round of each method costs, and how many times the baseline's seconds that is."""
    base, time, main = baseline(methods, named), clock(methods), main_metric(methods)

    def at_end(run: RunData) -> float:
        known = main_series(run, main)
        known = known[np.isfinite(known)]
        return float(known[-1]) if known.size else float("nan")

    def per_round(method: MethodRuns, key: str) -> Interval:
        return of_runs(method, lambda run: float(np.nanmean(run.series(key)))).within(0)

    against = per_round(base, time.key).mean if base is not None else float("nan")
    rows: list[list[Cell]] = []
    for method in methods:
        seconds = per_round(method, time.key)
        rows.append(
            [
                method.label,
                with_interval(of_runs(method, at_end).within(0, 100)),
                with_interval(of_runs(method, lambda run: run.last("labels")).within(0), 0),
                with_interval(seconds, 2),
                number(seconds.mean / against if against else None),
                with_interval(per_round(method, "inferred_samples"), 0),
                with_interval(per_round(method, "inferences"), 0),
            ]
        )
    times = f"times {base.label}" if base is not None else "times"
    spent = f"{time.name} per round"
    columns = ("method", f"{main_name(main)}, %", "labels", spent, times, "inferred per client", "inferences per round")
    table = ReportTable(columns, rows, "Cost")
    return (
        table
        if base is not None
        else ReportTable(
            [c for c in columns if c != "times"], [[c for i, c in enumerate(r) if i != 4] for r in rows], "Cost"
        )
    )


def findings(methods: Sequence[MethodRuns], named: str = "") -> list[str]:
    """What the comparison found, some sentences a method, plainly."""
    base, end = baseline(methods, named), last_shared_round(methods)
    if base is None or not end:
        return []
    main = main_metric(methods)
    after, what = accuracy_after(end, main), "" if main == "accuracy" else f" ({main_name(main)})"
    areas = {d.label: d for d in differences(methods, base, label_area(methods, end, main))}
    return [
        f"{d.label} against {base.label} after round {end}{what}: "
        f"{sentence(d, both_means(methods, d.label, base, after))} "
        f"Area under the label curve: {sentence(areas[d.label])}"
        for d in differences(methods, base, after)
    ]


FEW = 4
"""So many comparisons are told in sentences at once; of more, one sentence comes first and the others are folded."""


def in_one_sentence(methods: Sequence[MethodRuns], named: str = "") -> str:
    """Which methods are higher, lower or within noise, for more than ``FEW`` comparisons; empty for fewer."""
    base, end = baseline(methods, named), last_shared_round(methods)
    if base is None or not end or len(methods) - 1 <= FEW:
        return ""
    main, groups = main_metric(methods), dict[str, list[str]]()
    for d in differences(methods, base, accuracy_after(end, main)):
        points = f" ({d.interval.mean:+.2f})" if d.interval.count else ""
        groups.setdefault(d.verdict, []).append(f"{d.label}{points}")
    order = (HIGHER, ABOVE, NOT_SIGNIFICANT, NOISE, BELOW, LOWER, UNKNOWN, NOTHING)
    names = {UNKNOWN: "One seed only"}
    said = [f"{names.get(v, v.capitalize())}: {'; '.join(groups[v])}." for v in order if v in groups]
    what = f"{main_name(main).capitalize()} after round {end} minus that of {base.label}, in points."
    return " ".join([what, *said])


def brief(methods: Sequence[MethodRuns], base: MethodRuns) -> list[list[Cell]]:
    """One row per method: label, base, rounds, difference and verdict, difference of the areas and verdict."""
    end, main = last_shared_round(methods), main_metric(methods)
    found = differences(methods, base, accuracy_after(end, main))
    areas = differences(methods, base, label_area(methods, end, main))
    return [
        [d.label, base.label, end, *_difference_cells(d, tested=False), *_difference_cells(area, tested=False)]
        for d, area in zip(found, areas, strict=True)
    ]


def both_means(methods: Sequence[MethodRuns], label: str, base: MethodRuns, of_run: OfRun) -> tuple[float, float]:
    """A method's mean and the base's over the seeds that both have; over each one's own where there is none."""
    method = next(m for m in methods if m.label == label)
    own, theirs = ([of_run(run) for run in m.runs] for m in of_shared_seeds((method, base)))
    return float(np.mean(own)), float(np.mean(theirs))


def sentence(difference: Difference, means: tuple[float, float] | None = None) -> str:
    """One difference in words, after the means that it is of."""
    between, seeds = difference.interval, difference.interval.count
    text = f"{means[0]:.1f} % against {means[1]:.1f} %" if means is not None else ""
    if not seeds:
        return f"{text}{'; ' if text else ''}no seed in which both were measured, so no difference can be given."
    text += f"{', ' if text else ''}{between.mean:+.2f} points"
    if difference.verdict == UNKNOWN:
        return f"{text} with one seed, which says nothing about noise."
    p = str(p_value(difference.p))
    test = "" if difference.p is None else f", p {p if p.startswith('<') else f'= {p}'} after Holm"
    said = {
        NOISE: "within noise",
        NOT_SIGNIFICANT: "not significant beside the other comparisons",
        HIGHER: "higher",
        LOWER: "lower",
        ABOVE: "higher by this interval alone (too few seeds for a test)",
        BELOW: "lower by this interval alone (too few seeds for a test)",
    }
    seen = f"95 % interval {between.low:+.2f} to {between.high:+.2f}, {seeds} seeds{test}"
    return f"{text} ({seen}): {said[difference.verdict]}."
