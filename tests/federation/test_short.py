"""The short form of the federation's tests: one real federation, one kill."""

from __future__ import annotations

from pathlib import Path

from federation.real import assert_same, assert_sound, federation_settings, running, simulated


def test_a_killed_server_goes_on_and_the_weights_are_those_of_a_simulation(tmp_path: Path) -> None:
    """Three sites, two rounds, TLS and authenticated nodes; the server is killed while round 2 is being trained."""
    settings = federation_settings(rounds=2)
    with running(tmp_path / "fed", settings) as real:
        real.training(2, "site-b")
        real.kill_server()
        metrics = real.finish()
        assert [line["round"] for line in metrics] == [1, 2]
        assert [line["took_part"] for line in metrics] == [3, 3]
        assert real.told("resumed") == [(1, "")]
        assert real.told("server gone") == [(0, "")]
        assert real.watch.submitted == 2
    assert_same(real, simulated(tmp_path / "sim", settings))
    assert_sound(real, asked_at_most=settings.budget)
