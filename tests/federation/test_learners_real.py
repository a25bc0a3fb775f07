"""Sums instead of weights on real processes: the closed-form learner, and a network with a solved last layer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation.real import Real, assert_same, assert_sound, federation_settings, running, saved_state, simulated
from federation.test_care_real import extend
from federation.test_faults import start_changed
from support import final_weights

from chase.federation.diary import events
from chase.federation.ops.launch import server_lives
from chase.federation.rollback import roll_back
from chase.federation.status_view import snapshot
from chase.run.checkpoint import Checkpoint
from chase.run.record import Record

pytestmark = [pytest.mark.federation, pytest.mark.timeout(900)]
LIMIT = 800.0
CLOSED = {"learner": "closed-form", "filters": 8, "fit_passes": 2, "strategy": "margin", "min_labels": 8}
HEAD = {"head": "closed-form", "strategy": "random", "min_labels": 8}


def saved(run: Path) -> dict[str, np.ndarray]:
    """Everything that the server keeps after the last round."""
    checkpoint = Checkpoint(run / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    return checkpoint.read_arrays(manifest.server)


def close(one: dict[str, np.ndarray], other: dict[str, np.ndarray], share: float) -> None:
    """Equal up to a share of the largest number."""
    assert one.keys() == other.keys()
    for name in one:
        size = max(1.0, float(np.abs(other[name]).max()))
        assert np.abs(one[name] - other[name]).max() <= share * size, name


@pytest.mark.parametrize("learner", [CLOSED, HEAD], ids=["closed-form", "solved head"])
def test_sums_of_real_sites_give_the_model_of_the_simulation_bit_for_bit(
    tmp_path: Path, learner: dict[str, Any]
) -> None:
    settings = federation_settings(**learner)
    with running(tmp_path / "fed", settings, LIMIT) as real:
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 3, 3]
        assert real.told("refused") == real.told("failed") == []
    simulation = simulated(tmp_path / "sim", settings)
    assert_same(real, simulation)
    close(saved(real.run), saved(simulation), 0.0)
    assert_sound(real, 2 * settings.budget)


@pytest.mark.parametrize(("learner", "share"), [(CLOSED, 0.0), (HEAD, 1e-5)], ids=["closed-form", "solved head"])
def test_masked_sums_of_real_sites_give_the_same_model(tmp_path: Path, learner: dict[str, Any], share: float) -> None:
    """Bit for bit where all that is summed are whole numbers, else within the fixed point."""
    settings = federation_settings(**learner)
    with running(tmp_path / "fed", settings, LIMIT, secure=True) as real:
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 3, 3]
        assert [line["clients"] for line in metrics] == [{}, {}, {}]
        assert real.told("no sum") == []
    simulation = simulated(tmp_path / "sim", settings)
    close(saved(real.run), saved(simulation), share)
    if not share:
        assert final_weights(real.run) == final_weights(simulation)
    theirs = Record.open(simulation).metrics
    assert [line["labels"] for line in metrics] == [line["labels"] for line in theirs]
    assert_sound(real, 2 * settings.budget)


REMOVES = """
        update = honest(*args)
        if args[3].round != 2:
            return update
        counts = update.extras["sum.counts"] * 0 - 500
        return replace(update, extras={**update.extras, "sum.counts": counts})
"""


def test_a_site_whose_sums_are_refused_is_named_and_sends_them_again(tmp_path: Path) -> None:
    settings = federation_settings(**CLOSED | {"min_labels": 1})
    with running(tmp_path / "fed", settings, LIMIT, absent=("site-b",), join=300.0) as real:
        start_changed(real, "site-b", REMOVES, tmp_path / "change")
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 2, 3]
        assert list(metrics[1]["sites"]["refused"]) == ["site-b"]
        assert real.told("refused") == [(2, "site-b")]
        why = next(e["why"] for e in events(real.run) if e["what"] == "refused")
        assert "removes labels that the server does not have" in why
        assert "refused" in [e["what"] for e in snapshot(real.loopback.federation)["events"]]
        assert "removes labels that the server does not have" in (real.run / "report.html").read_text()
    assert_each_label_counts_once(real)
    assert_sound(real, 2 * settings.budget)


def assert_each_label_counts_once(real: Real) -> None:
    states = [saved_state(home) for home in real.loopback.homes.values()]
    held = sum(np.bincount(s.labels_of(s.pools.labeled), minlength=10) for s in states)
    assert saved(real.run)["sums/counts"].tolist() == held.tolist()


def test_every_label_counts_once_after_a_site_was_restored_and_the_server_rolled_back(tmp_path: Path) -> None:
    settings = federation_settings(**CLOSED | {"min_labels": 1, "rounds": 2})
    with running(tmp_path / "fed", settings, LIMIT) as real:
        real.finish()
        home = real.loopback.homes["site-b"]
        real.supervisor.stop("site-b")
        shutil.copytree(home, tmp_path / "copy")
        real.loopback.start_site(real.supervisor, "site-b")
        extend(real, 4)
        real.finish()
        assert_each_label_counts_once(real)
        real.supervisor.stop("site-b")
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "copy", home)
        real.loopback.start_site(real.supervisor, "site-b")
        extend(real, 6)
        metrics = real.finish()
        assert [line["took_part"] for line in metrics] == [3, 3, 3, 3, 2, 3]
        assert "out of step with the server" in metrics[4]["sites"]["refused"]["site-b"]
        assert real.told("rolled back") == [(4, "site-b")]  # by the handshake, before the next round
        assert real.told("sums restarted") == [(5, "")]
        assert_each_label_counts_once(real)
        real.until(lambda _: not server_lives(real.run))
        roll_back(real.loopback.federation, 3)
        real.watch.begin()
        assert [line["took_part"] for line in real.finish()] == [3, 3, 3, 3, 3, 3]
    assert_each_label_counts_once(real)
