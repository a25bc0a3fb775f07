"""A run for a notebook: its metrics, questions and clients as pandas frames, its figures inline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chase.core.errors import RunDirectoryError, unknown
from chase.core.files import write_atomically
from chase.report import runs
from chase.report.runs import Quantity, RunData, accuracy, frozen_share, metric

if TYPE_CHECKING:
    import pandas as pd

FRAME_KEYS = ("clients", "client_scores", "per_class", "seconds_by_phase", "pools", "asked_classes")
"""What of a line of metrics.jsonl is a table of its own, or spread over columns."""


@dataclass(frozen=True)
class Figure:
    """A figure that a notebook shows by itself; ``save`` writes it as SVG."""

    title: str
    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write it to a file."""
        write_atomically(Path(path), self.svg.encode())
        return Path(path)


@dataclass(frozen=True, repr=False)
class Run:
    """What a run left behind in its directory."""

    data: RunData

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.data.path

    @property
    def settings(self) -> Mapping[str, Any]:
        """All settings by name, as ``settings.toml`` holds them."""
        return self.data.settings

    @property
    def notes(self) -> list[str]:
        """What the run noted, such as classes that nobody holds."""
        return list(self.data.notes)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row per round, by round: scores, labels, costs, ``pool_...`` and ``seconds_...`` of phases."""
        import pandas as pd

        rows = []
        for line in self.data.metrics:
            row = {key: _cell(value) for key, value in line.items() if key not in FRAME_KEYS and _plain(value)}
            row |= {f"pool_{name}": size for name, size in line.get("pools", {}).items()}
            row |= {f"seconds_{name}": value for name, value in line.get("seconds_by_phase", {}).items()}
            rows.append(row)
        return pd.DataFrame(rows, columns=None if rows else ["round"]).set_index("round")

    @cached_property
    def selections(self) -> pd.DataFrame:
        """A row per question: round, client, sample, EV, answer."""
        import pandas as pd

        empty = ["round", "client", "turn", "sample", "ev", "strategy", "label"]
        return pd.DataFrame(list(self.data.selections), columns=None if self.data.selections else empty)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """A row per round and client: labels and the sizes of its pools."""
        import pandas as pd

        rows = [
            {"round": line["round"], "client": int(client), **values}
            for line in self.data.metrics
            for client, values in (line.get("clients") or {}).items()
        ]
        return pd.DataFrame(rows, columns=None if rows else ["round", "client"]).set_index(["round", "client"])

    @cached_property
    def classes(self) -> pd.DataFrame:
        """Test accuracy by class: a row per evaluated round, a column per class."""
        import pandas as pd

        lines = [line for line in self.data.metrics if line.get("per_class")]
        index = pd.Index([line["round"] for line in lines], name="round")
        return pd.DataFrame([line["per_class"] for line in lines], index=index, columns=self.data.classes)

    def figure(self, name: str = "accuracy") -> Figure:
        """One figure of the run: see ``FIGURES`` for the names."""
        if name not in FIGURES:
            raise RunDirectoryError(unknown("figure", name, FIGURES))
        from chase.report import plots
        from chase.report.standalone import standalone

        title, xlabel, ylabel, x, y = FIGURES[name]
        (method,) = runs.by_method([self.data])
        curve = plots.curve(method, x, y) if self.data.metrics else None
        if curve is None:
            raise RunDirectoryError(f"{self.path} has no value for the figure '{name}'")
        return Figure(title, standalone(plots.lines(title, xlabel, ylabel, [curve])))

    def report(self) -> Path | None:
        """Write ``report.html`` into the run directory; None before the first round."""
        from chase.report.html import report_run

        return report_run(self.path)

    @property
    def title(self) -> str:
        """The run in a line: method, data, seed and how many rounds are done."""
        known, rounds = self.settings, len(self.data.metrics)
        return f"{known.get('strategy')} on {known.get('data')}, seed {self.data.seed}: {rounds} rounds"

    def __repr__(self) -> str:
        return f"<Run {self.path}: {self.title}>"

    def _repr_html_(self) -> str:
        from chase.report.markup import html_table
        from chase.report.tables import round_by_round

        return str(html_table(round_by_round(self.data, title=self.title), note=str(self.path)))


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _cell(value: Any) -> Any:
    """NaN for what was not measured, so that a column of numbers stays one."""
    return math.nan if value is None else value


def _rounds(run: RunData) -> Any:
    return run.rounds.astype(float)


FigureMaker = tuple[str, str, str, Quantity, Quantity]
_FROZEN: Callable[[RunData], Any] = lambda run: 100.0 * frozen_share(run)  # noqa: E731
FIGURES: dict[str, FigureMaker] = {
    "accuracy": ("Accuracy over rounds", "round", "test accuracy (%)", _rounds, accuracy),
    "labels": ("Accuracy over labels", "labels given on request", "test accuracy (%)", metric("labels"), accuracy),
    "loss": ("Test loss", "round", "cross-entropy", _rounds, metric("test_loss")),
    "ev": ("Mean epistemic variation", "round", "mean EV", _rounds, metric("mean_ev")),
    "frozen": ("Frozen share", "round", "dormant (%)", _rounds, _FROZEN),
    "inferences": ("Inferences per round", "round", "forward passes", _rounds, metric("inferences")),
}
"""Title, axes and quantities of each figure, by name."""


def read_run(directory: str | Path) -> Run:
    """The run in a directory, as frames and figures."""
    return Run(runs.read_run(Path(directory)))


__all__ = ["FIGURES", "Figure", "Run", "read_run"]
