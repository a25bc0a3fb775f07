"""What clients asked for: classes, their balance, and how much of it ties decided by chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chase.report import charts, plots
from chase.report.markup import Markup, html_figure
from chase.report.runs import MethodRuns, Numbers, RunData, Values
from chase.report.sections import Section, grid, line_figure, round_numbers

MANY_CLIENTS, MANY_CLASSES = 40, 100
"""Above them a figure shows the clients that asked most, or is left out."""
MANY_PANELS = 12
"""Clients with a map of their own."""


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
    figures += [f for method in methods for f in (by_client(method), classes_over_time(method), over_time(method))]
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


@dataclass(frozen=True)
class ByClient:
    """The requests of some clients in one seed of a method, or in all of them."""

    whose: str
    note: str
    """Which seeds and which clients these are, where there are others; a sentence or nothing."""
    rounds: Numbers
    counts: Numbers
    """Requests answered up to each round (rounds, clients, classes)."""
    clients: Sequence[str]
    classes: Sequence[str]

    def most(self, many: int) -> ByClient:
        """The clients with the most requests, in their own order, if there are too many."""
        if len(self.clients) <= many:
            return self
        asked = self.counts[-1].sum(axis=1)
        kept = np.sort(np.argsort(-asked, kind="stable")[:many])
        note = f"{self.note} The {many} of {len(self.clients)} clients with the most requests are shown.".strip()
        return replace(self, note=note, counts=self.counts[:, kept], clients=[self.clients[c] for c in kept])

    @property
    def shares(self) -> Numbers:
        """The share of each class in percent (rounds, clients, classes); NaN before a client's first request."""
        total = self.counts.sum(axis=2, keepdims=True)
        return np.where(total > 0, 100 * self.counts / np.maximum(total, 1), np.nan)


def requests_by_client(method: MethodRuns) -> ByClient | None:
    """All seeds together where clients hold the same in each, else the first one; None without a request."""
    runs, first = method.runs, method.first
    held = [run.coverage.get("held") for run in runs]
    together = len(runs) > 1 and held[0] is not None and all(one == held[0] for one in held)
    shown = runs if together else runs[:1]
    rounds = min(len(run.metrics) for run in shown)
    each = [requested(run)[:rounds] for run in shown]
    counts = np.zeros(np.max([one.shape for one in each], axis=0))
    for one in each:
        counts[:, : one.shape[1], : one.shape[2]] += one
    if not counts.any() or counts.shape[2] > MANY_CLASSES:
        return None
    names = [str(name) for name in first.coverage.get("clients", ())]
    clients = names[: counts.shape[1]] if len(names) >= counts.shape[1] else [str(c) for c in range(counts.shape[1])]
    classes = first.classes or [str(k) for k in range(counts.shape[2])]
    whose, note = method.label, ""
    if together:
        whose, note = f"{method.label}, {len(runs)} seeds", "The requests of all seeds are added up."
    elif len(runs) > 1:
        whose = f"{method.label}, seed {first.seed}"
        note = f"Only seed {first.seed}: clients hold other samples in other seeds."
    return ByClient(whose, note, round_numbers(first)[:rounds], counts, clients, classes)


def by_client(method: MethodRuns) -> Markup:
    """The share of each class in each client's requests at the end."""
    found = requests_by_client(method)
    if found is None:
        return Markup()
    found = found.most(MANY_CLIENTS)
    title = f"Classes asked for by client: {found.whose}"
    share = np.nan_to_num(found.shares[-1])
    svg = charts.matrix(title, ("class", "client"), found.classes, found.clients, share, "% of requests")
    caption = f"Share of each class in all requests of a client, in percent. {found.note}"
    return html_figure(svg, title, caption.strip())


def classes_over_time(method: MethodRuns) -> Markup:
    """The share of each class in each client's requests, round by round."""
    found = requests_by_client(method)
    if found is None or found.rounds.size < 2:
        return Markup()
    found = found.most(MANY_PANELS)
    title = f"Classes asked for over rounds: {found.whose}"
    maps = {f"client {name}": found.shares[:, c].T for c, name in enumerate(found.clients)}
    svg = charts.small_maps(title, ("round", "class"), found.rounds, found.classes, maps, "% of requests so far")
    caption = f"Share of each class in the requests of a client up to each round; blank before its first. {found.note}"
    return html_figure(svg, title, caption.strip())


def over_time(method: MethodRuns) -> Markup:
    """The share of each client's most requested class, round by round, where some clients have no map of their own."""
    found = requests_by_client(method)
    if found is None or found.rounds.size < 2 or len(found.clients) <= MANY_PANELS:
        return Markup()
    found = found.most(MANY_CLIENTS)
    title = f"Most requested class by client: {found.whose}"
    shares = found.shares.max(axis=2).T
    svg = plots.heat_map(title, "round", "client", found.clients, found.rounds, shares, "% of requests", 100.0)
    caption = f"Share of the class that a client asked for most often up to each round. {found.note}"
    return html_figure(svg, title, caption.strip())
