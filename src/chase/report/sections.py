"""The sections of a report: small functions from methods to a piece of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chase.report import plots, tables
from chase.report.cells import Number, number
from chase.report.class_figures import (
    class_accuracy_by_round,
    classes_at_the_end,
    labels_by_class,
    last_by_class,
)
from chase.report.markup import Markup, html_figure, html_table, markup
from chase.report.measured import has_estimate
from chase.report.notes import run_notes
from chase.report.runs import (
    Clock,
    MethodRuns,
    Numbers,
    Quantity,
    RunData,
    accuracy,
    clock,
    frozen_share,
    last_known,
    main_metric,
    main_name,
    main_series,
    metric,
)
from chase.report.style import POOLS, Fill, Look
from chase.run.metrics import ESTIMATE, ESTIMATE_MEANS, NOT_MEASURED, estimate_in_words

MANY_CLIENTS = 40
"""More clients are shown as distributions, not one by one."""
CARDS = 4
PHASES = ("train", "track", "teachers", "select", "aggregate", "evaluate")
"""Phases in the order of a figure; others come after them."""


@dataclass(frozen=True)
class Section:
    """A titled piece of the page."""

    key: str
    title: str
    body: Markup


SectionMaker = Callable[[Sequence[MethodRuns]], Section | None]


def grid(figures: Sequence[Markup], uneven: bool = False) -> Markup:
    """Figures beside each other where there is room; ``uneven``: their heights differ, so each begins at the top."""
    return markup("grid", figures=figures, uneven=uneven)


def line_figure(
    methods: Sequence[MethodRuns],
    title: str,
    axes: tuple[str, str],
    x: Quantity,
    y: Quantity,
    caption: str = "",
    from_zero: bool = False,
    merge: float = 0.0,
) -> Markup:
    """A figure with one line per method; empty if no method has a value."""
    curves = [plots.curve(method, x, y, merge=merge) for method in methods]
    if all(c is None for c in curves):
        return Markup()
    return html_figure(plots.lines(title, *axes, curves, from_zero), title, caption)


def round_numbers(run: RunData) -> Numbers:
    """The rounds, as a quantity to plot against."""
    return run.rounds.astype(np.float64)


def headline(methods: Sequence[MethodRuns]) -> Section:
    """What came out, in large type and in tables."""
    several = any(len(method.runs) > 1 for method in methods)
    note = "Mean over the runs of a method and, in brackets, the smallest and the largest. " if several else ""
    note += "Seconds, inferred samples and inferences are means per round."
    if len({len(run.metrics) for method in methods for run in method.runs}) > 1:
        note += " Runs differ in their number of rounds: compare at equal rounds."
    body = cards(methods) + html_table(tables.summary(methods, clock(methods)), note.strip())
    rounds = tables.some_rounds(methods)
    if rounds:
        body += html_table(tables.accuracy_at(methods, rounds))
    body += notes_list(methods)
    return Section("summary", "Summary", body)


def notes_list(methods: Sequence[MethodRuns]) -> Markup:
    """What the runs noted, each note once."""
    found = run_notes(methods)
    return markup("list", sentences=found, kind="note") if found else Markup()


def cards(methods: Sequence[MethodRuns]) -> Markup:
    """The last accuracy of each method in large type, for a few methods."""
    if len(methods) > CARDS:
        return Markup()
    time = clock(methods)
    return markup("cards", cards=[_card(place, method, time) for place, method in enumerate(methods)])


def _card(place: int, method: MethodRuns, time: Clock) -> dict[str, object]:
    main = main_metric([method])
    found = last_known(method, main)
    spread = f"{found.min():.1f} to {found.max():.1f} over {found.size} runs, " if found.size > 1 else ""
    return {
        "colour": Look.named(method.label, place).colour,
        "label": method.label,
        "metric": main_name(main),
        "value": number(float(found.mean()), 1) if found.size else NOT_MEASURED,
        "unit": "%" if found.size else "",
        "estimate": "" if found.size else _estimate(method),
        "spread": spread,
        "rounds": max(len(run.metrics) for run in method.runs),
        "labels": number(float(method.last("labels").mean()), 0),
        "seconds": Number(float(np.mean([time.per_round(run) for run in method.runs])), 2),
        "clock": time.name,
    }


def _estimate(method: MethodRuns) -> str:
    """What stands below "not measured"."""
    found = [estimate_in_words(run.metrics[-1]) for run in method.runs if run.metrics]
    return "; ".join(f"estimate {words}" for words in found if words)


def _estimate_figure(methods: Sequence[MethodRuns]) -> list[Markup]:
    """The estimate over labels, where nothing was measured."""
    some = [method for method in methods if any(map(has_estimate, method.runs))]
    if not some:
        return []
    axes = ("labels given on request", "estimated accuracy (%)")
    return [
        line_figure(
            some, "Estimate over labels", axes, metric("labels"), lambda run: 100 * run.series(ESTIMATE), ESTIMATE_MEANS
        )
    ]


def accuracy_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Accuracy against rounds, labels and seconds."""
    axis, time = "test accuracy (%)", clock(methods)
    main = main_metric(methods)
    figures = [
        *_main_figure(methods, main),
        *_estimate_figure(methods),
        line_figure(
            methods, "Accuracy over rounds", ("round", axis), round_numbers, accuracy, plots.says_spread(methods)
        ),
        line_figure(
            methods,
            "Accuracy over labels",
            ("labels given on request", axis),
            metric("labels"),
            accuracy,
            "Initial labels not counted.",
            merge=0.005,
        ),
        line_figure(
            methods,
            "Accuracy over time",
            (f"{time.name} since the start", axis),
            time.elapsed,
            accuracy,
            time.note,
        ),
        line_figure(methods, "Test loss", ("round", "cross-entropy"), round_numbers, metric("test_loss")),
    ]
    return Section("accuracy", "Accuracy", grid(figures)) if any(figures) else None


def _main_figure(methods: Sequence[MethodRuns], main: str) -> list[Markup]:
    """The main metric over labels, before all else; nothing where that is accuracy, which has its own figures."""
    if main == "accuracy":
        return []
    name = main_name(main)
    title, note = (
        f"{name[0].upper()}{name[1:]} over labels",
        "The main metric of these runs. Initial labels not counted.",
    )
    axes = ("labels given on request", f"{name} (%)")
    return [line_figure(methods, title, axes, metric("labels"), lambda run: main_series(run, main), note, merge=0.005)]


def variation_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Mean EV, where it was tracked."""
    figure = line_figure(
        methods,
        "Mean epistemic variation",
        ("round", "mean EV"),
        round_numbers,
        metric("mean_ev"),
        "EV: how often the predicted class of a watched sample changed between local epochs.",
        from_zero=True,
    )
    frozen = line_figure(
        methods,
        "Frozen share",
        ("round", "dormant (%)"),
        round_numbers,
        lambda run: 100.0 * frozen_share(run),
        "Dormant samples among all that have no label and are not asked for.",
        from_zero=True,
    )
    figures = [f for f in (figure, frozen) if f]
    return Section("variation", "Epistemic variation and freezing", grid(figures)) if figures else None


PART_OF_THE_CLIENTS = {"share_of_clients": 1.0, "take_part": 1.0, "away": 0.0}
"""Settings by which only some clients take part in a round, where they are not as usual."""


def pools_section(methods: Sequence[MethodRuns]) -> Section:
    """Pool sizes over rounds, stacked, one figure per method."""
    figures = []
    for method in methods:
        layers = [
            plots.Layer(said, method.table(_pool(name)).mean(axis=0), fill) for name, (said, fill) in POOLS.items()
        ]
        x = method.shared_rounds().astype(np.float64)
        if x.size:
            title, some = f"Pools: {method.label}", method.first.settings
            part = any(some.get(key, usual) != usual for key, usual in PART_OF_THE_CLIENTS.items())
            caption = "Over the clients that have had a turn." if part else ""
            figures.append(html_figure(plots.stack(title, "round", "samples", x, layers), title, caption))
    return Section("pools", "Pools", grid(figures))


def _pool(name: str) -> Quantity:
    return lambda run: np.array([float(line["pools"].get(name, 0)) for line in run.metrics])


def cost_section(methods: Sequence[MethodRuns]) -> Section:
    """Inference cost and time."""
    phases = seconds_by_phase(methods)
    names = [method.label for method in methods]
    title = "Seconds per round, by phase"
    figures = [
        line_figure(
            methods,
            "Inferred samples",
            ("round", "samples per client"),
            round_numbers,
            metric("inferred_samples"),
            "Distinct unlabelled samples that a client ran through a model.",
            from_zero=True,
        ),
        line_figure(
            methods,
            "Inferences",
            ("round", "forward passes"),
            round_numbers,
            metric("inferences"),
            "All forward passes outside training, added up over the clients.",
            from_zero=True,
        ),
        html_figure(
            plots.lying_bars(title, "seconds per round", names, phases),
            title,
            "Wall-clock, so what else the machine did counts. Mean over rounds; clients' phases are added up over all "
            "clients, whether or not they ran side by side.",
        )
        if phases
        else Markup(),
        line_figure(
            methods, "Seconds per round", ("round", "seconds"), round_numbers, metric("seconds"), "Wall-clock.", True
        ),
    ]
    return Section("cost", "Cost", grid(figures))


def seconds_by_phase(methods: Sequence[MethodRuns]) -> list[plots.Layer]:
    """Mean seconds per round by phase, one value per method; the clients' total is left out for its parts."""
    lines = [[line.get("seconds_by_phase", {}) for run in m.runs for line in run.metrics] for m in methods]
    found = {phase for some in lines for line in some for phase in line} - {"clients"}
    order = sorted(found, key=lambda phase: (PHASES.index(phase) if phase in PHASES else len(PHASES), phase))
    means = {p: np.array([np.mean([line.get(p, 0.0) for line in some]) for some in lines]) for p in order}
    return [plots.Layer(p, values, Fill.of(i)) for i, (p, values) in enumerate(means.items()) if values.any()]


def classes_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Accuracy by class at the end and over rounds, and the classes of the labels that people gave."""
    names = methods[0].first.classes
    comparable = [
        m for m in methods if m.first.classes == names and any(last_by_class(run) is not None for run in m.runs)
    ]
    if not comparable or not names:
        return None
    figures = [classes_at_the_end(comparable, names), labels_by_class(comparable, names)]
    for method in comparable:
        x, values = class_accuracy_by_round(method)
        if x.size > 1:
            title = f"Accuracy by class over rounds: {method.label}"
            svg = plots.heat_map(title, "round", "class", names, x, 100.0 * values, "accuracy (%)", 100.0)
            figures.append(html_figure(svg, title))
    return Section("classes", "Classes", grid([f for f in figures if f]))


def clients_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Labels and pools by client after the last round, where they are few (else ``population``)."""
    figures = []
    for method in methods:
        clients = method.first.metrics[-1].get("clients") or {}
        if not 0 < len(clients) <= MANY_CLIENTS:
            continue
        names = sorted(clients, key=int)
        which = f"{method.label}, seed {method.first.seed}" if len(method.runs) > 1 else method.label
        spent = np.array([clients[c].get("labels", 0.0) for c in names])
        labeled = np.array([clients[c].get("labeled", 0.0) for c in names])
        shares = [
            plots.Layer("initial", np.maximum(labeled - spent, 0.0), Fill("#9ad0f0")),
            plots.Layer("given on request", np.minimum(spent, labeled), Fill("#0072b2")),
        ]
        title = f"Labels by client: {which}"
        figures.append(html_figure(plots.bars(title, "client", "labelled samples", names, shares), title))
        sizes = {pool: np.array([clients[c].get(pool, 0.0) for c in names]) for pool in POOLS}
        layers = [plots.Layer(said, sizes[pool], fill) for pool, (said, fill) in POOLS.items()]
        title = f"Pools by client: {which}"
        figures.append(html_figure(plots.bars(title, "client", "samples", names, layers), title))
    return Section("clients", "Clients after the last round", grid(figures)) if figures else None


def settings_section(methods: Sequence[MethodRuns]) -> Section:
    """What differs, where the runs are, then every setting and version."""
    runs = [run for method in methods for run in method.runs]
    differ = tables.settings_that_differ(methods)
    body = markup(
        "settings",
        differ=html_table(differ) if differ is not None else None,
        runs=html_table(tables.runs_table(methods)),
        settings=html_table(tables.all_settings(methods)),
        versions=html_table(tables.versions(runs)),
    )
    return Section("settings", "Settings and versions", body)


SECTIONS: tuple[SectionMaker, ...] = (
    headline,
    accuracy_section,
    variation_section,
    pools_section,
    cost_section,
    classes_section,
    clients_section,
    settings_section,
)
