"""Figures that only some studies have, by the names that their parts give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chase.report import charts, method_tables, plots
from chase.report.holdings import held_drawing
from chase.report.requests_section import chance_share, evenness, picks, so_far
from chase.report.runs import MethodRuns, Numbers, Quantity, RunData, clock, metric
from chase.report.sections import round_numbers
from chase.report.statistics import accuracy_after, last_shared_round, of_shared_seeds
from chase.report.style import Fill
from chase.studies.results import StudyResult

SMOOTHED_OVER = 3
ROLES = 10
BY_EV = frozenset({"ev", "chase", "number-class", "+gev"})
"""Strategies that select by EV."""


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG, with its heading and what it shows."""

    title: str
    svg: str
    caption: str = ""


def smooth(values: Numbers, window: int = SMOOTHED_OVER) -> Numbers:
    """Moving average over ``window`` values, an odd number, about each; ends average over what there is."""
    half = window // 2
    return np.array([values[max(0, i - half) : i + half + 1].mean() for i in range(values.size)])


def over_rounds(methods: Sequence[MethodRuns], title: str, ylabel: str, y: Quantity, caption: str) -> Drawing | None:
    """One line per method from zero; None if no method has a value."""
    curves = [plots.curve(method, round_numbers, y) for method in methods]
    if all(c is None for c in curves):
        return None
    alone = [c.label for c in curves if c is not None]
    if len(alone) == 1 < len(methods):  # one line has no legend
        caption += f" Shown: {alone[0]}."
    return Drawing(title, plots.lines(title, "round", ylabel, curves, from_zero=True), caption)


def accuracy_cost(methods: Sequence[MethodRuns]) -> Drawing:
    """Accuracy against the inferences that a round costs."""
    end = last_shared_round(methods)
    marks = [
        charts.Point(
            m.label,
            method_tables.of_runs(m, lambda run: float(np.nanmean(run.series("inferences")))),
            method_tables.of_runs(m, accuracy_after(end)),
        )
        for m in methods
    ]
    title = "Accuracy against inferences"
    svg = charts.points(title, "forward passes per round outside training", f"accuracy after round {end} (%)", marks)
    return Drawing(title, svg, "Bars are 95 % intervals over seeds.")


def inference_cost(methods: Sequence[MethodRuns]) -> Drawing | None:
    """Distinct unlabelled samples that a client infers per round."""
    caption = "Distinct unlabelled samples that a client runs through a model in a round: the paper's measure."
    return over_rounds(methods, "Inference cost", "samples inferred per client", metric("inferred_samples"), caption)


def seconds_per_round(methods: Sequence[MethodRuns]) -> Drawing:
    """Seconds per round by method."""
    names, time = [m.label for m in methods], clock(methods)
    values = np.array([method_tables.of_runs(m, time.per_round).mean for m in methods])
    title = f"{time.name.capitalize()} per round, mean"
    layer = plots.Layer("seconds", values, Fill.of(0))
    return Drawing(title, plots.lying_bars(title, f"{time.name} per round", names, [layer]), time.note)


def final_accuracy(methods: Sequence[MethodRuns]) -> Drawing:
    """Accuracy after the last shared round, arm by arm."""
    end = last_shared_round(methods)
    found = [method_tables.of_runs(m, accuracy_after(end)) for m in of_shared_seeds(methods)]
    title = f"Accuracy after round {end}"
    axis, names, at = places([m.label for m in methods])
    svg = charts.values(title, "accuracy (%)", axis, names, at, [charts.Series("accuracy", at, found)])
    return Drawing(title, svg, "Bars are 95 % intervals over seeds.")


def across(result: StudyResult) -> dict[str, Drawing]:
    """The accuracy over a study's parts by scene, where the parts are steps of one quantity."""
    whole = any(scene.finished for scene in result.scenes)  # a part under way would drag the last shared round down
    parts: dict[str, dict[str, Sequence[MethodRuns]]] = {}
    for scene in result.scenes:
        if result.study.across and (scene.finished or not whole):
            parts.setdefault(scene.scene, {})[scene.part.title] = scene.methods
    drawn = {scene: accuracy_across(found) for scene, found in parts.items()}
    return {scene: drawing for scene, drawing in drawn.items() if drawing is not None}


def accuracy_across(parts: Mapping[str, Sequence[MethodRuns]]) -> Drawing | None:
    """Accuracy after the last shared round over the titles of a study's parts, one line per arm; None for one part."""
    shown = {title: methods for title, methods in parts.items() if methods}
    if len(shown) < 2:
        return None
    end = last_shared_round([method for methods in shown.values() for method in methods])
    axis, names, at = places(list(shown))
    lines = []
    for label in dict.fromkeys(method.label for methods in shown.values() for method in methods):
        own = [(x, m) for x, methods in zip(at, shown.values(), strict=True) for m in methods if m.label == label]
        found = [method_tables.of_runs(method, accuracy_after(end)) for _, method in own]
        lines.append(charts.Series(label, [x for x, _ in own], found))
    title = f"Accuracy after round {end}" + (f" by {axis}" if axis else "")
    svg = charts.values(title, "accuracy (%)", axis, names, at, lines)
    return Drawing(title, svg, "Bars are 95 % intervals over seeds; arms are shifted slightly for readability.")


def places(labels: Sequence[str]) -> tuple[str, list[str], list[float]]:
    """(name of the axis, name and place of each arm): ``mu = 0.4`` stands at 0.4 of mu, other names in order."""
    read = [re.fullmatch(r"(.+) = (-?[\d.]+)", label) for label in labels]
    names = {found[1] for found in read if found}
    if all(read) and len(names) == 1:
        values = [found[2] for found in read if found]
        return names.pop(), values, [float(value) for value in values]
    return "", list(labels), [float(place) for place in range(len(labels))]


def minimum_ev(methods: Sequence[MethodRuns]) -> Drawing | None:
    """The lowest mean EV so far, round by round."""

    def lowest(run: RunData) -> Numbers:
        found: Numbers = np.fmin.accumulate(run.series("mean_ev"))
        return found

    caption = "The lowest mean EV of watched samples up to each round."
    return over_rounds(methods, "Minimum mean EV", "mean EV", lowest, caption)


def ev_accuracy(methods: Sequence[MethodRuns]) -> Drawing | None:
    """Mean EV of the observed samples against accuracy, one line per method through its rounds in their order."""
    curves: list[plots.Curve | None] = []
    for method in methods:
        x, y = (method.table(metric(key)).mean(axis=0) for key in ("observed_ev", "test_accuracy"))
        known = np.isfinite(x) & np.isfinite(y)
        window = max(SMOOTHED_OVER, int(known.sum()) // 10 | 1)  # without it nine methods are one tangle
        at, high = smooth(x[known], window), smooth(100 * y[known], window)
        curves.append(plots.Curve(method.label, at, high, high, high) if known.any() else None)
    if all(c is None for c in curves):
        return None
    title = "Accuracy against mean EV"
    svg = plots.lines(title, "mean EV", "test accuracy (%)", curves)
    caption = (
        "Each line follows the rounds; mean over seeds, both smoothed over a tenth of the rounds, at least three. EV "
        "is the mean over the same samples for every method: a fixed random draw of each client, labelled or not."
    )
    return Drawing(title, svg, caption)


def chance_picks(methods: Sequence[MethodRuns]) -> Drawing | None:
    """The share of the picks so far that the tie-break decided."""
    caption = "Samples asked for up to each round whose score was tied with samples that were not: chance decided."
    return over_rounds(methods, "Picks decided by chance", "share of the picks (%)", chance_share, caption)


def zero_ev_picks(methods: Sequence[MethodRuns]) -> Drawing | None:
    """The share of the picks so far whose EV was 0, for methods that select by EV."""

    def share(run: RunData) -> Numbers:
        zeros: dict[int, int] = {}
        for line in run.selections:
            zeros[line["round"]] = zeros.get(line["round"], 0) + (line["ev"] == 0)
        by_ev = run.settings.get("strategy") in BY_EV
        return so_far(run, lambda line: zeros.get(line["round"], 0) if by_ev else None, picks)

    caption = "Of the samples asked for up to each round, those whose prediction had not changed once: EV says nothing."
    return over_rounds(methods, "Picks of EV 0", "share of the picks (%)", share, caption)


def largest_share(methods: Sequence[MethodRuns]) -> Drawing | None:
    """The largest share of one client in the average."""
    caption = "The share of the average that the client of largest weight has; ten equal clients have 10 % each."

    def share(run: RunData) -> Numbers:
        return 100 * run.series("largest_share")

    return over_rounds(methods, "Largest share of one client", "share of the average (%)", share, caption)


def class_balance(methods: Sequence[MethodRuns]) -> Drawing | None:
    """How even the classes are among all labels asked for so far."""
    caption = (
        "Entropy of the classes among all samples asked for up to each round, as a share of the largest possible: "
        "100 % is every class equally often."
    )
    return over_rounds(methods, "Class balance of the requests", "evenness (%)", evenness, caption)


def labelled_share(methods: Sequence[MethodRuns]) -> Drawing | None:
    """Accuracy at the end of each cycle over the labelled share, smoothed."""
    curves: list[plots.Curve | None] = []
    for method in methods:
        length = int(method.first.settings.get("cycle_rounds", 1))
        ends = method.shared_rounds() % length == 0
        if not ends.any():
            curves.append(None)
            continue
        share = method.table(share_labelled)[:, ends].mean(axis=0)
        each = np.stack([smooth(row) for row in method.table(metric("test_accuracy"))[:, ends]])
        curves.append(plots.Curve.over_seeds(method.label, 100 * share, 100 * each))
    if all(c is None for c in curves):
        return None
    title = "Accuracy over the labelled share"
    svg = plots.lines(title, "labelled (% of the data)", "test accuracy (%)", curves)
    return Drawing(title, svg, "At the end of each cycle, smoothed over three cycles.")


def share_labelled(run: RunData) -> Numbers:
    """Labelled samples as a share of all, by round."""
    pools = [line["pools"] for line in run.metrics]
    return np.array([p["labeled"] / max(1, sum(p.values())) for p in pools], dtype=np.float64)


def roles_by_classes(methods: Sequence[MethodRuns]) -> Drawing | None:
    """Ten clients by classes, in logarithmic shades."""
    found = held_drawing(methods[0].first, ROLES)
    return Drawing(*found) if found else None


FIGURES: dict[str, Callable[[Sequence[MethodRuns]], Drawing | None]] = {
    "accuracy-cost": accuracy_cost,
    "inference-cost": inference_cost,
    "seconds-per-round": seconds_per_round,
    "final-accuracy": final_accuracy,
    "minimum-ev": minimum_ev,
    "ev-accuracy": ev_accuracy,
    "labelled-share": labelled_share,
    "roles-by-classes": roles_by_classes,
    "chance-picks": chance_picks,
    "zero-ev-picks": zero_ev_picks,
    "largest-share": largest_share,
    "class-balance": class_balance,
}
