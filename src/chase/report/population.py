"""The clients of a large population: quantiles and distributions instead of a line per client, the extremes by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chase.report import plots
from chase.report.cells import Cell, number
from chase.report.client_results import client_accuracies, held_counts
from chase.report.markup import Markup, html_figure, html_table, together
from chase.report.runs import MethodRuns, Numbers, RunData
from chase.report.sections import MANY_CLIENTS, Section, grid
from chase.report.style import POOLS
from chase.report.tables import ReportTable
from chase.run.client_counts import QUANTILES

SHOWN = 10
"""Clients at either end that are named."""
LONGEST = 72
"""Characters of a client's name in a table."""
COUNTED = {"labels": "labels given on request", **{name: f"{said} samples" for name, (said, _) in POOLS.items()}}
COLUMNS = ("least", "10 %", "25 %", "median", "75 %", "90 %", "most")


def client_count(run: RunData) -> int:
    """Clients of a run, whether or not they have had a turn."""
    return int(run.settings.get("clients", 0))


def population_section(methods: Sequence[MethodRuns]) -> Section | None:
    """Quantiles over the clients, how labels spread over the rounds, and the worst and best clients by name."""
    large = [method for method in methods if client_count(method.first) > MANY_CLIENTS]
    if not large:
        return None
    body: list[Markup] = []
    for method in large:
        which = f"{method.label}, seed {method.first.seed}" if len(method.runs) > 1 else method.label
        rows = quantile_rows(method.first)
        if rows:
            table = ReportTable(("per client", *COLUMNS), rows, f"Clients after the last round: {which}")
            body.append(html_table(table, said_of(method.first)))
        body += [html_table(table) for table in extremes(method.first, which)]
    figures = [f for f in (labels_figure(large), seen_figure(large)) if f]
    body += [grid(figures)] if figures else []
    return Section("population", "Clients", together(body)) if body else None


def said_of(run: RunData) -> str:
    """How many clients the quantiles are over."""
    total, seen = client_count(run), clients_seen(run.metrics[-1])
    return f"{seen:,} of {total:,} clients have had a turn; labels and pools are over them, the rest is over all."


def clients_seen(line: Mapping[str, Any]) -> int:
    """How many clients have had a turn up to a round."""
    said = line.get("clients_seen")
    listed = line.get("clients")
    return said if isinstance(said, int) else len(listed) if isinstance(listed, dict) else 0


def count_quantiles(line: Mapping[str, Any], name: str) -> Numbers | None:
    """``QUANTILES`` of a count over the clients that have had a turn; None where a line does not say."""
    given = line.get("client_quantiles")
    if isinstance(given, dict) and given.get(name):
        return np.array(given[name], dtype=np.float64)
    listed = line.get("clients")
    if isinstance(listed, dict) and listed:
        values: Numbers = np.quantile([float(counts.get(name, 0.0)) for counts in listed.values()], QUANTILES)
        return values
    return None


def quantile_rows(run: RunData) -> list[list[Cell]]:
    """A row per quantity, from the client with the least of it to the one with the most."""
    found: dict[str, tuple[Numbers, int]] = {}
    accuracy, held = client_accuracies(run), held_counts(run)
    if accuracy is not None:
        found["accuracy, % (own mix of classes)"] = 100 * np.quantile(accuracy, QUANTILES), 1
    if held is not None:
        found["samples held"] = np.quantile(held.sum(axis=1), QUANTILES), 0
        found["classes held"] = np.quantile((held > 0).sum(axis=1), QUANTILES), 0
    for name, said in COUNTED.items():
        values = count_quantiles(run.metrics[-1], name)
        if values is not None and values.any():
            found[said] = values, 0
    return [[said, *(number(float(v), digits) for v in values)] for said, (values, digits) in found.items()]


def extremes(run: RunData, which: str) -> list[ReportTable]:
    """The clients with the lowest and the highest accuracy, by name."""
    accuracy, held = client_accuracies(run), held_counts(run)
    if accuracy is None or held is None:
        return []
    names = [str(name) for name in run.coverage["clients"]]
    listed = run.metrics[-1].get("clients") or {}
    order = np.argsort(accuracy, kind="stable")
    columns = ("client", "accuracy, %", "samples", "classes", *(("labels",) if listed else ()))

    def row(client: int) -> list[Cell]:
        counts = held[client]
        cells: list[Cell] = [
            plots.keep_end(names[client], LONGEST) or repr(names[client]),
            number(float(accuracy[client]), 1, 100),
        ]
        cells += [int(counts.sum()), int((counts > 0).sum())]
        labels = listed.get(str(client), {}).get("labels")
        return cells + ([number(labels, 0)] if listed else [])

    ends = (("Lowest", order[:SHOWN]), ("Highest", order[::-1][:SHOWN]))
    return [
        ReportTable(columns, [row(int(c)) for c in some], f"{end} accuracy by client: {which}") for end, some in ends
    ]


def labels_figure(methods: Sequence[MethodRuns]) -> Markup:
    """Labels per client over rounds: quantiles of one method, the 90 % of each of several."""
    curves: list[plots.Curve | None] = []
    places = (6, 5, 4, 3) if len(methods) == 1 else (5,)
    for method in methods:
        found = [(line["round"], count_quantiles(line, "labels")) for line in method.first.metrics]
        known = [(round, values) for round, values in found if values is not None]
        table = np.stack([values for _, values in known]) if known else np.zeros((0, len(QUANTILES)))
        x = np.array([round for round, _ in known], dtype=np.float64)
        for place in places:
            label = COLUMNS[place] if len(methods) == 1 else method.label
            y = table[:, place]
            curves.append(plots.Curve(label, x, y, y, y) if known else None)
    if not any(curves):
        return Markup()
    title = "Labels by client over rounds"
    caption = "Over the clients that have had a turn."
    if len(methods) > 1:
        caption += " 90 % of them have at most this many."
    return html_figure(plots.lines(title, "round", "labels given on request", curves, True), title, caption)


def seen_figure(methods: Sequence[MethodRuns]) -> Markup:
    """How many clients have had a turn, and how many were there, over rounds."""
    curves: list[plots.Curve | None] = []
    for method in methods:
        lines = method.first.metrics
        x = np.array([line["round"] for line in lines], dtype=np.float64)
        seen = np.array([clients_seen(line) for line in lines], dtype=np.float64)
        curves.append(plots.Curve(method.label, x, seen, seen, seen))
    title, caption = "Clients that have had a turn", ""
    here = [line.get("clients_here") for line in methods[0].first.metrics]
    if all(isinstance(count, int) for count in here):  # clients come and go, alike under every method
        x = np.array([line["round"] for line in methods[0].first.metrics], dtype=np.float64)
        there = np.array(here, dtype=np.float64)
        curves.append(plots.Curve("not away", x, there, there, there))
        caption = "Clients come and go: those that were not away in each round are shown too."
    return html_figure(plots.lines(title, "round", "clients", curves, True), title, caption)
