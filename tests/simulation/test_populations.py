"""Natural populations by one setting, and clients that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import blobs, final_weights, small_settings, timeless

from chase.core.errors import DataError
from chase.data import sources
from chase.data.resident import DataSet
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.server.server import participants, present
from chase.simulation.world import split_among_clients, with_all_owners

OWNERS = 7


def owned() -> DataSet:
    """Owner k has 10 + k samples; owner 3 has none for training."""
    sizes = [0 if k == 3 else 10 + k for k in range(OWNERS)]
    samples, labels = blobs(sum(sizes))
    test, test_labels = blobs(20, seed=1)
    names = tuple(f"writer {k}" for k in range(OWNERS))
    groups = np.repeat(np.arange(OWNERS), sizes)
    made = DataSet("digits", samples, labels, test, test_labels, ("low", "high"))
    return replace(made, groups=groups, group_names=names, group_sizes=tuple(s or 5 for s in sizes))


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> DataSet:
    data = owned()
    monkeypatch.setattr(sources, "load", lambda *_: data)
    return data


def test_all_owners_become_clients_by_one_setting(owners: DataSet, tmp_path: Path) -> None:
    experiment = Experiment.begin(small_settings(owners="all", rounds=1, initial_labels=0.5), tmp_path / "run")
    assert experiment.record.settings.clients == OWNERS - 1
    assert experiment.coverage is not None
    assert experiment.coverage.clients == tuple(f"writer {k}" for k in range(OWNERS) if k != 3)
    experiment.run()
    assert Record.open(tmp_path / "run").settings.partition == "natural"
    assert len(Experiment.resume(tmp_path / "run", {"rounds": 2}).run()) == 2


def test_owners_keep_their_samples(owners: DataSet) -> None:
    settings = with_all_owners(small_settings(owners="all"))
    parts = split_among_clients(settings, owners)
    assert [part.size for part in parts] == [10, 11, 12, 14, 15, 16]


def test_data_without_owners_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="partition = natural, but 'digits' has no owners"):
        Experiment.begin(small_settings(owners="all", data="digits"), tmp_path / "run")


def coming(**changes: Any) -> Any:
    return small_settings(clients=400, partition="iid", away=0.25, stay=5, **changes)


def test_clients_stay_or_are_away_for_a_while_and_a_share_is_away() -> None:
    settings = coming()
    there = np.zeros((60, 400), dtype=bool)
    for round in range(1, 61):
        there[round - 1, present(settings, round)] = True
    assert abs(there.mean() - 0.75) < 0.02
    changes = there[1:] != there[:-1]
    assert 0 < changes.mean() < 2 * 0.25 * 0.75 / 5 * 1.2
    edges = [np.flatnonzero(changes[:, client]) % 5 for client in range(400)]
    assert all(np.unique(found).size <= 1 for found in edges)  # a client changes at its own cuts alone
    assert np.unique([found[0] for found in edges if found.size]).size == 5


def test_a_share_is_drawn_of_those_that_are_there() -> None:
    settings = coming(share_of_clients=0.1)
    for round in (1, 7):
        chosen = participants(settings, round)
        assert len(chosen) == 40
        assert set(chosen) <= set(present(settings, round).tolist())
    assert participants(settings, 3) == participants(settings, 3)


def test_a_run_whose_clients_come_and_go_resumes_to_the_same_bits(tmp_path: Path) -> None:
    settings = small_settings(data="digits", clients=12, away=0.4, stay=2, rounds=4, local_epochs=2, data_share=0.3)
    Experiment.begin(settings, tmp_path / "once").run()
    Experiment.begin(settings.model_copy(update={"rounds": 2}), tmp_path / "twice").run()
    Experiment.resume(tmp_path / "twice", {"rounds": 4}).run()
    once, twice = (Record.open(tmp_path / name).metrics for name in ("once", "twice"))
    assert timeless(once) == timeless(twice)
    assert final_weights(tmp_path / "once") == final_weights(tmp_path / "twice")
    assert [line["clients_here"] for line in once] == [len(present(settings, r)) for r in (1, 2, 3, 4)]
