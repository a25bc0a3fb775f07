"""What a strategy sees: passes with dropout, the model before, a model trained alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import Site, blobs, ids, small_settings
from torch import Tensor, nn

from chase.acquisition.pool_view import Models, PoolView
from chase.client.choose import ALONE_UNTIL, DISTILLED, TEMPERATURE, count_picks, model_before, models, pool_view
from chase.client.context import Costs
from chase.client.solved_head import SOLVED
from chase.core.errors import SettingsError
from chase.models.layers import Dropout
from chase.models.net import Net, get_weights


class Normed(Net):
    """Batch norm and dropout, to see which of them a pass with dropout switches on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.head = nn.BatchNorm1d(64), Dropout(0.5), nn.Linear(64, 2)

    def embed(self, x: Tensor) -> Tensor:
        return self.drop(self.norm(x.flatten(1)))


def view_of(net: nn.Module, seed: int = 0) -> PoolView:
    samples, labels = blobs(12)
    zero = np.zeros(8, dtype=np.int64)
    return PoolView(
        np.arange(4, 12),
        samples,
        Models(net, {"local": get_weights(net)}, seed=(seed, 1, 0)),
        label_changes=zero,
        classes_seen=zero,
        labeled_ids=ids(0, 1, 2, 3),
        labeled_classes=labels[:4],
        num_classes=2,
    )


def test_passes_with_dropout_keep_batch_norm_in_eval_and_leave_the_network_as_it_was() -> None:
    net = Normed()
    modes: list[bool] = []
    net.norm.register_forward_hook(lambda module, x, y: modes.append(module.training))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    probs = view_of(net).mc_probs(4, 0.5)
    assert probs.shape == (4, 8, 2)
    assert np.ptp(probs, axis=0).max() > 0.01  # dropout is on
    assert modes == [False] * 4
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert net.drop.source is None
    assert not net.drop.always


def test_passes_with_dropout_are_seeded_and_counted() -> None:
    view = view_of(Normed())
    torch.manual_seed(0)
    net = Normed()
    a, b, other = (view_of(net, seed).mc_probs(3, 0.5) for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, other)
    view.mc_probs(3, 0.5)
    assert view.inferences == 3 * 8


def test_cached_passes_are_kept_apart_by_dropout_and_by_pass() -> None:
    """Another rate is another set of passes; five more passes are not the first five again."""
    net = Normed()
    net.drop.p = 0.0
    view = view_of(net)
    mild, strong = view.mc_probs(2, 0.1), view.mc_probs(2, 0.9)
    assert not np.array_equal(mild, strong)
    more = view.mc_probs(4, 0.9)
    assert np.array_equal(more[:2], strong)
    assert not any(np.array_equal(more[late], more[early]) for late in (2, 3) for early in (0, 1))
    assert np.array_equal(more, view_of(net).mc_probs(4, 0.9))


def test_dropout_of_its_own_is_used_where_the_network_has_none() -> None:
    net = Normed()
    net.drop.p = 0.0
    assert np.ptp(view_of(net).mc_probs(3, 0.5), axis=0).max() > 0.01
    assert net.drop.p == 0.0


def test_a_network_without_dropout_is_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(SettingsError, match="it has none"):
        view_of(net).mc_probs(3, 0.5)


def test_features_and_probabilities_come_from_one_pass() -> None:
    torch.manual_seed(0)
    net = Normed()
    view, apart = view_of(net), view_of(net)
    view.features()
    assert np.allclose(view.logits(), apart.logits(), atol=1e-6)
    assert view.inferences == 8


def test_tod_compares_the_last_local_model_with_the_one_before() -> None:
    """Before its first turn a client's local model is the one it received."""
    site = Site(small_settings(strategy="tod"))
    received = site.weights
    sent = [dict(site.turn(1).update.weights)]
    assert same(model_before(site.store.state), received)
    for round in (2, 3):
        sent.append(dict(site.turn(round).update.weights))
        assert same(model_before(site.store.state), sent[-2])
        assert same(site.store.state.local_weights or {}, sent[-1])
    seen = models(site.context, site.store.state, site.order(4)).weights
    assert same(seen["local"], sent[-1])
    assert same(seen["before"], sent[-2])


def test_tod_on_the_global_model_compares_it_with_the_last_local_one() -> None:
    site = Site(small_settings(strategy="tod", model="global"))
    sent = dict(site.turn(1).update.weights)
    assert model_before(site.store.state) == {}
    other = {name: array + 1 for name, array in sent.items()}
    site.weights = other
    seen = models(site.context, site.store.state, site.order(2)).weights
    assert same(seen["before"], sent)
    assert same(seen["global"], other)


def test_the_model_of_one_client_alone_starts_afresh_and_stops_when_its_labels_are_learnt() -> None:
    site = Site(small_settings(strategy="logo", lr=0.05))
    site.turn(1)
    view = pool_view(site.context, site.store.state, site.order(2), site.store.state.pools.unlabeled)
    probs = view.probs("alone")
    epochs = (view.inferences - len(view)) // 6
    assert 1 <= epochs < 50
    right = (probs.argmax(axis=1) == site.truth[view.ids]).mean()
    assert right >= 0.9
    assert ALONE_UNTIL == 0.99
    hopeless = Site(small_settings(strategy="logo", lr=1e-7, alone_epochs=4))
    hopeless.turn(1)
    view = pool_view(hopeless.context, hopeless.store.state, hopeless.order(2), hopeless.store.state.pools.unlabeled)
    view.probs("alone")
    assert view.inferences == len(view) + 4 * 6


def test_the_teacher_of_the_distilled_model_is_the_model_as_received_with_its_solved_head() -> None:
    """A solved head that is the trained one changes nothing; another one teaches something else."""
    site = Site(small_settings(strategy="ifal"))
    site.turn(1)
    ids, features = site.store.state.pools.unlabeled, {}
    head = {name: array for name, array in site.weights.items() if name.startswith("head.")}
    for name, solved in {"none": {}, "the same": head, "other": {n: -a for n, a in head.items()}}.items():
        order = site.order(2, extras={f"{SOLVED}{n}": a for n, a in solved.items()})
        features[name] = pool_view(site.context, site.store.state, order, ids).features("distilled")
    assert np.array_equal(features["none"], features["the same"])
    assert not np.array_equal(features["none"], features["other"])
    assert (DISTILLED, TEMPERATURE) == (0.9, 4.0), "0.1 CE + 0.9 KD at T = 4, as published"


@pytest.mark.parametrize(
    ("groups", "chosen", "by_chance"),
    [
        (None, [0, 1], 1),  # the 5 at row 0 is the highest; one of the two 3s is drawn
        ([0, 1, 2, 0], [0, 1], 0),  # each the highest of its group, alone in it
        ([0, 1, 1, 0], [0, 1], 1),  # two 3s in one group
        ([0, 1, 1, 0], [0, 1, 2], 0),  # both of them
        ([-1, 1, 1, -1], [2], 1),
    ],
)
def test_ties_are_counted_within_the_groups_of_a_strategy(
    groups: list[int] | None, chosen: list[int], by_chance: int
) -> None:
    view = view_of(Normed())
    view.scores = np.array([5.0, 3.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    view.groups = None if groups is None else np.array([*groups, -1, -1, -1, -1])
    costs = Costs()
    count_picks(view, view.ids[chosen], costs)
    assert (costs.picks, costs.ranked_picks, costs.chance_picks) == (len(chosen), len(chosen), by_chance)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
