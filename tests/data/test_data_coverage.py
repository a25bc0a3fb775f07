"""The coverage table and its warnings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import small_settings

from chase.cli.coverage import coverage_table
from chase.core.errors import DataError
from chase.data.coverage import coverage, warnings
from chase.run.experiment import Experiment
from chase.simulation.world import count_coverage, load_data, split_among_clients

LABELS = np.array([0, 0, 1, 1, 2, -1, 0, 2])


def rows(*numbers):
    return np.array(numbers, dtype=np.int64)


def test_counts_by_hand():
    table = coverage(LABELS, ("a", "b", "c", "d"), [rows(0, 1, 2, 5), rows(3, 4, 6, 7)], [rows(0, 2), rows(3)])
    assert table.held.tolist() == [[2, 1, 0, 0], [1, 1, 2, 0]]
    assert table.labeled.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0]]
    assert table.unknown.tolist() == [1, 0]
    assert table.samples.tolist() == [4, 4]
    assert table.classes_held.tolist() == [2, 3]


def test_warnings_name_classes_and_clients():
    table = coverage(LABELS, ("a", "b", "c", "d"), [rows(0, 1, 2, 5), rows(3, 4, 6, 7)], [rows(0, 2), rows()])
    assert warnings(table, 2) == [
        "no sample has a label yet of: d",  # it may be the class of the sample that has none
        "no client has an initial label of: c",
        "no initial label, so no training until someone labels: client 1",
    ]
    assert warnings(table, 5)[-1] == "fewer samples than one batch of 5: client 0"
    known = coverage(LABELS, ("a", "b", "c", "d"), [rows(0, 1, 2), rows(3, 4, 6, 7)], [rows(0, 2), rows()])
    assert warnings(known, 2)[0] == "no client holds any sample of: d"


def test_all_well_gives_no_warning():
    table = coverage(LABELS, ("a", "b", "c"), [rows(0, 2, 4), rows(1, 3, 7)], [rows(0, 2), rows(7)])
    assert warnings(table, 3) == []


def test_a_run_writes_its_coverage(tmp_path):
    settings = small_settings(rounds=1, classes_per_client=5)
    experiment = Experiment.begin(settings, tmp_path / "run")
    written = json.loads((tmp_path / "run" / "coverage.json").read_text())
    assert written == experiment.coverage.to_json()
    assert np.sum(written["held"]) == len(experiment.data.train)


def test_initial_labels_in_the_table_are_those_the_clients_start_with(digits):
    from chase.simulation.world import World

    settings = small_settings(initial_labels=0.1)
    parts = split_among_clients(settings, digits)
    world = World(settings, digits.train, digits.train_labels, 10, parts, digits.test)
    table = count_coverage(settings, digits, parts)
    for client in range(settings.clients):
        labels = digits.train_labels[world.start(client).pools.labeled]
        assert np.bincount(labels, minlength=10).tolist() == table.labeled[client].tolist()


def test_a_client_without_data_is_refused(digits):
    with pytest.raises(DataError, match="clients would get no sample"):
        split_among_clients(small_settings(clients=2000, classes_per_client=1), digits)


def test_natural_without_owners_is_refused(digits):
    with pytest.raises(DataError, match="has no owners"):
        split_among_clients(small_settings(partition="natural"), digits)


@pytest.mark.parametrize("name", ["classes", "dirichlet", "iid", "shards-reference"])
def test_every_partition_runs_by_its_setting(name, digits):
    parts = split_among_clients(small_settings(partition=name, alpha=1.0), digits)
    assert len(parts) == 4
    assert all(part.size for part in parts)


def test_test_limit_draws_a_fixed_part():
    first, second = (load_data(small_settings(test_limit=50)) for _ in range(2))
    assert len(first.test) == 50 == first.test_labels.size
    assert np.array_equal(first.test_labels, second.test_labels)


@pytest.mark.parametrize("clients", [3, 30])
def test_table_has_a_row_a_client_or_a_summary(clients):
    labels = np.arange(300) % 3
    parts = np.array_split(np.arange(300), clients)
    table = coverage_table(coverage(labels, ("[a]", " ", "c"), parts, parts))
    assert table.row_count == 3
