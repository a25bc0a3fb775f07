"""KCFU, the loss of KAFAL (Cao et al. 2022): balanced cross-entropy and knowledge compensation.

Balanced: cross-entropy on logits + log n_c, n_c the client's labelled count of a class. Compensation: on
unlabelled images, each mixed with a random other one by Beta(2, 2), the mean of w * KL(student || server),
where w belongs to the class that the server predicts: inversely proportional to n_c, normalised to
sum 1 over the classes that the client has, 0 for the others. Off in a client's first turn.

Departures from the published code: it mixes a whole batch with one and the same image, takes the
mean over classes instead of their sum, and turns the divergence round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.core.errors import SettingsError
from chase.data.resident import Samples
from chase.learning.training import Step

MIX = 2.0
"""Both parameters of the Beta distribution."""


def class_weights(class_counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """1/n_c over the classes held, scaled to sum 1; 0 for absent classes -> (classes,)."""
    inverse = np.where(class_counts > 0, 1.0 / np.maximum(class_counts, 1), 0.0)
    return np.asarray(inverse / max(inverse.sum(), 1e-300), dtype=np.float64)


def log_counts(class_counts: NDArray[np.int64]) -> Tensor:
    """log n_c, and minus infinity for absent classes: they drop out of the softmax -> (classes,)."""
    counts = torch.from_numpy(class_counts).float()
    return torch.where(counts > 0, counts.clamp(min=1).log(), torch.tensor(-torch.inf))


def compensation(student: Tensor, server: Tensor, weights: Tensor) -> Tensor:
    """Mean of weights[server's class] * KL(student || server); student, server (batch, classes) logits."""
    log_student, log_server = F.log_softmax(student, dim=1), F.log_softmax(server, dim=1)
    divergence = (log_student.exp() * (log_student - log_server)).sum(dim=1)
    return (weights[server.argmax(dim=1)] * divergence).mean()


def others(count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """For each of ``count`` (2 or more) positions a random other one."""
    return np.asarray((np.arange(count) + draw.integers(1, count, size=count)) % count)


class KnowledgeCompensation:
    """Balanced cross-entropy, plus compensation where a server model and unlabelled images are given."""

    def __init__(
        self,
        class_counts: NDArray[np.int64],
        samples: Samples,
        unlabeled_rows: Tensor,
        server: nn.Module | None,
        draw: np.random.Generator,
    ) -> None:
        if samples.kind != "image":
            raise SettingsError("loss = 'kcfu' mixes images and cannot train on text: choose loss=cross-entropy")
        self._log_counts = log_counts(class_counts)
        self._weights = torch.from_numpy(class_weights(class_counts)).float()
        self._samples, self._rows, self._draw = samples, unlabeled_rows, draw
        self._server = None if server is None else server.eval()
        self.inferences = 0
        self._inferred = torch.zeros(unlabeled_rows.numel(), dtype=torch.bool)

    @property
    def inferred_rows(self) -> Tensor:
        """The unlabelled rows that the server model has looked at, mixed."""
        return self._rows[self._inferred]

    def parameters(self) -> Sequence[nn.Parameter]:
        """None beyond the network's."""
        return ()

    def loss(self, net: nn.Module, outputs: Tensor, y: Tensor, step: Step) -> Tensor:
        """Balanced cross-entropy + compensation on as many unlabelled images as the batch has."""
        balanced = F.cross_entropy(outputs + self._log_counts.to(outputs.device), y)
        size = min(int(y.shape[0]), self._rows.numel())
        if self._server is None or size < 2:
            return balanced
        pick = torch.from_numpy(self._draw.choice(self._rows.numel(), size, replace=False))
        plain = self._samples.ready(self._rows[pick])
        share = torch.from_numpy(self._draw.beta(MIX, MIX, size=size)).float().view(-1, *[1] * (plain.dim() - 1))
        mixed = (share * plain + (1 - share) * plain[torch.from_numpy(others(size, self._draw))]).to(outputs.device)
        with torch.no_grad():
            server_outputs = self._server(mixed)
        self.inferences += size
        self._inferred[pick] = True
        return balanced + compensation(net(mixed), server_outputs, self._weights.to(outputs.device))
