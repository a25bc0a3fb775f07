"""Run directories as values: reading, finding, and grouping by method.

A report never builds a network: it reads what a run left behind (only the gallery looks at the data set). Settings are
read as plain values, so a run whose strategy cannot be imported here can still be shown.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import RunDirectoryError
from chase.core.files import read_jsonl
from chase.run.metrics import MAIN_NAMES, main_value
from chase.run.record import NO_EFFECT, has_rounds, kind_of, no_run_in, resume_command
from chase.settings import read_file

Numbers = NDArray[np.float64]
Values = Mapping[str, Any]

NOT_THE_METHOD = NO_EFFECT | {"seed"}
"""Settings in which two runs of one method may differ."""

SET_BY_STRATEGY = frozenset({"align", "freeze", "awaken", "subset", "loss"})
"""Settings that a strategy fills in: they are named only where runs of one strategy differ in them."""


@dataclass(frozen=True)
class RunData:
    """What one run left behind."""

    path: Path
    settings: Values
    metrics: Sequence[Values]
    selections: Sequence[Values] = ()
    environment: Values = field(default_factory=dict)
    model: Values = field(default_factory=dict)
    """The card of the model: classes, shape, normalisation."""
    coverage: Values = field(default_factory=dict)
    """Samples and initial labels by client and class."""
    confusion: Values = field(default_factory=dict)
    """The last round and its matrix (true classes, predicted classes)."""
    notes: Sequence[str] = ()
    """What the user should know of the run, such as classes that nobody holds."""

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        return resume_command(self.path, kind_of(self.path, self.environment))

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.settings.get("seed", 0))

    @property
    def classes(self) -> list[str]:
        """Names of the classes; numbers where the run does not say."""
        names = self.model.get("classes") or self.coverage.get("classes")
        if names:
            return [str(name) for name in names]
        known = [line["per_class"] for line in self.metrics if line.get("per_class")]
        return [str(number) for number in range(len(known[-1]))] if known else []

    @property
    def rounds(self) -> NDArray[np.int64]:
        """The numbers of the rounds done."""
        return np.array([line["round"] for line in self.metrics], dtype=np.int64)

    def series(self, key: str) -> Numbers:
        """A metric by round; NaN where it was not measured."""
        return np.array([as_number(line.get(key)) for line in self.metrics], dtype=np.float64)

    def last(self, key: str) -> float:
        """The last measured value of a metric, NaN if there is none."""
        known = self.series(key)
        known = known[np.isfinite(known)]
        return float(known[-1]) if known.size else float("nan")


def as_number(value: Any) -> float:
    """A number as it is, anything else as NaN."""
    return float(value) if isinstance(value, int | float) else float("nan")


@dataclass(frozen=True)
class Clock:
    """What time is counted in: the metric, and its name in titles."""

    key: str
    name: str
    note: str

    def elapsed(self, run: RunData) -> Numbers:
        """Seconds since the start, by round."""
        return np.cumsum(run.series(self.key))

    def per_round(self, run: RunData) -> float:
        """Mean seconds per round."""
        return float(np.nanmean(run.series(self.key)))


WALL = Clock("seconds", "seconds", "Wall-clock time of the run.")
PROCESSOR = Clock(
    "seconds_processor",
    "processor seconds",
    "Processor time of the run, which does not depend on how busy the machine was.",
)


def clock(methods: Sequence[MethodRuns]) -> Clock:
    """Processor seconds where every round of every run has them: a busy machine does not change those."""
    runs = [run for method in methods for run in method.runs]
    told = all(run.metrics and np.isfinite(run.series(PROCESSOR.key)).all() for run in runs)
    return PROCESSOR if told else WALL


def frozen_share(run: RunData) -> Numbers:
    """Dormant samples as a share of the dormant and unlabelled ones, by round; NaN if the run never froze any."""
    frozen = np.array([float(line["pools"]["dormant"]) for line in run.metrics])
    free = np.array([float(line["pools"]["unlabeled"]) for line in run.metrics])
    if not frozen.any():
        return np.full(frozen.shape, np.nan)
    share: Numbers = frozen / np.maximum(frozen + free, 1.0)
    return share


def accuracy(run: RunData) -> Numbers:
    """Test accuracy in percent, by round."""
    return 100.0 * run.series("test_accuracy")


def main_metric(methods: Sequence[MethodRuns]) -> str:
    """The metric that decides: the one that all methods name, else accuracy."""
    named = {str(run.settings.get("main_metric", "accuracy")) for method in methods for run in method.runs}
    return named.pop() if len(named) == 1 else "accuracy"


def main_name(main: str) -> str:
    """A main metric as it is called in text."""
    return MAIN_NAMES.get(main, main)


def main_series(run: RunData, main: str) -> Numbers:
    """The main metric in percent, by round; NaN where it was not measured."""
    return np.array([100.0 * as_number(main_value(line, main)) for line in run.metrics], dtype=np.float64)


def last_known(method: MethodRuns, main: str) -> Numbers:
    """The last measured value of the main metric, run by run, in percent; runs without one are left out."""
    known = [values[np.isfinite(values)] for values in (main_series(run, main) for run in method.runs)]
    return np.array([values[-1] for values in known if values.size], dtype=np.float64)


def alike(methods: Sequence[MethodRuns]) -> bool:
    """Whether methods can be compared: on one data set, under one behaviour and partition."""
    same = ("data", "behaviour", "partition", "data_share", "clients")
    return all(len({str(method.first.settings.get(key)) for method in methods}) == 1 for key in same)


Quantity = Callable[[RunData], Numbers]


def metric(key: str) -> Quantity:
    """A metric by name, as a quantity."""
    return lambda run: run.series(key)


@dataclass(frozen=True)
class MethodRuns:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: Sequence[RunData]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order of the runs."""
        return [run.seed for run in self.runs]

    @property
    def first(self) -> RunData:
        """The run of the lowest seed."""
        return self.runs[0]

    def shared_rounds(self) -> NDArray[np.int64]:
        """The rounds that all runs have done."""
        shared = self.runs[0].rounds
        for run in self.runs[1:]:
            shared = np.intersect1d(shared, run.rounds)
        return shared

    def table(self, quantity: Quantity) -> Numbers:
        """A quantity in the shared rounds (runs, rounds)."""
        shared = self.shared_rounds()
        return np.stack([quantity(run)[np.isin(run.rounds, shared)] for run in self.runs])

    def last(self, key: str) -> Numbers:
        """The last measured value of a metric, run by run, those without one left out."""
        values = np.array([run.last(key) for run in self.runs], dtype=np.float64)
        known: Numbers = values[np.isfinite(values)]
        return known


def read_run(path: Path) -> RunData:
    """The run in a directory."""
    if not is_run(path):
        raise RunDirectoryError(no_run_in(path))
    return RunData(
        path=path,
        settings=read_file(path / "settings.toml"),
        metrics=_read_lines(path / "metrics.jsonl", ("round", "pools")),
        selections=_read_lines(path / "selections.jsonl", ("round",)),
        environment=read_json(path / "environment.json"),
        model=read_json(path / "model.json"),
        coverage=read_json(path / "coverage.json"),
        confusion=read_json(path / "confusion.json"),
        notes=_read_notes(path / "notes.json"),
    )


def is_run(path: Path) -> bool:
    """Whether a directory holds a run."""
    return os.path.isfile(path / "settings.toml")  # unlike Path.is_file, never raises


def _read_notes(path: Path) -> list[str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from None
    return [str(note) for note in found] if isinstance(found, list) else []


def _read_lines(path: Path, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    try:
        lines = read_jsonl(path)
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or any(key not in line for key in needed):
            raise RunDirectoryError(f"{path}, line {number}: not a line that chase wrote (it lacks {needed[-1]!r})")
    return lines


def read_json(path: Path) -> Values:
    """A file of one JSON object; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def find_runs(places: Sequence[Path]) -> list[RunData]:
    """The runs in these places with at least one round: run directories, or directories that contain some."""
    paths: list[Path] = []
    for place in places:
        inside = [place] if is_run(place) else runs_below(place)
        if not inside:
            if has_rounds(place):
                raise RunDirectoryError(no_run_in(place))
            hint = "it holds no settings.toml, nor do its directories" if place.exists() else "it does not exist"
            command = f"chase run --out {shlex.quote(str(place))}"
            raise RunDirectoryError(f"{place} has no run in it: {hint}; `{command}` makes one")
        paths += [path for path in inside if path not in paths]
    runs = [read_run(path) for path in paths]
    begun = [run for run in runs if run.metrics]
    if not begun:
        raise RunDirectoryError(
            f"{', '.join(map(str, places))}: no round is finished yet, so there is nothing to report; "
            f"resume with `{runs[0].resume_command}`"
        )
    return without_copies(begun)


def runs_below(place: Path) -> list[Path]:
    """Runs in a directory, and those of comparisons in it; studies in it have pages of their own."""
    found = []
    for inside in sorted(p for p in place.glob("*") if p.is_dir()):
        if is_run(inside):
            found.append(inside)
        elif not any(inside.glob("*.study.json")):
            found += sorted(p.parent for p in inside.glob("*/settings.toml"))
    return found


def without_copies(runs: Sequence[RunData]) -> list[RunData]:
    """Each run once, the longest of its copies, which notes them: a copy is no second seed.

    Two runs of the same settings and seed are copies where everything in them is simulated; where people label, only if
    they have the same id.
    """
    found: dict[tuple[object, ...], list[RunData]] = {}
    for run in runs:
        same = {key: value for key, value in sorted(run.settings.items()) if key not in NO_EFFECT}
        people = run.settings.get("annotator") == "page" or kind_of(run.path, run.environment) == "federation"
        which = run.environment.get("run", str(run.path)) if people else ""
        found.setdefault((repr(same), which), []).append(run)
    kept = []
    for copies in found.values():
        longest = max(copies, key=lambda run: len(run.metrics))
        others = [str(run.path) for run in copies if run is not longest]
        if others:
            note = f"left out, because it has the same settings and seed as {longest.path}: {', '.join(others)}"
            longest = replace(longest, notes=[*longest.notes, note])
        kept.append(longest)
    return kept


def differing(runs: Sequence[Values], apart: frozenset[str] = frozenset()) -> list[str]:
    """The keys in which settings differ, in their own order, those ``apart`` left out."""
    keys = dict.fromkeys(key for settings in runs for key in settings if key not in apart)
    return [key for key in keys if len({repr(settings.get(key)) for settings in runs}) > 1]


def by_method(runs: Sequence[RunData]) -> list[MethodRuns]:
    """Runs grouped by everything but their seed, in order of first appearance, each group by seed."""
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        same = {key: value for key, value in sorted(run.settings.items()) if key not in NOT_THE_METHOD}
        groups.setdefault(repr(same), []).append(run)
    members = [sorted(group, key=lambda run: run.seed) for group in groups.values()]
    labels = labels_of([group[0].settings for group in members])
    return [MethodRuns(label, group) for label, group in zip(labels, members, strict=True)]


def labels_of(settings: Sequence[Values]) -> list[str]:
    """A short name for each: its strategy, and the settings that tell it from the others; local is what `model` is."""
    apart = NOT_THE_METHOD | {"strategy"}
    named = dict.fromkeys(differing(settings, apart | SET_BY_STRATEGY))
    for strategy in {str(s.get("strategy")) for s in settings}:
        alike = [s for s in settings if str(s.get("strategy")) == strategy]
        named |= dict.fromkeys(differing(alike, apart))
    told = [[key for key in named if key != "model" or reads_global(s)] for s in settings]
    return [
        ", ".join([str(s.get("strategy", "?"))] + [_said(key, s.get(key)) for key in keys])
        for s, keys in zip(settings, told, strict=True)
    ]


def reads_global(settings: Values) -> bool:
    """Whether a strategy was told to score with the global model; a closed-form learner has no other."""
    return settings.get("model") == "global" and settings.get("learner") != "closed-form"


def _said(key: str, value: Any) -> str:
    if key in ("data", "behaviour", "partition", "net", "learner"):
        return str(value)
    if key == "head":
        return f"{value} head"
    if isinstance(value, bool):
        return key if value else f"no {key}"
    return f"{key} {value}"
