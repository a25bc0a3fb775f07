from __future__ import annotations

import numpy as np
import pytest
import torch
from support import blobs, tiny_net

from chase.core.errors import SettingsError
from chase.core.randomness import rng
from chase.data.resident import Samples
from chase.learning.loss_prediction import (
    LossPredictor,
    WithLossPrediction,
    from_extras,
    new_predictor,
    pool,
    predict,
    ranking_loss,
    tapped,
    to_extras,
    with_taps,
)
from chase.learning.training import Step, TrainingOptions, TrainingTask, train
from chase.models.catalog import FLAT_NETS, NETS, TEXT_NETS, NetSpec, build


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_pairs_are_first_with_last() -> None:
    """Pairs (0,3) and (1,2). Real 4 > 1 and 3 > 2, so s = +1; predicted differences 3 and -1: 0 and 2, mean 1."""
    assert ranking_loss(floats(3, 0, 1, 0), floats(4, 3, 2, 1)) == pytest.approx(1.0)
    # Neighbours as pairs would give s = +1 for (0,1) and (2,3): max(0, 1-3) and max(0, 1-1), mean 0.
    assert ranking_loss(floats(3, 0, 1, 0), floats(1, 2, 3, 4)) == pytest.approx((4 + 0) / 2)


def test_the_sign_says_which_real_loss_is_larger() -> None:
    assert ranking_loss(floats(2, 0), floats(1, 0)) == pytest.approx(0.0)
    assert ranking_loss(floats(2, 0), floats(0, 1)) == pytest.approx(3.0)
    assert ranking_loss(floats(2, 0), floats(1, 1)) == pytest.approx(3.0)  # equal losses count as s = -1


def test_the_middle_of_an_odd_batch_has_no_partner() -> None:
    odd = ranking_loss(floats(3, 99, 0), floats(1, 50, 2))
    assert odd == pytest.approx(ranking_loss(floats(3, 0), floats(1, 2)))
    assert odd == pytest.approx(4.0)
    assert ranking_loss(floats(5), floats(1)) == pytest.approx(0.0)


def test_no_gradient_reaches_the_real_loss() -> None:
    predicted, real = floats(0, 1).requires_grad_(), floats(2, 1).requires_grad_()
    ranking_loss(predicted, real).backward()
    assert real.grad is None
    assert predicted.grad is not None
    assert predicted.grad.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(("epoch", "reaches"), [(0, True), (5, True), (6, False), (9, False)])
def test_the_gradient_into_the_network_stops_in_the_last_two_fifths_of_the_epochs(epoch: int, reaches: bool) -> None:
    net = with_taps(tiny_net())
    predictor = new_predictor(net, (1, 8, 8), seed=0)
    samples, labels = blobs(4)
    with tapped(net) as seen:
        out = net(samples.ready(torch.arange(4)))
        step = Step(epoch, 10)
        loss = WithLossPrediction(predictor, net.taps, seen).loss(net, out, torch.from_numpy(labels), step)
        plain = torch.nn.functional.cross_entropy(out, torch.from_numpy(labels))
        (loss - plain).backward()
    grown = float(net.get_parameter("conv1.weight").grad.abs().sum())
    assert (grown > 1e-6) == reaches
    assert float(predictor.score.weight.grad.abs().sum()) > 0


def test_blocks_are_averaged_over_space_and_read_after_each_block() -> None:
    assert pool(torch.arange(8.0).view(1, 2, 2, 2)).tolist() == [[1.5, 5.5]]
    assert pool(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist() == [[2.0, 3.0]]
    assert pool(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
    net = with_taps(tiny_net())
    with tapped(net) as seen:
        net(torch.randn(3, 1, 8, 8))
    assert [tuple(seen[name].shape) for name in net.taps] == [(3, 16, 4, 4), (3, 32, 2, 2), (3, 64)]
    assert all(float(block.detach().min()) >= 0 for block in seen.values())  # after the relu
    widths = [branch.in_features for branch in new_predictor(net, (1, 8, 8), 0).branches]
    assert widths == [16, 32, 64]


@pytest.mark.parametrize("name", sorted(NETS))
def test_every_network_of_the_catalogue_can_be_tapped(name: str) -> None:
    text, flat = name in TEXT_NETS, name in FLAT_NETS
    shape = (
        (12,) if text or flat else (1, 28, 28) if "mnist" in name else (1, 8, 8) if name == "tiny-cnn" else (3, 32, 32)
    )
    net = with_taps(build(NetSpec(name, shape, 5, 0.1, 30 if text else 0), 0))
    predictor = new_predictor(net, shape, 0)
    inputs = torch.ones((3, *shape), dtype=torch.float32 if flat else torch.uint8)
    samples = Samples(inputs, kind="text" if text else "vectors" if flat else "image")
    losses = predict(net, predictor, samples, torch.arange(3))
    assert losses.shape == (3,)
    assert torch.isfinite(losses).all()


def test_nothing_stays_hooked() -> None:
    net = with_taps(tiny_net())
    with pytest.raises(RuntimeError), tapped(net):
        raise RuntimeError
    assert not any(module._forward_hooks for module in net.modules())


def test_a_module_crosses_as_arrays_and_predicts_the_same() -> None:
    net = with_taps(tiny_net())
    predictor = new_predictor(net, (1, 8, 8), seed=3)
    samples, _ = blobs(5)
    again = from_extras(to_extras(predictor))
    rows = torch.arange(5)
    assert torch.equal(predict(net, predictor, samples, rows), predict(net, again, samples, rows))
    assert isinstance(again, LossPredictor)


def test_a_network_without_taps_is_refused() -> None:
    with pytest.raises(SettingsError, match="taps"):
        with_taps(torch.nn.Linear(2, 2))


def test_training_teaches_the_module_to_rank() -> None:
    """After training on two easy and many noisy samples, the noisy ones have the higher predicted loss."""
    samples, labels = blobs(60)
    noisy = labels.copy()
    noisy[30:] = rng(0, "noise").integers(0, 2, 30)
    net = with_taps(tiny_net())
    predictor = new_predictor(net, (1, 8, 8), 0)
    job = TrainingTask(samples, torch.arange(60), torch.from_numpy(noisy), torch.arange(0), None, False, 0, ("t",))
    with tapped(net) as seen:
        before = [p.clone() for p in predictor.parameters()]
        train(net, job, TrainingOptions(3, 10, 0.02, 0.5, 0.0, 0.0), WithLossPrediction(predictor, net.taps, seen))
    assert all(not torch.equal(a, b) for a, b in zip(before, predictor.parameters(), strict=True))
    assert np.isfinite(predict(net, predictor, samples, torch.arange(60)).numpy()).all()
