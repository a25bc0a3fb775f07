"""Updates are added as they come: the same bits in every order, and few are held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.weights import digest
from chase.server.aggregation import BLOCK, average, block_sum
from chase.server.intake import Intake, blocks_of, weighted, without_arrays
from chase.settings import Settings

CLIENTS = [*range(0, 600, 7), 999]
"""In three blocks, the last of them not full."""


def settings(**changes: Any) -> Settings:
    return Settings(clients=1000, **changes)


def update(client: int, labels: int | None = None) -> ClientUpdate:
    draw = np.random.default_rng(client)
    weights = {"w": draw.random((3, 2), dtype=np.float32), "n": np.array(client)}
    count = client % 7 + 1 if labels is None else labels
    return ClientUpdate(client, 1, weights, count, {}, {"e": draw.random(4, dtype=np.float32)})


def orders(clients: list[int]) -> dict[int, RoundOrder]:
    like = {"w": np.zeros((3, 2), np.float32), "n": np.array(0)}
    order = RoundOrder("run", 1, 0, like, extras={"e": np.zeros(4, np.float32)})
    return dict.fromkeys(clients, order)


def expected(updates: list[ClientUpdate]) -> tuple[str, str]:
    parts = [(u.client, u, float(u.num_labeled)) for u in updates if u.num_labeled]
    return (
        digest(average([(c, u.weights, weight) for c, u, weight in parts], CLIENTS)),
        digest(average([(c, u.extras, weight) for c, u, weight in parts], CLIENTS)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_is_that_of_all_updates_in_whatever_order_they_come(seed: int) -> None:
    updates = [update(client, 0 if client in (7, 210, 217) else None) for client in CLIENTS]
    intake = Intake(settings(), orders(CLIENTS))
    for at in np.random.default_rng(seed).permutation(len(updates)):
        intake.take(updates[at])
    weights, extras = intake.mean()
    assert (digest(weights), digest(extras)) == expected(updates)
    assert [u.client for u in intake.updates] == CLIENTS
    assert all(not u.weights and not u.extras for u in intake.updates)


def test_a_block_added_up_elsewhere_gives_the_same_bits() -> None:
    updates = [update(client) for client in CLIENTS]
    intake = Intake(settings(), orders(CLIENTS))
    for block, clients in reversed(blocks_of(CLIENTS).items()):
        some = [u for u in updates if u.client in clients]
        if block == 1:
            for one in reversed(some):
                intake.take(one)
        else:
            parts = [weighted(u, settings()) for u in some]
            intake.take_block(block, block_sum(block, parts), list(map(without_arrays, some)))
    weights, extras = intake.mean()
    assert (digest(weights), digest(extras)) == expected(updates)


def test_at_most_a_block_of_updates_waits() -> None:
    clients = list(range(10 * BLOCK))
    intake, held = Intake(settings(), orders(clients)), 0
    for client in clients:
        intake.take(update(client))
        held = max(held, sum(len(parts) for parts in intake._waiting.values()) + len(intake._sum._early))
    assert held < BLOCK


def test_who_does_not_answer_is_left_out_of_the_mean() -> None:
    intake = Intake(settings(), orders(CLIENTS))
    answered = [update(client) for client in (999, 0, 42)]
    for one in answered:
        intake.take(one)
    assert digest(intake.mean()[0]) == expected(answered)[0]


def test_nobody_with_labels_gives_an_empty_mean() -> None:
    intake = Intake(settings(), orders([1]))
    intake.take(update(1, 0))
    assert intake.mean() == ({}, {})


def test_updates_are_kept_where_each_is_needed() -> None:
    needed = ({"form": "isolated"}, {"client_weights": "shuffled"}, {"combine": "median"}, {"most_share": 0.5})
    for changes in needed:
        intake = Intake(settings(**changes), orders([1]))
        intake.take(update(1))
        assert intake.mean() is None
        assert intake.updates[0].weights.keys() == {"w", "n"}


def test_what_answers_no_order_or_answers_twice_is_refused() -> None:
    intake = Intake(settings(), orders([1]))
    with pytest.raises(UpdateError, match="client 2 answers no order"):
        intake.take(update(2))
    intake.take(update(1))
    with pytest.raises(UpdateError, match="client 1 arrived twice"):
        intake.take(update(1))
