"""Crops and flips of whole batches."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from support import blobs, tiny_net

from chase.core.randomness import rng
from chase.data.resident import Samples
from chase.learning import training
from chase.learning.augment import crop_and_flip
from chase.models.net import get_weights


def plain(x, blank, draw, padding):
    """The same, an image at a time."""
    top, left = (draw.integers(0, 2 * padding + 1, size=x.shape[0]) for _ in range(2))
    mirrored = draw.random(x.shape[0]) < 0.5
    out = []
    for n, image in enumerate(x):
        wide = F.pad(image - blank, (padding,) * 4) + blank
        cut = wide[:, top[n] : top[n] + x.shape[2], left[n] : left[n] + x.shape[3]]
        out.append(cut.flip(2) if mirrored[n] else cut)
    return torch.stack(out)


def test_equals_the_plain_way():
    x = torch.randn(16, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    blank = torch.tensor([-1.0, 0.5, 2.0]).view(3, 1, 1)
    fast = crop_and_flip(x, blank, rng(1, "a"), padding=3)
    assert torch.allclose(fast, plain(x, blank, rng(1, "a"), 3), atol=1e-6)
    assert not torch.allclose(fast, crop_and_flip(x, blank, rng(2, "a"), padding=3))


def test_padding_is_black():
    samples = Samples(torch.zeros((50, 3, 8, 8), dtype=torch.uint8), mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.3))
    x = samples.ready(torch.arange(50))
    assert torch.allclose(crop_and_flip(x, samples.black, rng(0, "x")), x, atol=1e-6)


def job(track=False):
    samples, labels = blobs(40)
    rows = torch.arange(20)
    return training.TrainingTask(
        samples, rows, torch.from_numpy(labels[:20]), torch.arange(20, 40), None, track, 3, ("round", 1)
    )


def trained(augment, seed_net=0):
    net = tiny_net(seed=seed_net)
    plan = training.TrainingOptions(2, 10, 0.02, 0.5, 0.0, 0.0, augment=augment)
    outcome = training.train(net, job(track=True), plan)
    return get_weights(net), outcome.history


def test_training_repeats_exactly_and_differs_from_plain_training():
    first, second, without = trained(True), trained(True), trained(False)
    assert all(np.array_equal(first[0][k], second[0][k]) for k in first[0])
    assert any(not np.array_equal(first[0][k], without[0][k]) for k in first[0])


def test_tracking_sees_plain_samples(monkeypatch):
    """With a learning rate of nothing the predictions of all epochs are those of the plain samples."""
    net = tiny_net()
    plan = training.TrainingOptions(3, 10, 1e-12, 0.0, 0.0, 0.0, augment=True)
    history = training.train(net, job(track=True), plan).history
    assert (history == history[0]).all()


def test_a_network_of_ones_own_with_torch_dropout_repeats_exactly():
    def once():
        torch.manual_seed(np.random.randint(1 << 30))
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 2))
        with torch.no_grad():
            net[2].weight.fill_(0.01)
            net[2].bias.zero_()
        training.train(net, job(), training.TrainingOptions(2, 10, 0.02, 0.5, 0.0, 0.0))
        return get_weights(net)

    first, second = once(), once()
    assert all(np.array_equal(first[k], second[k]) for k in first)
