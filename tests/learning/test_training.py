from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import blobs, tiny_net
from torch import Tensor, nn

from chase.core.randomness import rng
from chase.learning import training
from chase.learning.compensation import KnowledgeCompensation
from chase.learning.inference import features, logits, run_chunks
from chase.learning.losses import Alignment, prepare_alignment
from chase.learning.optimisers import FlatSGD
from chase.learning.training import TrainingOptions, TrainingTask, train
from chase.models.net import get_weights

SAMPLES, LABELS = blobs(40)
LABELED, WATCHED = torch.arange(0, 14), torch.arange(14, 40)


def plan(**changes: float) -> TrainingOptions:
    values = {"epochs": 3, "batch_size": 4, "lr": 0.05, "momentum": 0.5, "weight_decay": 0.0, "mu": 0.0}
    return TrainingOptions(**{**values, **changes})


def job(
    alignment: Alignment | None = None, track: bool = True, seed: int = 0, watched: torch.Tensor = WATCHED
) -> TrainingTask:
    labels = torch.from_numpy(LABELS[LABELED.numpy()])
    return TrainingTask(SAMPLES, LABELED, labels, watched, alignment, track, seed, (2, 5))


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.5, 0.0), (0.9, 0.01), (0.0, 0.1)])
def test_flat_sgd_equals_torch_sgd(momentum: float, decay: float) -> None:
    ours = tiny_net()
    theirs = copy.deepcopy(ours)
    flat = FlatSGD(list(ours.parameters()), 0.1, momentum, decay)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, weight_decay=decay)
    for step in range(6):
        rows = torch.arange(step * 5, step * 5 + 5)
        x, y = SAMPLES.ready(rows), torch.from_numpy(LABELS[rows.numpy()])
        F.cross_entropy(ours(x), y).backward()
        flat.step()
        reference.zero_grad()
        F.cross_entropy(theirs(x), y).backward()
        reference.step()
    for name, value in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, atol=1e-6), name


def papers_alignment(now: torch.Tensor, local: torch.Tensor, glob: torch.Tensor, easy: torch.Tensor) -> torch.Tensor:
    d_loc, d_glo = F.cosine_similarity(now, local), F.cosine_similarity(now, glob)
    own = torch.where(easy, d_loc, d_glo)
    return -torch.log(torch.exp(own / 0.5) / (torch.exp(d_loc / 0.5) + torch.exp(d_glo / 0.5))).mean()


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_training_equals_a_plain_loop(mu: float) -> None:
    """Same batches, torch's SGD, the paper's loss with two passes a step: the same weights and predictions."""
    ours, teacher = tiny_net(), tiny_net(seed=9)
    plain = copy.deepcopy(ours)
    local, glob = logits(teacher, SAMPLES, WATCHED), logits(ours, SAMPLES, WATCHED)
    easy = np.arange(WATCHED.numel()) % 3 > 0
    outcome = train(ours, job(prepare_alignment(local, glob, easy, "both", 0.5)), plan(mu=mu))

    optimiser = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    draw, aligned = rng(0, "batches", 2, 5), rng(0, "aligned", 2, 5)
    labels, history, last = torch.from_numpy(LABELS), [], []
    for _ in range(3):
        plain.train()
        last = []
        for batch in torch.split(torch.from_numpy(draw.permutation(14)), 4):
            rows = LABELED[batch]
            value = F.cross_entropy(plain(SAMPLES.ready(rows)), labels[rows])
            if mu:
                pick = torch.from_numpy(aligned.choice(WATCHED.numel(), len(batch), replace=False))
                now = plain(SAMPLES.ready(WATCHED[pick]))
                value = value + mu * papers_alignment(now, local[pick], glob[pick], torch.from_numpy(easy)[pick])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            last += [value.item()] * len(batch)
        plain.eval()
        with torch.no_grad():
            history.append(plain(SAMPLES.ready(WATCHED)).argmax(1).numpy())

    for name, value in plain.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, atol=2e-5), name
    assert (outcome.history == np.stack(history)).all()
    assert outcome.loss == pytest.approx(np.mean(last), abs=1e-4)
    assert outcome.inferences == 3 * WATCHED.numel()


@pytest.mark.parametrize("plain", [False, True])
def test_methods_of_one_seed_see_the_same_labelled_batches(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """Alignment and KCFU draw from generators of their own; the order of the labelled batches stays."""
    orders: list[list[int]] = []
    make = training.make_stepper

    def spy(*args: Any) -> training.Stepper:
        stepper, order = make(*args), []
        orders.append(order)
        epoch = stepper.epoch

        def spied(parts: Sequence[Tensor], *at: int) -> float:
            order.extend(torch.cat(list(parts)).tolist())
            return epoch(parts, *at)

        stepper.epoch = spied  # type: ignore[method-assign]
        return stepper

    monkeypatch.setattr(training, "make_stepper", spy)
    teacher = logits(tiny_net(seed=9), SAMPLES, WATCHED)
    ready = prepare_alignment(teacher, -teacher, np.arange(WATCHED.numel()) % 2 > 0, "both", 0.5)
    kcfu = KnowledgeCompensation(np.array([7, 7]), SAMPLES, WATCHED, tiny_net(seed=3), rng(0, "kcfu"))
    for alignment, own in ((None, None), (ready, None), (None, kcfu)):
        net = tiny_net()
        net.kernels = "plain" if plain else "auto"
        train(net, job(alignment), plan(mu=0.5), own)
    assert len(orders[0]) == 3 * 14
    assert orders[0] == orders[1] == orders[2]


def test_alignment_on_features_compares_what_the_last_layer_sees() -> None:
    """One step by hand: cross-entropy on logits plus the paper's loss on features."""
    ours, teacher = tiny_net(), tiny_net(seed=9)
    plain = copy.deepcopy(ours)
    rows = torch.arange(14, 18)
    local, glob = features(teacher, SAMPLES, rows), features(ours, SAMPLES, rows)
    easy = np.array([True, False, True, False])
    ready = prepare_alignment(local, glob, easy, "both", 0.5, "features")
    one = TrainingTask(SAMPLES, LABELED[:4], torch.from_numpy(LABELS[:4]), rows, ready, False, 0, (2, 5))
    train(ours, one, plan(mu=0.7, epochs=1))
    order = torch.from_numpy(rng(0, "batches", 2, 5).permutation(4))
    pick = torch.from_numpy(rng(0, "aligned", 2, 5).choice(4, 4, replace=False))
    now = plain.embed(SAMPLES.ready(rows[pick]))
    value = F.cross_entropy(plain(SAMPLES.ready(order)), torch.from_numpy(LABELS)[order])
    value = value + 0.7 * papers_alignment(now, local[pick], glob[pick], torch.from_numpy(easy)[pick])
    value.backward()
    for name, parameter in plain.named_parameters():
        assert torch.allclose(ours.get_parameter(name), parameter - 0.05 * parameter.grad, atol=1e-5), name


def test_training_changes_the_net_and_repeats_exactly() -> None:
    start = get_weights(tiny_net(dropout=0.5))
    first, again, other = (tiny_net(dropout=0.5) for _ in range(3))
    histories = [train(net, job(seed=seed), plan()).history for net, seed in ((first, 0), (again, 0), (other, 1))]
    assert (histories[0] == histories[1]).all()
    for name, value in get_weights(first).items():
        assert (get_weights(again)[name] == value).all()
        assert (start[name] != value).any()
        assert (get_weights(other)[name] != value).any()


def test_alignment_needs_as_many_watched_as_a_batch_holds() -> None:
    few = WATCHED[:3]
    ready = prepare_alignment(torch.randn(3, 2), torch.randn(3, 2), np.array([True, False, True]), "both", 0.5)
    skipped, plain = tiny_net(), tiny_net()
    train(skipped, job(ready, watched=few), plan(mu=1.0))
    train(plain, job(None, watched=few), plan())
    for name, value in get_weights(plain).items():
        assert (get_weights(skipped)[name] == value).all()


def test_nothing_is_inferred_unless_tracked() -> None:
    outcome = train(tiny_net(), job(track=False), plan())
    assert outcome.history.shape == (0, WATCHED.numel())
    assert outcome.inferences == 0


class Normed(nn.Module):
    """A network with batch norm, which sees which samples come together."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head, self.batches = nn.BatchNorm2d(1), nn.Linear(64, 2), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.batches.append(len(x))
        return self.head(self.norm(x).flatten(1))


def test_halves_share_one_pass_unless_the_net_has_batch_norm() -> None:
    ready = prepare_alignment(torch.randn(26, 2), torch.randn(26, 2), np.ones(26, dtype=bool), "both", 0.5)
    normed, sizes = Normed(), []
    train(normed, job(ready), plan(mu=1.0, epochs=2))
    assert normed.batches == [4, 4, 4, 4, 4, 4, 2, 2] * 2
    plain = tiny_net()
    plain.kernels = "plain"
    plain.register_forward_pre_hook(lambda net, args: sizes.append(len(args[0])) if net.training else None)
    train(plain, job(ready), plan(mu=1.0, epochs=2))
    assert sizes == [8, 8, 8, 4] * 2


def test_inference_in_chunks_equals_one_pass_and_leaves_the_mode() -> None:
    net = tiny_net(dropout=0.5).train()
    whole = run_chunks(net, net, SAMPLES, WATCHED, chunk=1000)
    assert torch.allclose(run_chunks(net, net, SAMPLES, WATCHED, chunk=7), whole, atol=1e-6)
    assert net.training
    assert not whole.requires_grad
