from __future__ import annotations

import numpy as np
import pytest
import torch
from support import blobs, ids, tiny_net

from chase.acquisition.catalog import METHODS, find_method
from chase.acquisition.feal import feal
from chase.acquisition.pool_view import Models, PoolView
from chase.acquisition.strategy import picks_by_chance, top_k
from chase.client.choose import count_picks
from chase.client.context import Costs
from chase.core.errors import SettingsError
from chase.core.randomness import rng
from chase.models.net import get_weights


def make_view(candidates: np.ndarray, ev: list[int] | None = None, local: bool = True) -> PoolView:
    samples, labels = blobs(30)
    weights = {"global": get_weights(tiny_net(seed=0))} | ({"local": get_weights(tiny_net(seed=1))} if local else {})
    changes = np.array(ev if ev is not None else np.zeros(candidates.size), dtype=np.int64)
    return PoolView(
        candidates,
        samples,
        Models(tiny_net(), weights),
        label_changes=changes,
        classes_seen=changes + 1,
        labeled_ids=ids(0, 1, 2),
        labeled_classes=labels[:3],
        num_classes=2,
    )


def test_top_k_takes_the_highest_best_first() -> None:
    assert top_k(ids(4, 9, 7, 2), np.array([0.1, 0.9, 0.5, 0.7]), 3, rng(0, "t")).tolist() == [9, 2, 7]
    assert top_k(ids(4, 9), np.array([1.0, 2.0]), 5, rng(0, "t")).tolist() == [9, 4]
    assert top_k(ids(), np.array([]), 5, rng(0, "t")).tolist() == []


def test_ties_are_broken_by_the_generator_and_never_by_order() -> None:
    first = [int(top_k(ids(1, 2, 3, 4), np.array([5.0, 5.0, 5.0, 0.0]), 1, rng(i, "t"))[0]) for i in range(300)]
    assert set(first) == {1, 2, 3}
    assert min(first.count(i) for i in (1, 2, 3)) > 70
    shuffled = rng(0, "shuffle").permutation(20)
    scores = shuffled % 4
    a = top_k(np.sort(shuffled), np.sort(shuffled) % 4, 9, rng(3, "t"))
    assert top_k(shuffled, scores, 9, rng(3, "t")).tolist() == a.tolist()


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(SettingsError, match="1 scores are not finite"):
        top_k(ids(1, 2), np.array([1.0, np.nan]), 1, rng(0, "t"))


def test_what_is_looked_at_is_counted_once() -> None:
    view = make_view(ids(10, 11, 12, 13))
    assert view.inferences == 0
    assert not view.inferred.any()
    view.probs("local")
    view.logits("local")
    assert view.inferences == 4
    assert view.inferred.all()
    view.probs("global")
    assert view.inferences == 8
    view.labeled_features("global")
    assert view.inferences == 11


def test_a_view_shows_the_models_that_were_asked_for() -> None:
    samples, _ = blobs(30)
    candidates = ids(10, 20)
    with torch.no_grad():
        for which, seed in (("global", 0), ("local", 1)):
            expected = tiny_net(seed=seed).eval()(samples.ready(torch.tensor([10, 20])))
            view = make_view(candidates)
            assert np.allclose(view.logits(which), expected.numpy(), atol=1e-6)
            assert np.allclose(view.probs(which), expected.double().softmax(1).numpy(), atol=1e-6)


def test_the_local_model_must_be_declared() -> None:
    with pytest.raises(SettingsError, match=r"which its .needs. do not declare"):
        make_view(ids(10), local=False).probs("local")


def test_ev_takes_the_most_changeable() -> None:
    view = make_view(ids(10, 11, 12, 13), [0, 5, 2, 9])
    assert METHODS["ev"].strategy().select(view, 2, rng(0, "t")).tolist() == [13, 11]
    assert view.inferences == 0, "EV was measured in training and costs nothing now"


def test_gev_reads_both_models() -> None:
    view = make_view(ids(10, 11, 12), [0, 0, 5])
    assert METHODS["+gev"].strategy().select(view, 1, rng(0, "t")).tolist() == [12]
    assert view.inferences == 6


def test_feal_shows_its_scores_so_that_ties_are_counted() -> None:
    view = make_view(ids(10, 11, 12, 13))
    chosen = METHODS["feal"].strategy().select(view, 2, rng(0, "t"))
    assert view.scores == pytest.approx(feal(view.logits("global"), view.logits("local")))
    costs = Costs()
    count_picks(view, chosen, costs)
    assert (costs.picks, costs.ranked_picks) == (2, 2)


def test_random_is_random_and_looks_at_nothing() -> None:
    picks = [int(METHODS["random"].strategy().select(make_view(ids(1, 2, 3)), 1, rng(i, "t"))[0]) for i in range(150)]
    assert min(picks.count(i) for i in (1, 2, 3)) > 30


@pytest.mark.parametrize(
    "name", ["chas", "nowhere.module:Thing", "chase.server.server:Nothing", "chase.server.server:Server"]
)
def test_a_strategy_that_cannot_be_had_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        find_method(name)


@pytest.mark.parametrize("name", [":Thing", ".relative:Thing"])
def test_a_path_without_a_module_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"strategy '.*Thing': cannot import"):
        find_method(name)


def test_a_strategy_of_ones_own() -> None:
    method = find_method("chase.acquisition.random:Random")
    assert method.make({}).needs == frozenset()
    assert (method.align, method.freeze, method.subset) == ("none", False, False)


@pytest.mark.parametrize(
    ("scores", "chosen", "by_chance"),
    [
        ([3, 2, 1, 0], [3, 2], 0),
        ([3, 1, 1, 1], [3, 1], 1),
        ([3, 1, 1, 0], [3, 1, 1], 0),
        ([0, 0, 0, 0], [0, 0, 0], 3),
        ([0, 0, 0], [0, 0, 0], 0),
        ([1.0], [], 0),
    ],
)
def test_picks_that_only_the_tie_break_decided(scores: list[float], chosen: list[float], by_chance: int) -> None:
    assert picks_by_chance(np.array(scores, float), np.array(chosen, float)) == by_chance
