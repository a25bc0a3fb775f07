"""What clients asked for: classes, their balance, and how much of it ties decided by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chase.report import charts, plots
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, Numbers, RunData, Values
from chase.report.sections import Section, grid, line_figure, round_numbers

MANY_CLIENTS, MANY_CLASSES = 40, 62


def requests_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Chance, class balance, and the classes that each client asked for."""
    figures = [
        line_figure(
            methods,
            "Picks decided by chance",
            ("round", "share of the picks so far (%)"),
            round_numbers,
            chance_share,
            "Samples asked for whose score was tied with samples that were not. Methods without a score are left out.",
            from_zero=True,
        ),
        line_figure(
            methods,
            "Class balance of the requests",
            ("round", "evenness so far (%)"),
            round_numbers,
            evenness,
            "Entropy of the classes asked for as a share of the largest possible: 100 % is every class equally often.",
        ),
        line_figure(
            methods,
            "Class balance within clients",
            ("round", "largest class so far (%)"),
            round_numbers,
            largest_class_share,
            "Share of a client's requests that fell on its most requested class, mean over clients.",
        ),
    ]
    figures += [f for method in methods for f in (by_client(method), over_time(method))]
    shown = [f for f in figures if f]
    return Section("requests", "Requests", grid(shown)) if shown else None


def so_far(run: RunData, part: Callable[[Values], float | None], whole: Callable[[Values], float]) -> Numbers:
    """100 * (sum of ``part``) / (sum of ``whole``) up to each round; NaN before there is anything, or without parts."""
    parts = np.array([np.nan if (v := part(line)) is None else v for line in run.metrics], dtype=np.float64)
    wholes = np.cumsum([whole(line) for line in run.metrics])
    usable = (wholes > 0) & np.isfinite(parts).any()
    return np.where(usable, 100 * np.nancumsum(parts) / np.maximum(wholes, 1), np.nan)


def picks(line: Values) -> float:
    """How many samples were asked for in a round."""
    return float(line.get("picks", 0))


def chance_share(run: RunData) -> Numbers:
    """The share of the picks so far, in percent, that the tie-break decided."""
    return so_far(run, lambda line: line.get("picks_by_chance"), picks)


def requested(run: RunData) -> Numbers:
    """Requests answered so far (rounds, clients, classes); (rounds, 0, 0) where the run did not count them."""
    asked: list[dict[str, Any]] = [line.get("asked_classes") or {} for line in run.metrics]
    clients = 1 + max((int(c) for line in asked for c in line), default=-1)
    classes = max([len(run.classes), *(1 + int(k) for line in asked for own in line.values() for k in own)])
    counts = np.zeros((len(asked), clients, classes if clients else 0))
    for at, line in enumerate(asked):
        for client, own in line.items():
            for label, count in own.items():
                counts[at, int(client), int(label)] += count
    return np.asarray(np.cumsum(counts, axis=0))


def evenness(run: RunData) -> Numbers:
    """100 * H(classes asked for so far) / log(classes), by round; NaN before the first answer."""
    counts = requested(run).sum(axis=1)
    if counts.shape[1] < 2:
        return np.full(len(run.metrics), np.nan)
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1)
    return np.where(total[:, 0] > 0, 100 * entropy / np.log(counts.shape[1]), np.nan)


def largest_by_client(run: RunData) -> Numbers:
    """The share in percent of each client's most requested class so far (rounds, clients); NaN before its first."""
    counts = requested(run)
    if counts.shape[1] == 0:
        return np.full((len(run.metrics), 0), np.nan)
    total = counts.sum(axis=2)
    return np.where(total > 0, 100 * counts.max(axis=2) / np.maximum(total, 1), np.nan)


def largest_class_share(run: RunData) -> Numbers:
    """The mean of ``largest_by_client`` over the clients that have asked."""
    shares = largest_by_client(run)
    known = np.isfinite(shares)
    count = known.sum(axis=1)
    return np.where(count > 0, np.nansum(shares, axis=1) / np.maximum(count, 1), np.nan)


def which(method: MethodRuns) -> str:
    """The method and, where it has several runs, the one that is shown."""
    return f"{method.label}, seed {method.first.seed}" if len(method.runs) > 1 else method.label


def by_client(method: MethodRuns) -> Markup:
    """The share of each class in each client's requests at the end."""
    counts = requested(method.first)[-1]
    if not counts.size or not counts.any() or counts.shape[0] > MANY_CLIENTS or counts.shape[1] > MANY_CLASSES:
        return Markup()
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    title = f"Classes asked for by client: {which(method)}"
    names = method.first.classes or [str(k) for k in range(counts.shape[1])]
    svg = charts.matrix(title, ("class", "client"), names, [str(c) for c in range(len(counts))], share, "% of requests")
    return html_figure(svg, title, "Share of each class in all requests of a client, in percent.")


def over_time(method: MethodRuns) -> Markup:
    """The share of each client's most requested class, round by round."""
    run = method.first
    shares = largest_by_client(run).T
    if shares.shape[0] == 0 or shares.shape[0] > MANY_CLIENTS or shares.shape[1] < 2:
        return Markup()
    title = f"Most requested class by client: {which(method)}"
    names = [str(client) for client in range(shares.shape[0])]
    svg = plots.heat_map(title, "round", "client", names, round_numbers(run), shares, "% of requests", 100.0)
    return html_figure(svg, title, "Share of the class that a client asked for most often up to each round.")
