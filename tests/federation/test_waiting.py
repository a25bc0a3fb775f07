"""Updates of an open round on disk: the same mean, clipped or not, with little in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation.test_rounds import scaled
from federation.transports import ThreeSites

from chase.core.messages import ClientUpdate
from chase.federation import waiting
from chase.federation.waiting import Waiting


def update(client: int, value: float) -> ClientUpdate:
    weights = {"w": np.full(1000, value, dtype=np.float32)}
    return ClientUpdate(client, 1, weights, 3, {}, {"e": np.arange(4.0)})


def test_what_memory_does_not_hold_is_on_disk_until_it_is_wanted() -> None:
    room = Waiting(most=5000)
    kept = [room.keep(update(client, client)) for client in range(4)]
    assert [bool(u.weights) for u in kept] == [True, False, False, False]
    assert room.held <= 5000
    for client, found in enumerate(room.whole(u) for u in kept):
        assert found.weights["w"].tolist() == [float(client)] * 1000
        assert found.extras["e"].tolist() == [0.0, 1.0, 2.0, 3.0]
    directory = next(iter(room._files.values())).parent
    room.close()
    assert not directory.exists()


def test_a_cut_is_the_same_in_memory_and_on_disk() -> None:
    start = {"w": np.ones(1000, dtype=np.float32)}
    found = []
    for most in (0, 10**6):
        room = Waiting(most=most)
        kept = room.keep(update(0, 7.0))
        found.append(room.whole(room.cut(kept, start, 0.5)).weights["w"])
        room.close()
    assert found[0].tolist() == found[1].tolist() == [4.0] * 1000


def test_a_round_with_updates_on_disk_clips_and_refuses_as_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for most in (10**6, 0):
        monkeypatch.setattr(waiting, "IN_MEMORY", most)
        place = tmp_path / str(most)
        place.mkdir()
        table = ThreeSites.set(place, quorum=3)
        table.transport.scripts = {10: scaled(1.0), 11: scaled(16.0), 12: scaled(2.0)}
        outcome = table.hold(1)
        assert all(bool(u.weights) == bool(most) for u in outcome.updates.values())
        outcomes.append({c: outcome.waiting.whole(u).weights["w"].tolist() for c, u in outcome.updates.items()})
        assert outcome.clipped == {"b": 8.0}
        outcome.waiting.close()
    assert outcomes[0] == outcomes[1]
