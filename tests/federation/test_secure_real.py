"""Secure sums of real processes from which a site drops out, in each phase."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation.real import assert_sound, federation_settings, running, saved_state

pytestmark = [pytest.mark.federation, pytest.mark.timeout(900)]
LIMIT = 800.0
PHASES = {"site-b": ("shares", 1), "site-c": ("masked", 2), "site-d": ("unmask", 3)}
DIES = """
import sys
if "chase.flower.worker" in sys.orig_argv:
    import os
    from chase.federation.secure_site import SecureSite
    honest = SecureSite.STEP
    def gone(self, header):
        if int(header["of"]) == ROUND and header["job"] == "turn":
            os._exit(1)
        return honest(self, header)
    SecureSite.STEP = gone
"""


def test_a_process_that_dies_in_any_phase_of_a_secure_sum_costs_its_site_that_round_alone(tmp_path: Path) -> None:
    settings = federation_settings(clients=4, rounds=4)
    with running(tmp_path / "fed", settings, LIMIT, absent=tuple(PHASES), quorum=3, join=300.0, secure=True) as real:
        for site, (step, round) in PHASES.items():
            code = DIES.replace("STEP", step).replace("ROUND", str(round))
            real.start_changed(site, code, tmp_path / site)
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 3, 4, 4]  # the last one dies when its part is summed
        assert [line["clients"] for line in metrics] == [{}] * 4
        assert real.told("no sum") == []
        assert real.told("failed") == [(1, "site-b"), (2, "site-c"), (3, "site-d")]
        assert np.isfinite([line["test_loss"] for line in metrics]).all()
        assert metrics[-1]["test_accuracy"] > metrics[0]["test_accuracy"]
    assert_sound(real, 3 * settings.budget)
    assert [saved_state(home).turn for home in real.loopback.homes.values()] == [4, 4, 4, 4]
