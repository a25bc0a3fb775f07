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


@pytest.fixture(scope="session")
def digits() -> DataSet:
    return load_digits()
