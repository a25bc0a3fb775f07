"""What own networks and own data ask of training: Adam, class weights, batch norm with one sample, divergence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from chase.client.choose import training_plan
from chase.core.errors import TrainingError
from chase.data.resident import Samples
from chase.learning.optimisers import FlatAdam
from chase.learning.training import (
    BalancedCrossEntropy,
    Step,
    TrainingOptions,
    TrainingTask,
    batches,
    make_stepper,
    train,
)
from chase.settings import from_mapping


def task(count: int, width: int = 3) -> TrainingTask:
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(count, width)).astype(np.float32))
    labels = torch.arange(count) % 2
    empty = torch.empty(0, dtype=torch.int64)
    return TrainingTask(Samples(inputs, "vectors"), torch.arange(count), labels, empty, None, False, 0, (1, 0))


def options(**changes: object) -> TrainingOptions:
    values: dict[str, object] = {
        "epochs": 2,
        "batch_size": 4,
        "lr": 0.1,
        "momentum": 0.5,
        "weight_decay": 0.0,
        "mu": 0.0,
    }
    return TrainingOptions(**(values | changes))  # type: ignore[arg-type]


def test_adam_is_torchs() -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(4, 2), nn.Linear(4, 2)
    theirs.load_state_dict(ours.state_dict())
    flat, reference = (
        FlatAdam(list(ours.parameters()), 0.01, 0.5, 0.1),
        torch.optim.Adam(theirs.parameters(), 0.01, weight_decay=0.1),
    )
    for step in range(5):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        ours(x).square().sum().backward()
        flat.step()
        reference.zero_grad()
        theirs(x).square().sum().backward()
        reference.step()
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-6)


@pytest.mark.parametrize(("count", "size", "wanted"), [(9, 4, [4, 5]), (8, 4, [4, 4]), (1, 4, [2]), (3, 1, [2, 2, 2])])
def test_batch_norm_never_sees_one_sample(count: int, size: int, wanted: list[int]) -> None:
    parts = batches(torch.arange(count), size, normed=True)
    assert [part.numel() for part in parts] == wanted
    assert set(torch.cat(list(parts)).tolist()) == set(range(count))
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    assert np.isfinite(train(net, task(count), options(batch_size=size)).loss)


def test_without_batch_norm_batches_stay_as_they_are() -> None:
    assert [part.numel() for part in batches(torch.arange(9), 4, normed=False)] == [4, 4, 1]


def test_divergence_names_epoch_steps_and_a_smaller_rate() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with pytest.raises(TrainingError, match=r"after local epoch \d \(steps \d+ to \d+\) with lr = 1e\+20 .*lr=1e\+19"):
        train(net, task(12), options(lr=1e20, epochs=5))


def test_balanced_loss_counts_every_class_the_same() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    loss = BalancedCrossEntropy(labels)
    outputs = torch.tensor([[2.0, 0.0]] * 4)
    right, wrong = np.log1p(np.exp(-2.0)), np.log1p(np.exp(2.0))
    assert float(loss.loss(nn.Identity(), outputs, labels, Step(0, 1))) == pytest.approx((right + wrong) / 2, abs=1e-6)


@pytest.mark.parametrize(("weights", "share"), [("none", 3 / 4), ("balanced", 1 / 2)])
def test_the_setting_class_weights_reaches_the_loss_of_a_step(weights: str, share: float) -> None:
    """Three samples of class 0, one of class 1, the same outputs (2, 0) for all: the first loss by hand."""
    plan = training_plan(from_mapping({"class_weights": weights, "local_epochs": 1, "lr": 0.1}))
    net = nn.Linear(3, 2)
    nn.init.zeros_(net.weight)
    with torch.no_grad():
        net.bias.copy_(torch.tensor([2.0, 0.0]))
    job = replace(task(4), labels=torch.tensor([0, 0, 0, 1]))
    right, wrong = np.log1p(np.exp(-2.0)), np.log1p(np.exp(2.0))
    first = make_stepper(net, job, plan, None).step(torch.arange(4), Step(0, 1))
    assert first == pytest.approx(share * right + (1 - share) * wrong, abs=1e-5)
