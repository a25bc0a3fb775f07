"""What all tests share: one thread, and property tests that repeat exactly."""

from __future__ import annotations

import signal

import pytest
import torch
from hypothesis import settings as hypothesis_settings

from chase.data.resident import DataSet
from chase.data.sources import digits as load_digits

torch.set_num_threads(1)
# A suite started in the background of a shell inherits an ignored SIGINT and would pass that on to the programs
# that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis_settings.register_profile("chase", deadline=None, derandomize=True, max_examples=100)
hypothesis_settings.load_profile("chase")

# Files of few tests that start browsers, clusters or federations: begun last they would leave the other workers idle.
LONG = (
    "federation/test_up",
    "labelling/test_together",
    "labelling/test_axe",
    "labelling/test_seen",
    "labelling/test_browser",
    "simulation/test_ray",
    "e2e/",
    "labelling/test_run_page",
    "labelling/test_own_data_page",
    "studies/test_studies_run",
    "test_second_opinions",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first."""
    items.sort(key=lambda item: next((at for at, name in enumerate(LONG) if name in item.nodeid), len(LONG)))


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_digits()
