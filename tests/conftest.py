"""What all tests share: one thread, and property tests that repeat exactly."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch
from forked import SUBPROCESS
from hypothesis import settings as hypothesis_settings

from chase.data.resident import DataSet
from chase.data.sources import digits as load_digits
from chase.report import html, style
from chase.simulation import engines, workers

torch.set_num_threads(1)
# A suite started in the background of a shell inherits an ignored SIGINT and would pass that on to the programs
# that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis_settings.register_profile("chase", deadline=None, derandomize=True, max_examples=100)
hypothesis_settings.load_profile("chase")

engines.cores = lambda: 1  # worker processes, which import torch for seconds, only where a test asks for them

# Files of few tests that start browsers, clusters or federations: begun last they would leave the other workers idle.
LONG = (
    "simulation/test_ray",
    "e2e/test_kill",
    "federation/test_short",
    "labelling/test_browser",
    "labelling/test_axe",
    "federation/test_private_rounds",
    "labelling/test_together",
    "labelling/test_seen",
    "federation/test_sums_in_step",
    "studies/test_studies_run",
    "library/test_notebook",
    "federation/test_private_sums",
    "labelling/test_own_data_page",
    "labelling/test_unlabelled",
    "labelling/test_run_page",
    "e2e/",
    "library/",
    "studies/test_studies_results",
    "simulation/test_engines",
    "site_room/test_cut_short",
    "labelling/test_joined_by_id",
    "test_second_opinions",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first."""
    items.sort(key=lambda item: next((at for at, name in enumerate(LONG) if name in item.nodeid), len(LONG)))


DRAW = style.drawn
DRAWN = ("report/", "library/")
"""Where figures are laid out and drawn: that takes seconds per page, and most runs in tests end with a page."""

READ = (
    "federation/test_engine",
    "federation/test_learners_real",
    "labelling/test_agreement_report",
    "labelling/test_unlabelled",
    "cli/",
    "studies/",
    "e2e/",
    "simulation/test_ray",
    "test_add_a_strategy",
    "test_comparison",
    "test_quality",
    "test_rising_loss",
)
"""Where the page of a run is made and read, with empty figures; elsewhere it is an empty page."""


@pytest.fixture(scope="module", autouse=True)
def _figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Elsewhere figures are made, but what is written is an empty one, or the whole page is empty."""

    def among(names: tuple[str, ...]) -> bool:
        return any(f"tests/{name}" in request.node.nodeid for name in names)

    with pytest.MonkeyPatch.context() as patch:
        if not among(DRAWN):
            patch.setattr(style, "drawn", lambda figure: '<svg width="1pt" height="1pt"></svg>')
        if not among(DRAWN) and not among(READ):
            patch.setattr(html, "render", lambda runs: "<!doctype html>")
        yield


@pytest.fixture
def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn for this test."""
    monkeypatch.setattr(style, "drawn", DRAW)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are forked from this one, where they would each import torch for seconds."""
    monkeypatch.setattr(workers, "subprocess", SUBPROCESS)


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_digits()
