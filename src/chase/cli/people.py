"""The page beside a run: one client, or all of them, are labelled by people there; the others are simulated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from chase.core.text import counted, quoted
from chase.home.exchange import to_csv
from chase.home.home import INITIAL, Home, write_durably
from chase.home.page import serving
from chase.home.team import warnings
from chase.run.experiment import Experiment
from chase.run.metrics import stop_reason

POLL_SECONDS = 0.1
LABELS = "labels.csv"
"""In a run directory: every label of its page, as ``chase label export`` writes them."""


@contextmanager
def page_beside(
    experiment: Experiment, port: int, say: Callable[[str], None], names: Sequence[str] = ()
) -> Iterator[Callable[[], None]]:
    """Serve the page while the block runs; gives what waits, after a round, for the answers still open."""
    settings = experiment.record.settings
    if settings.annotator != "page":
        yield lambda: None
        return
    home = experiment.open_home()
    with serving.serving_beside(home, serving.Address(port=port)) as where:
        for name, link in serving.links(home, where, names or ["annotator"]).items():
            say(f"{f'{name}: ' if names else ''}label {home.card.name} at {link}")
        if not stop_reason(settings, experiment.record.metrics):
            say(how_long(settings.waits, experiment.record.path))
        told = list[str]()

        def wait() -> None:
            for sentence in (one for one in warnings(home) if settings.waits and one not in told):
                told.append(sentence)
                say(sentence)
            wait_for_answers(home, settings.waits)

        done = experiment.record.metrics
        if done and not stop_reason(settings, done):  # what was asked before the run stopped
            wait()
        yield wait
    for sentence in warnings(home):
        say(sentence)
    left = home.ledger.open_count()
    if left:
        still = f"{counted(left, 'sample')} still {'waits' if left == 1 else 'wait'} for you"
        say(f"{still}: chase label {quoted(home.path)}, then chase resume with more rounds")
    home.close()


def keep_labels(experiment: Experiment) -> tuple[Path, int, int] | None:
    """Write every label of the page into the run directory; gives the file, how many, and how many are people's.

    None where nobody labels on a page.
    """
    if experiment.record.settings.annotator != "page":
        return None
    home, file = experiment.open_home(), experiment.record.path / LABELS
    try:
        known = [line for line in home.ledger.labels() if line["label"] is not None]
        write_durably(file, to_csv(home).encode())
    finally:
        home.close()
    return file, len(known), sum(line["source"] != INITIAL for line in known)


def how_long(seconds: float, run: Path) -> str:
    """Whether rounds wait for people."""
    if seconds == 0:
        return (
            "rounds do not wait for you: unanswered samples wait in the inbox (--wait 60 waits up to one minute per "
            "round)"
        )
    if seconds < math.inf:
        return f"each round waits up to {seconds:g} seconds for your answers"
    again = quoted(run)
    return f"the run waits for your answers; stop it with Ctrl-C, continue at any time with: chase resume {again}"


def wait_for_answers(home: Home, seconds: float) -> None:
    """Until no question is open, or the time is up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and home.ledger.open_count():
        time.sleep(POLL_SECONDS)
