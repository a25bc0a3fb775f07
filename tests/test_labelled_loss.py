"""What a method trains beside the plain loss: when it is on, what travels, and what selection sees of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from fakes import fake_pool
from support import Site, small_settings

from chase.acquisition.tod import TemporalDiscrepancy
from chase.client.choose import models
from chase.core.messages import ClientUpdate
from chase.core.randomness import rng
from chase.learning.loss_prediction import loss_extras
from chase.models.catalog import NetSpec
from chase.server.server import Server, new_start

SPEC = NetSpec("tiny-cnn", (1, 8, 8), 2, 0.0)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_compensation_is_off_in_the_first_turn_and_after_a_fresh_start() -> None:
    """The server model's passes are counted: none in turn 0, none where training begins anew."""
    settings = small_settings(strategy="kafal", behaviour="free", period=99)
    site = Site(settings, period=99)
    assert site.turn(1).update.metrics["inferences"] == 0
    site.turn(2)  # asks once
    steps = sum(min(10, 11 - at) for at in range(0, 11, 10))
    assert site.turn(3).update.metrics["inferences"] == 3 * (steps - 1)  # a last batch of one has no other to mix with
    assert site.turn(4, start=site.weights).update.metrics["inferences"] == 0


def test_a_clients_module_goes_up_and_selection_reads_its_own_or_the_servers() -> None:
    settings = small_settings(strategy="ll4al")
    site, first = Site(settings), new_start(SPEC, settings)
    sent = site.turn(1, extras=first.extras).update.extras
    assert sent.keys() == first.extras.keys()
    assert not same(dict(sent), dict(first.extras))
    seen = models(site.context, site.store.state, replace(site.order(2), extras=first.extras)).losses
    assert same(dict(seen["local"]), dict(sent))
    assert same(dict(seen["global"]), dict(first.extras))


def test_a_fresh_start_begins_the_module_anew_too() -> None:
    """With a learning rate of nearly nothing the module comes back as it was begun."""
    settings = small_settings(strategy="ll4al", lr=1e-9)
    site, first, other = Site(settings), new_start(SPEC, settings), new_start(SPEC, settings, 1)
    extras = {**first.extras, **{f"start.{name}": array for name, array in other.extras.items()}}
    sent = site.turn(1, extras=extras, start=other.weights).update.extras
    assert all(np.allclose(sent[name], other.extras[name], atol=1e-4) for name in other.extras)
    assert not all(np.allclose(sent[name], first.extras[name], atol=1e-4) for name in first.extras)
    assert same(loss_extras(extras, "start."), dict(other.extras))


def test_modules_are_averaged_by_labelled_set_size() -> None:
    settings = small_settings(strategy="ll4al", clients=2)
    first = new_start(SPEC, settings)
    server = Server("run", settings, first.weights, first.extras, SPEC)
    orders = server.orders(1)

    def update(client: int, value: float, count: int) -> ClientUpdate:
        extras = {name: np.full_like(array, value) for name, array in first.extras.items()}
        return ClientUpdate(client, 1, first.weights, count, {}, extras)

    server.aggregate(orders, [update(0, 1.0, 30), update(1, 5.0, 10)])
    assert all(np.allclose(array, 2.0) for array in server.extras.values())


def test_a_fresh_start_forgets_the_servers_momentum() -> None:
    settings = small_settings(strategy="random", form="reset", server="fedavgm", clients=1)
    first = new_start(SPEC, settings)
    server = Server("run", settings, first.weights, spec=SPEC)
    for round in (1, 2):
        orders = server.orders(round)
        begun = orders[0].origin
        moved = {name: array + np.float32(1) for name, array in begun.items()}
        server.aggregate(orders, [ClientUpdate(0, round, moved, 5, {})])
        assert all(np.allclose(server.weights[name], begun[name] + 1, atol=1e-5) for name in begun)


def test_tod_looks_at_the_model_before_and_no_other() -> None:
    now, before = np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([[0.9, 0.1], [0.1, 0.9]])
    pool = fake_pool(probs=now)
    pool.probs = lambda which=None: {None: now, "before": before}[which]
    assert TemporalDiscrepancy().select(pool, 1, rng(0, "t")).tolist() == [1]
