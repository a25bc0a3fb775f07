"""The page beside a run: one client, or all of them, are labelled by people there; the others are simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from chase.home.home import Home
from chase.home.page import serving
from chase.home.team import warnings
from chase.run.experiment import Experiment

POLL_SECONDS = 0.1


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
        if settings.wait == 0:
            say(
                "rounds do not wait for you: unanswered samples wait in the inbox (--wait 60 waits up to one "
                "minute per round)"
            )
        yield lambda: wait_for_answers(home, settings.wait)
    for sentence in warnings(home):
        say(sentence)
    left = home.ledger.open_count()
    if left:
        say(f"{left} samples still wait for you: chase label {home.path}, then chase resume with more rounds")
    home.close()


def wait_for_answers(home: Home, seconds: float) -> None:
    """Until no question is open, or the time is up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and home.ledger.open_count():
        time.sleep(POLL_SECONDS)
