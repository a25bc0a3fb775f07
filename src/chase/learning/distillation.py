"""Distillation: a student learns from labels and from a teacher's softened outputs.

Loss = (1 - w) * cross-entropy + w * T^2 * KL(softmax(teacher / T) || softmax(student / T)).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from chase.learning.fused import Soft
from chase.learning.task import Step


class Distillation:
    """A labelled loss; ``teacher`` (labelled, classes) are the teacher's outputs for the labelled samples."""

    def __init__(self, teacher: Tensor, weight: float, temperature: float) -> None:
        self._teacher, self._weight, self._temperature = teacher, weight, temperature

    def parameters(self) -> Sequence[nn.Parameter]:
        """None beyond the network's."""
        return ()

    def soft(self) -> Soft:
        """The same for the hand-written steps."""
        return Soft(F.softmax(self._teacher / self._temperature, 1).contiguous(), self._weight, self._temperature)

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Both parts, mean over the batch."""
        t = self._temperature
        teacher = self._teacher[step.take].to(outputs.device)
        soft = F.kl_div(F.log_softmax(outputs / t, 1), F.softmax(teacher / t, 1), reduction="batchmean") * t * t
        return (1 - self._weight) * F.cross_entropy(outputs, y) + self._weight * soft
