"""Live progress of a run."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from chase.report.tables import duration
from chase.settings import Settings


def percent(value: float | None) -> str:
    """0.8301 -> 83.0 %."""
    return "-" if value is None else f"{100 * value:.1f} %"


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
            f"  labels {metrics['labels']}{ev}  {metrics['seconds']:.2f} s per round  {duration(left)} left"
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
