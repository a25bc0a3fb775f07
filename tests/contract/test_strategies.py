"""One contract that every registered strategy keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support import blobs, simulate, small_settings

from chase.acquisition.catalog import METHODS
from chase.acquisition.fairfal import pseudo_classes
from chase.acquisition.pool_view import PoolView
from chase.annotation.behaviour import Behaviour
from chase.client import choose
from chase.client.choose import BEFORE, pool_view
from chase.client.context import ClientContext
from chase.client.state import ClientState
from chase.core.messages import RoundOrder
from chase.core.randomness import rng
from chase.core.weights import Weights
from chase.data.resident import DataSet, Samples
from chase.models.catalog import NetSpec, build
from chase.models.net import get_weights
from chase.server.server import new_start
from chase.studies.estimate import TRAINED

NAMES = sorted(METHODS)
COUNT, LABELED = 30, 6


class Bench:
    """A client in the middle of a run, with a counter of forward passes outside training."""

    def __init__(
        self,
        name: str,
        *,
        classes: int = 3,
        held: int = 3,
        alike: bool = False,
        sharp: float = 1.0,
        seed: int = 0,
        count: int = COUNT,
    ) -> None:
        self.settings = small_settings(strategy=name, alone_epochs=3)
        samples, _ = blobs(count, classes=3)
        if alike:
            samples = Samples(samples.inputs[:1].expand(count, -1, -1, -1).contiguous(), mean=(0.4,), std=(0.25,))
        spec = NetSpec("tiny-cnn", (1, 8, 8), classes, 0.0)
        self.net = build(spec, 0)
        self.net.kernels = "plain"  # so that every pass goes through the counted module
        labels = np.arange(LABELED) % held
        state = ClientState.start(np.arange(count), np.arange(LABELED), labels)
        watched = state.pools.unlabeled
        changes = np.zeros(watched.size, dtype=np.int64) if alike else rng(0, "ev").integers(0, 3, watched.size)
        self.state = replace(
            state.with_tracking(watched, changes, np.minimum(changes + 1, 3)),
            turn=2,
            watched=watched,
            local_weights=self._weights(spec, 1, sharp),
            extras={f"{BEFORE}{n}": a for n, a in self._weights(spec, 2, sharp).items()},
        )
        start = new_start(spec, self.settings)
        self.order = RoundOrder("run", 3, seed, self._weights(spec, 3, sharp), extras=start.extras)
        self.context = ClientContext(0, self.settings, samples, self.net, classes, Behaviour(5, 1))
        self.passed = 0
        self.net.conv1.register_forward_hook(self._count)

    @staticmethod
    def _weights(spec: NetSpec, seed: int, sharp: float) -> Weights:
        weights = get_weights(build(spec, seed))
        weights["head.weight"] = weights["head.weight"] * np.float32(sharp)
        return weights

    def _count(self, module: torch.nn.Module, args: object, output: torch.Tensor) -> None:
        self.passed += 0 if self.net.training else output.shape[0]

    def view(self, ids: np.ndarray | None = None) -> PoolView:
        return pool_view(self.context, self.state, self.order, self.state.pools.unlabeled if ids is None else ids)

    def pick(self, budget: int, ids: np.ndarray | None = None, seed: int = 0) -> list[int]:
        chosen = self.settings.acquisition.select(self.view(ids), budget, rng(seed, "select"))
        assert chosen.dtype == np.int64
        return [int(sample) for sample in chosen]


@pytest.mark.parametrize("name", NAMES)
def test_returns_budget_distinct_candidates_or_all(name: str) -> None:
    bench = Bench(name)
    pool = set(range(LABELED, COUNT))
    for budget in (0, 1, 5, len(pool), len(pool) + 7):
        chosen = bench.pick(budget)
        assert len(chosen) == min(budget, len(pool))
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= pool
    assert set(bench.pick(4, np.arange(20, 28))) <= set(range(20, 28))


@pytest.mark.parametrize("name", NAMES)
def test_is_the_same_twice_and_whatever_the_order_of_candidates(name: str) -> None:
    first = Bench(name).pick(5)
    assert Bench(name).pick(5) == first
    shuffled = rng(7, "shuffle").permutation(np.arange(LABELED, COUNT))
    assert shuffled[0] > shuffled[1] or shuffled[1] > shuffled[2]
    assert Bench(name).pick(5, shuffled) == first


@pytest.mark.parametrize("name", NAMES)
def test_ties_go_to_the_seed(name: str) -> None:
    """All samples are the same image with the same history."""
    picks = {tuple(sorted(Bench(name, alike=True, seed=seed).pick(5, seed=seed))) for seed in range(6)}
    assert len(picks) >= 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("held", [1, 2])
def test_absent_classes_and_certain_predictions_give_no_nan(name: str, held: int) -> None:
    """Labels of one or two of three classes; outputs so far apart that probabilities are exactly 0 and 1."""
    bench = Bench(name, held=held, sharp=1e6)
    assert np.isin(bench.view().probs("global"), (0.0, 1.0)).all()
    assert len(set(bench.pick(5))) == 5


@pytest.mark.parametrize("name", NAMES)
def test_works_with_one_candidate_and_with_one_class(name: str) -> None:
    assert Bench(name).pick(3, np.array([11])) == [11]
    assert Bench(name).pick(0, np.array([11])) == []
    assert len(set(Bench(name, classes=1, held=1).pick(4))) == 4


@pytest.mark.parametrize("name", NAMES)
def test_counts_every_inference_it_causes(name: str) -> None:
    bench = Bench(name)
    view = bench.view()
    bench.settings.acquisition.select(view, 5, rng(0, "select"))
    assert view.inferences == bench.passed
    assert bool(view.inferred.all()) == (bench.passed > 0)
    if name in ("random", "ev", "number-class", "chase"):
        assert bench.passed == 0
    else:
        assert bench.passed >= COUNT - LABELED or name == "hybrid"


RANKED = {
    "+gev",
    "balanced-margin",
    "bald",
    "chase",
    "entropy",
    "ev",
    "feal",
    "ifal",
    "kafal",
    "ksas",
    "least-confidence",
}
RANKED |= {"ll4al", "margin", "number-class", "posterior", "tod"}


@pytest.mark.parametrize("count", [COUNT, 640])
@pytest.mark.parametrize("name", NAMES)
def test_a_score_is_kept_and_tells_candidates_apart(name: str, count: int) -> None:
    """On a small pool and on one of more than 500, where a labelled sample of IFAL votes for 250."""
    bench = Bench(name, count=count)
    view = bench.view()
    chosen = bench.settings.acquisition.select(view, 5, rng(0, "select"))
    assert view.scores is not None or name not in RANKED
    if view.scores is not None:
        assert view.scores.shape == (len(view),)
        assert np.isfinite(view.scores).all()
        assert np.unique(view.scores).size >= 3
        picked = view.scores[np.searchsorted(view.ids, chosen)]
        assert picked.mean() > view.scores.mean()


@pytest.mark.parametrize("count", [COUNT, 640])
def test_ifal_asks_for_the_best_of_its_clusters_by_the_published_score(count: int) -> None:
    """Above Otsu's threshold, each pick the highest of its cluster; many candidates have a score above 0."""
    bench = Bench("ifal", count=count)
    view = bench.view()
    rows = np.searchsorted(view.ids, bench.settings.acquisition.select(view, 3, rng(0, "select")))
    scores, groups = view.scores, view.groups
    assert scores is not None
    assert groups is not None
    assert (scores > 0).mean() > 0.3
    assert (scores[groups >= 0].min()) > scores[groups < 0].max()
    assert sorted(groups[rows].tolist()) == [0, 1, 2]
    assert all(scores[row] == scores[groups == groups[row]].max() for row in rows)


@pytest.mark.parametrize(("budget", "held"), [(6, 3), (7, 3), (6, 2)])
def test_fairfal_asks_as_often_about_each_pseudo_class(budget: int, held: int) -> None:
    """The quotas of a pool in which every pseudo-class has candidates enough, and the model that judged."""
    bench = Bench("fairfal", held=held, count=200)
    view = bench.view()
    chosen = bench.settings.acquisition.select(view, budget, rng(0, "select"))
    pseudo = pseudo_classes(view.features("global"), view.labeled_features("global"), view.labeled_classes)
    assert (np.bincount(pseudo, minlength=3)[:held] >= budget).all()
    asked = np.bincount(pseudo[np.searchsorted(view.ids, chosen)], minlength=3)
    assert asked.sum() == budget
    assert asked[held:].sum() == 0
    assert asked[:held].max() - asked[:held].min() <= 1
    assert view.judge in ("global", "alone")


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_knows_which_model_it_trains_for_a_request(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    for which in ("alone", "distilled"):
        train = getattr(choose, f"train_{which}")
        monkeypatch.setattr(choose, f"train_{which}", lambda *a, w=which, t=train: (trained.append(w), t(*a))[1])
    Bench(name).pick(5)
    assert trained == ([TRAINED[name]] if name in TRAINED else [])


@pytest.fixture(scope="module")
def four_classes() -> DataSet:
    train, labels = blobs(120, classes=4)
    test, test_labels = blobs(20, classes=4, seed=1)
    return DataSet("blobs", train, labels, test, test_labels, tuple("abcd"))


def scrambled(truth: np.ndarray, keep: set[int]) -> np.ndarray:
    return np.array([t if row in keep else (t + 1 + row % 3) % 4 for row, t in enumerate(truth)])


@pytest.mark.parametrize("name", NAMES)
def test_sees_no_label_of_an_unlabelled_sample(name: str, four_classes: DataSet, tmp_path: Path) -> None:
    """Truths that nobody asked for are scrambled: same questions, same weights."""
    settings = small_settings(
        strategy=name, clients=2, classes_per_client=3, rounds=3, alone_epochs=2, initial_labels=0.1, local_epochs=2
    )
    real = simulate(settings, four_classes, tmp_path / "real")
    asked = {line["sample"] for line in real.asked}
    assert len(asked) == len(real.asked) == 2 * 5 * 2
    blind = simulate(
        settings, four_classes, tmp_path / "blind", scrambled(four_classes.train_labels, asked | real.initial)
    )
    assert blind.asked == real.asked
    assert blind.weights == real.weights


@pytest.mark.parametrize("name", NAMES)
def test_goes_with_freezing_subset_and_alignment_by_settings_alone(
    name: str, four_classes: DataSet, tmp_path: Path
) -> None:
    settings = small_settings(
        strategy=name,
        freeze=True,
        subset=True,
        subset_size=15,
        align="both",
        clients=2,
        classes_per_client=3,
        rounds=4,
        alone_epochs=2,
        initial_labels=0.2,
    )
    story = simulate(settings, four_classes, tmp_path)
    assert len({line["sample"] for line in story.asked}) == 2 * 5 * 3
    last = [update for update in story.updates if update.round == 4]
    assert all(update.metrics["ev_count"] <= 15 for update in last)
    assert all("seconds_teachers" in update.metrics for update in last)
    assert sum(update.metrics["pool_dormant"] for update in story.updates) > 0
