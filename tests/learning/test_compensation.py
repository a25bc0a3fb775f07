from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support import blobs, tiny_net

from chase.core.errors import SettingsError
from chase.core.randomness import rng
from chase.data.resident import Samples
from chase.learning.compensation import KnowledgeCompensation, class_weights, compensation, log_counts, others
from chase.learning.training import Step


def test_weights_are_inverse_to_the_counts_and_sum_to_one_over_the_classes_held() -> None:
    """Counts 1, 0, 3: 1 and 1/3, together 4/3 -> 3/4, 0, 1/4."""
    assert class_weights(np.array([1, 0, 3])) == pytest.approx([0.75, 0.0, 0.25])
    assert class_weights(np.array([0, 0])) == pytest.approx([0.0, 0.0])


def test_balanced_cross_entropy_leaves_absent_classes_out_without_nan() -> None:
    """Logits (0, 0, 9) with counts 1, 3, 0: p = (1/4, 3/4, 0)."""
    outputs = torch.tensor([[0.0, 0.0, 9.0]], requires_grad=True)
    loss = torch.nn.functional.cross_entropy(outputs + log_counts(np.array([1, 3, 0])), torch.tensor([0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(math.log(4))
    assert outputs.grad is not None
    assert outputs.grad[0].tolist() == pytest.approx([-0.75, 0.75, 0.0])


def test_compensation_is_the_divergence_of_student_from_server_weighed_by_the_servers_class() -> None:
    """Student (1/2, 1/2), server (1/4, 3/4) predicts class 1; KL(student || server) = 1/2 log 2 + 1/2 log 2/3."""
    student, server = torch.zeros(1, 2), torch.tensor([[0.0, math.log(3)]])
    forward = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert float(compensation(student, server, torch.tensor([0.0, 1.0]))) == pytest.approx(forward)
    assert float(compensation(student, server, torch.tensor([1.0, 0.0]))) == pytest.approx(0.0)
    backward = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert forward != pytest.approx(backward)


def test_every_image_is_mixed_with_another_one() -> None:
    for seed in range(50):
        partner = others(7, rng(seed, "t"))
        assert (partner != np.arange(7)).all()
        assert (partner >= 0).all()
        assert (partner < 7).all()
    assert len({tuple(others(7, rng(seed, "t"))) for seed in range(10)}) > 5


def test_without_a_server_model_only_the_balanced_part_is_left() -> None:
    samples, labels = blobs(20)
    net, counts = tiny_net(), np.array([2, 8])
    x, y = samples.ready(torch.arange(6)), torch.from_numpy(labels[:6])
    out = net(x).detach()
    first = KnowledgeCompensation(counts, samples, torch.arange(6, 20), None, rng(0, "t"))
    balanced = torch.nn.functional.cross_entropy(out + torch.tensor([math.log(2), math.log(8)]), y)
    assert float(first.loss(net, out, y, Step(0, 1))) == pytest.approx(float(balanced))
    assert first.inferences == 0

    later = KnowledgeCompensation(counts, samples, torch.arange(6, 20), tiny_net(seed=5), rng(0, "t"))
    assert float(later.loss(net, out, y, Step(0, 1)).detach()) > float(balanced)
    assert later.inferences == 6
    assert later.inferred_rows.numel() == 6
    assert set(later.inferred_rows.tolist()) <= set(range(6, 20))


def test_text_cannot_be_mixed() -> None:
    text = Samples(torch.zeros(4, 8, dtype=torch.uint8), kind="text")
    with pytest.raises(SettingsError, match="mixes images"):
        KnowledgeCompensation(np.array([1, 1]), text, torch.arange(4), None, rng(0, "t"))
