"""Tables of results as typed cells, for the terminal, the page and files alike."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chase.report.cells import NONE, Cell, mean_and_range, number
from chase.report.measured import is_measured
from chase.report.runs import (
    NOT_THE_METHOD,
    WALL,
    Clock,
    MethodRuns,
    Numbers,
    RunData,
    Values,
    as_number,
    differing,
    last_known,
    main_metric,
    main_name,
)
from chase.run.metrics import ESTIMATE, NOT_MEASURED, main_value


@dataclass(frozen=True)
class ReportTable:
    """Cells by row; the first ``text_columns`` columns and those in ``words`` are words, the others numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    text_columns: int = 1
    words: frozenset[int] = frozenset()

    def is_text(self, place: int) -> bool:
        """Whether a column holds words."""
        return place < self.text_columns or place in self.words

    @property
    def texts(self) -> list[list[str]]:
        """The rows as they are shown."""
        return [[str(cell) for cell in row] for row in self.rows]


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


SECOND = "second_opinions"
"""Answers to samples that had a label; only runs that asked again have them."""


def summary(methods: Sequence[MethodRuns], time: Clock = WALL) -> ReportTable:
    """The outcome of each method: one row per method, mean and range over its runs; costs are per round."""
    columns: tuple[str, ...] = (
        "method",
        "runs",
        "rounds",
        "accuracy, %",
        "macro-F1, %",
        "test loss",
        "labels",
        time.name,
        "inferred per client",
        "inferences",
    )
    rows, main = [_summary_row(method, time) for method in methods], main_metric(methods)
    if any(method.last(SECOND).size for method in methods):
        at = columns.index("labels") + 1
        columns = (*columns[:at], "second opinions among them", *columns[at:])
        for method, row in zip(methods, rows, strict=True):
            row.insert(at, mean_and_range(method.last(SECOND), 0))
    title = f"{main_name(main)}, %"
    if title in columns:
        if main == "accuracy":
            return ReportTable(columns, rows)
        at = columns.index(title)  # the main metric comes first
        order = [0, 1, 2, at, *(place for place in range(3, len(columns)) if place != at)]
        return ReportTable([columns[place] for place in order], [[row[place] for place in order] for row in rows])
    for method, row in zip(methods, rows, strict=True):
        row.insert(3, mean_and_range(last_known(method, main), 1))
    return ReportTable([*columns[:3], title, *columns[3:]], rows)


BRIEF = ("method", "runs", "rounds", "accuracy, %", "labels", "seconds", "inferred per client")


def brief(table: ReportTable, columns: Sequence[str] = BRIEF) -> ReportTable:
    """Some columns of a table, as many as a terminal has room for."""
    main = [table.columns[3]] if columns is BRIEF and table.columns[3] not in columns else []
    columns = [*columns[:3], *main, *columns[3:]]
    places = [list(table.columns).index(column) for column in columns]
    return ReportTable(
        columns, [[row[place] for place in places] for row in table.rows], table.title, table.text_columns
    )


def _summary_row(method: MethodRuns, time: Clock) -> list[Cell]:
    rounds, measured = sorted({len(run.metrics) for run in method.runs}), any(map(is_measured, method.runs))

    def per_round(key: str) -> Numbers:
        return np.array([run.series(key).mean() for run in method.runs])

    return [
        method.label,
        len(method.runs),
        f"{rounds[0]}–{rounds[-1]}" if len(rounds) > 1 else rounds[0],
        mean_and_range(method.last("test_accuracy"), 1, 100) if measured else NOT_MEASURED,
        mean_and_range(method.last("macro_f1"), 1, 100),
        mean_and_range(method.last("test_loss"), 3),
        mean_and_range(method.last("labels"), 0),
        mean_and_range(per_round(time.key), 2),
        mean_and_range(per_round("inferred_samples"), 0),
        mean_and_range(per_round("inferences"), 0),
    ]


def some_rounds(methods: Sequence[MethodRuns], most: int = 8) -> list[int]:
    """Rounds that every method evaluated, in steps of 5, 10, 20, 25 and so on, the last one included."""
    shared: set[int] | None = None
    for method in methods:
        rounds, known = method.shared_rounds(), np.isfinite(method.table(lambda run: run.series("test_accuracy")))
        evaluated = {int(r) for r in rounds[known.all(axis=0)]}
        shared = evaluated if shared is None else shared & evaluated
    every = sorted(shared or ())
    if len(every) <= most:
        return every
    end = every[-1]
    step = next(s for power in itertools.count() for f in (1, 2, 2.5, 5) if (s := f * 10**power) * most >= end)
    wanted = np.arange(step, end, step)
    return sorted({min(every, key=lambda r: abs(r - w)) for w in wanted} | {end})


def accuracy_at(methods: Sequence[MethodRuns], rounds: Sequence[int]) -> ReportTable:
    """Test accuracy of each method after some rounds."""
    rows: list[list[Cell]] = []
    for method in methods:
        values, done = method.table(lambda run: run.series("test_accuracy")), method.shared_rounds()
        cells = [mean_and_range(values[:, done == r].ravel(), 1, 100) for r in rounds]
        rows.append([method.label, *cells])
    return ReportTable(("accuracy, %, after round", *(str(r) for r in rounds)), rows)


def round_by_round(run: RunData, most: int = 8, title: str = "") -> ReportTable:
    """A few rounds of one run, evenly spread, the last one included."""
    columns = ["round", "accuracy, %", "loss", "labels", "mean EV", "dormant", "inferred per client", "seconds"]
    step = max(1, len(run.metrics) // most)
    shown = [line for line in run.metrics if line["round"] % step == 0 or line is run.metrics[-1]]
    rows, main = [_round_row(line) for line in shown], str(run.settings.get("main_metric", "accuracy"))
    if not tracks_ev(run):
        at = columns.index("mean EV")
        del columns[at]
        for row in rows:
            del row[at]
    if np.isfinite(run.series(SECOND)).any():
        at = columns.index("labels") + 1
        columns.insert(at, "second opinions")
        for row, line in zip(rows, shown, strict=True):
            row.insert(at, number(as_number(line.get(SECOND, 0)), 0))
    if main != "accuracy":
        columns.insert(1, f"{main_name(main)}, %")
        for row, line in zip(rows, shown, strict=True):
            row.insert(1, number(as_number(main_value(line, main)), 1, 100))
    if not is_measured(run):
        columns, rows = _without_accuracy(columns, rows, shown)
    return ReportTable(columns, rows, title, text_columns=0)


def _without_accuracy(
    columns: list[str], rows: list[list[Cell]], lines: Sequence[Values]
) -> tuple[list[str], list[list[Cell]]]:
    """The table of a run without a test set: no accuracy and no loss, but the estimate, where there is one."""
    places = [columns.index("accuracy, %"), columns.index("loss")]
    names: list[str] = ["accuracy", "estimate, %"]
    cells: list[list[Cell]] = [[NOT_MEASURED, number(as_number(line.get(ESTIMATE)), 1, 100)] for line in lines]
    kept = [place for place in range(1, len(columns)) if place not in places]
    return (
        [columns[0], *names, *(columns[place] for place in kept)],
        [[row[0], *some, *(row[place] for place in kept)] for row, some in zip(rows, cells, strict=True)],
    )


EV_MEANS = "EV (epistemic variation): how often the predicted class of a sample changed between epochs of training."
COLUMNS_MEAN = (
    "Labels: given by annotators, without the initial ones. Dormant: samples that are left out for now because their "
    "prediction did not change. Inferred per client: unlabelled samples that a client ran through a model."
)
"""What stands below ``round_by_round``."""


def tracks_ev(run: RunData) -> bool:
    """Whether a run measured epistemic variation."""
    return bool(np.isfinite(run.series("mean_ev")).any())


def _round_row(line: Values) -> list[Cell]:
    return [
        int(line["round"]),
        number(as_number(line.get("test_accuracy")), 1, 100),
        number(as_number(line.get("test_loss")), 3),
        number(as_number(line.get("labels")), 0),
        number(as_number(line.get("mean_ev")), 2),
        number(as_number(line.get("pools", {}).get("dormant")), 0),
        number(as_number(line.get("inferred_samples")), 0),
        number(as_number(line.get("seconds")), 2),
    ]


def said(value: Any) -> str:
    """A setting's value as it stands in a TOML file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return NONE if value is None or value == "" else str(value)


def settings_that_differ(methods: Sequence[MethodRuns]) -> ReportTable | None:
    """The settings in which the methods differ, one row per setting; None if there is nothing to compare."""
    firsts = [method.first.settings for method in methods]
    keys = differing(firsts, NOT_THE_METHOD)
    if not keys:
        return None
    rows = [[key, *(said(settings.get(key)) for settings in firsts)] for key in keys]
    return ReportTable(("setting", *(method.label for method in methods)), rows, text_columns=1 + len(methods))


def all_settings(methods: Sequence[MethodRuns]) -> ReportTable:
    """Every setting; where methods or runs differ, each value once."""
    every = [run.settings for method in methods for run in method.runs]
    keys = dict.fromkeys(key for settings in every for key in settings)
    rows = [[key, ", ".join(dict.fromkeys(said(settings.get(key)) for settings in every))] for key in keys]
    return ReportTable(("setting", "value"), rows, text_columns=2)


def runs_table(methods: Sequence[MethodRuns]) -> ReportTable:
    """Where each run is, its seed and how long it took."""
    rows: list[list[Cell]] = [
        [method.label, str(run.path), run.seed, len(run.metrics), duration(float(WALL.elapsed(run)[-1]))]
        for method in methods
        for run in method.runs
    ]
    return ReportTable(("method", "directory", "seed", "rounds", "time"), rows, text_columns=2)


VERSIONS = {
    "source": "source of chase-fal when the run began (digest)",
    "python": "python",
    "platform": "platform",
    "processor": "processor",
    "cores": "cores",
    "kernels": "kernels of the small networks",
}
"""What of environment.json is shown besides the packages, by key."""


def versions(runs: Sequence[RunData]) -> ReportTable:
    """What the results depend on besides the settings; where runs differ, each value once."""
    found: dict[str, list[str]] = {}
    for run in runs:
        around = run.environment
        plain = {name: around[key] for key, name in VERSIONS.items() if key in around}
        for name, value in {**around.get("packages", {}), **plain}.items():
            found.setdefault(name, []).append(str(value))
    return ReportTable(
        ("part", "version"), [[name, ", ".join(dict.fromkeys(v))] for name, v in found.items()], text_columns=2
    )
