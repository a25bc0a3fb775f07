"""Live progress of a run, and the table at its end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chase.settings import Settings


def percent(value: float | None) -> str:
    """0.8301 -> 83.0 %."""
    return "-" if value is None else f"{100 * value:.1f} %"


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class RunProgress:
    """One line that is kept up to date: round, accuracy, labels, EV, time left.

    Where the output is no terminal, a plain line a tenth of the run.
    """

    def __init__(self, settings: Settings, quiet: bool = False) -> None:
        self._settings, self._quiet = settings, quiet
        self._console = Console(stderr=quiet, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._start, self._first_round = time.perf_counter(), 0

    def __enter__(self) -> RunProgress:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(Text("starting ..."), console=self._console, refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, markup=False)

    def line(self, metrics: dict[str, Any]) -> str:
        """The state of the run after a round."""
        done, rounds = metrics["round"], self._settings.rounds
        elapsed = time.perf_counter() - self._start
        left = elapsed / max(1, done - self._first_round) * (rounds - done)
        ev = "" if metrics["mean_ev"] is None else f"  EV {metrics['mean_ev']:.2f}"
        return (
            f"{self._settings.strategy}  round {done}/{rounds}  accuracy {percent(metrics['test_accuracy'])}"
            f"  labels {metrics['labels']}{ev}  {metrics['seconds']:.2f} s a round  {duration(left)} left"
        )

    def round_done(self, metrics: dict[str, Any]) -> None:
        """Show a finished round."""
        if self._first_round == 0:
            self._first_round = metrics["round"] - 1
        if self._live is not None:
            self._live.update(Text(self.line(metrics)))
        elif not self._quiet:
            tenth = max(1, self._settings.rounds // 10)
            if metrics["round"] % tenth == 0 or metrics["round"] in (1, self._settings.rounds):
                self.say(self.line(metrics))


def closing_table(settings: Settings, metrics: list[dict[str, Any]], reason: str) -> None:
    """A few rounds of the run, evenly spread, the last one included."""
    console = Console(highlight=False)
    table = Table(title=f"{settings.strategy} on {settings.data}: {reason}", title_justify="left")
    for name in ("round", "accuracy", "loss", "labels", "mean EV", "inferred a client", "seconds"):
        table.add_column(name, justify="right")
    step = max(1, len(metrics) // 8)
    shown = [m for m in metrics if m["round"] % step == 0 or m is metrics[-1]]
    for m in shown:
        table.add_row(
            str(m["round"]),
            percent(m["test_accuracy"]),
            "-" if m["test_loss"] is None else f"{m['test_loss']:.3f}",
            str(m["labels"]),
            "-" if m["mean_ev"] is None else f"{m['mean_ev']:.2f}",
            f"{m['inferred_samples']:.0f}",
            f"{m['seconds']:.2f}",
        )
    console.print(table)
