"""Partitions: nobody shares a sample, the same seed gives the same parts, and each keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.data import partition


@st.composite
def labelled(draw, least_per_class=1):
    """Labels of 2 to 12 classes of uneven sizes, in mixed order, some of them unknown."""
    sizes = draw(st.lists(st.integers(least_per_class, 60), min_size=2, max_size=12))
    unknown = draw(st.integers(0, 10))
    labels = np.concatenate([np.full(n, c) for c, n in enumerate(sizes)] + [np.full(unknown, -1)])
    return np.random.default_rng(draw(st.integers(0, 1000))).permutation(labels).astype(np.int64)


def assert_partition(parts, labels, whole=True):
    every = np.concatenate(parts)
    assert np.unique(every).size == every.size
    if whole:
        assert every.size == labels.size
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


def assert_same(first, second):
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@given(labelled(), st.integers(1, 15), st.integers(0, 5), st.data())
def test_by_classes(labels, clients, seed, data):
    classes = np.unique(labels[labels >= 0])
    per_client = data.draw(st.integers(1, classes.size))
    parts = partition.by_classes(labels, clients, per_client, seed)
    enough = clients * per_client >= classes.size
    assert_partition(parts, labels, whole=enough)
    assert_same(parts, partition.by_classes(labels, clients, per_client, seed))
    for part in parts:
        assert np.unique(labels[part][labels[part] >= 0]).size <= per_client
    if enough:
        assert np.array_equal(np.unique(labels[np.concatenate(parts)][labels[np.concatenate(parts)] >= 0]), classes)


@given(labelled(least_per_class=25), st.integers(1, 4), st.sampled_from([0.3, 1.0, 100.0]), st.integers(0, 5))
def test_dirichlet(labels, clients, alpha, seed):
    try:
        parts = partition.dirichlet(labels, clients, alpha, seed)
    except DataError:
        assert alpha < 100
        reject()
    assert_partition(parts, labels)
    assert_same(parts, partition.dirichlet(labels, clients, alpha, seed))
    assert min((labels[part] >= 0).sum() for part in parts) >= partition.LEAST


def test_dirichlet_is_uneven_for_small_alpha_and_even_for_large():
    labels = np.repeat(np.arange(10), 500)

    def spread(alpha):
        counts = [np.bincount(labels[p], minlength=10) for p in partition.dirichlet(labels, 10, alpha, 0)]
        return float(np.std(counts))

    assert spread(1000.0) < 20 < 100 < spread(0.01)


def test_dirichlet_shares_follow_the_distribution():
    """Of one class among clients that are never full, the variance of a share is that of Dirichlet(alpha)."""
    labels = np.repeat([0, 1], [200, 10_000])
    shares = []
    for seed in range(300):
        parts = partition.dirichlet(labels, 5, 1.0, seed, least=0)
        sizes = np.array([(labels[p] == 0).sum() for p in parts])
        if all((labels[p] == 1).sum() < 2040 for p in parts):
            continue
        shares.append(sizes / 200)
    expected = (1 / 5) * (4 / 5) / (5 * 1.0 + 1)
    assert np.mean([s.sum() for s in shares]) == pytest.approx(1.0)
    assert 0.5 * expected < np.var(np.array(shares)[:, 0]) < 2.5 * expected


def test_dirichlet_refusals():
    labels = np.repeat(np.arange(4), 30)
    with pytest.raises(DataError, match="alpha = 0"):
        partition.dirichlet(labels, 3, 0.0, 0)
    with pytest.raises(DataError, match="use fewer clients"):
        partition.dirichlet(labels, 13, 1.0, 0)
    with pytest.raises(DataError, match="larger alpha"):
        partition.dirichlet(labels, 12, 1e-6, 0)


def dealt_by_sorting(labels, clients, seed):
    """The plain way to deal: sort all rows by owner, then cut."""
    draw = rng(seed, "partition", "iid")
    rows = np.concatenate([draw.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)])
    owner = draw.permutation(clients)[np.arange(rows.size) % clients]
    order = np.lexsort((rows, owner))
    return np.split(rows[order], np.cumsum(np.bincount(owner, minlength=clients))[:-1])


@given(labelled(), st.integers(1, 90), st.integers(0, 5))
def test_iid_deals_as_the_plain_way(labels, clients, seed):
    assert_same(partition.iid(labels, clients, seed), dealt_by_sorting(labels, clients, seed))


@given(labelled(), st.integers(1, 15), st.integers(0, 5))
def test_iid_is_stratified(labels, clients, seed):
    parts = partition.iid(labels, clients, seed)
    assert_partition(parts, labels)
    assert_same(parts, partition.iid(labels, clients, seed))
    sizes = [part.size for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for c in np.unique(labels):
        counts = [(labels[part] == c).sum() for part in parts]
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=10), st.integers(0, 5), st.data())
def test_natural(sizes, seed, data):
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int64)
    clients = data.draw(st.integers(1, len(sizes)))
    owners = partition.natural_owners(sizes, clients, 0, seed)
    assert np.unique(owners).size == clients
    assert np.array_equal(owners, partition.natural_owners(sizes, clients, 0, seed))
    parts = partition.natural(groups, owners)
    assert_partition(parts, groups, whole=clients == len(sizes))
    for owner, part in zip(owners, parts, strict=True):
        assert np.array_equal(part, np.flatnonzero(groups == owner))


def test_natural_takes_only_owners_that_are_large_enough():
    assert partition.natural_owners([5, 20, 21, 100], 2, 20, 0).tolist() == [2, 3]
    with pytest.raises(DataError, match="2 owners with more than 20 samples"):
        partition.natural_owners([5, 20, 21, 100], 3, 20, 0)


@given(st.integers(2, 8), st.integers(0, 20), st.data())
def test_shards_reference(classes, seed, data):
    clients = data.draw(st.integers(1, 12))
    per_client = data.draw(st.integers(1, classes))
    labels = np.repeat(np.arange(classes), 5 * clients * per_client)
    parts = partition.shards_reference(labels, clients, per_client, seed)
    assert_same(parts, partition.shards_reference(labels, clients, per_client, seed))
    shard = labels.size // (clients * per_client)
    for part in parts:
        assert part.size == per_client * shard
        assert np.array_equal(part // shard * shard, np.repeat(np.unique(part // shard), shard) * shard)


def test_shards_reference_shares_samples_and_leaves_a_third_unused():
    labels = np.repeat(np.arange(10), 600)
    unused, shared = [], 0
    for seed in range(40):
        every = np.concatenate(partition.shards_reference(labels, 10, 2, seed))
        unused.append(1 - np.unique(every).size / labels.size)
        shared += np.unique(every).size < every.size
    assert np.mean(unused) == pytest.approx(0.9**10, abs=0.04)
    assert shared == 40


def test_more_classes_per_client_than_classes_are_refused():
    labels = np.repeat(np.arange(3), 20)
    for divide in (partition.by_classes, partition.shards_reference):
        with pytest.raises(DataError, match=r"classes_per_client = 4.*give at most 3"):
            divide(labels, 2, 4, 0)
