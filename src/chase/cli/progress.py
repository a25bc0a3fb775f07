"""Live progress of a run."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.text import Text

from chase.cli.terminal import plain_console
from chase.report.runs import main_name
from chase.report.tables import duration
from chase.run.metrics import NOT_MEASURED, accuracy_in_words, main_value
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
        self._console = plain_console(stderr=quiet, soft_wrap=True)
        self._live: Live | None = None
        self._first: tuple[int, float] | None = None
        """The first round that ended here, and when: what came before it was start-up as well."""

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
        self._console.print(text)

    def line(self, metrics: dict[str, Any]) -> str:
        """The state of the run after a round."""
        done, rounds = metrics["round"], self._settings.rounds
        left = self._pace(metrics) * (rounds - done)
        ev = "" if metrics["mean_ev"] is None else f"  EV {metrics['mean_ev']:.2f}"
        main = self._settings.main_metric
        due = done % self._settings.eval_every == 0 or done == rounds
        unknown = f"{NOT_MEASURED} yet" if self._settings.test_answers and due else "-"
        value = main_value(metrics, main)
        other = "" if main == "accuracy" else f"  {main_name(main)} {unknown if value is None else percent(value)}"
        people = self._settings.waits == math.inf  # nobody knows when they answer
        time_left = "" if people else f"  {duration(left)} left"
        return (
            f"{self._settings.strategy}  round {done}/{rounds}{other}  {accuracy_in_words(metrics, unknown)}"
            f"  labels {metrics['labels']}{ev}  {metrics['seconds']:.2f} s per round{time_left}"
        )

    def _pace(self, metrics: dict[str, Any]) -> float:
        """Seconds per round, waiting for people included; start-up is not."""
        if self._first is None or metrics["round"] <= self._first[0]:
            return float(metrics["seconds"])
        return (time.perf_counter() - self._first[1]) / (int(metrics["round"]) - self._first[0])

    def round_done(self, metrics: dict[str, Any]) -> None:
        """Show a finished round."""
        if self._first is None:
            self._first = metrics["round"], time.perf_counter()
        if self._live is not None:
            self._live.update(Text(self.line(metrics)))
        elif not self._quiet:
            tenth = max(1, self._settings.rounds // 10)
            if metrics["round"] % tenth == 0 or metrics["round"] in (1, self._settings.rounds):
                self.say(self.line(metrics))
