"""A bare loop: only the unavoidable training steps, with the same kernels, for the overhead of `chase`."""

from __future__ import annotations

import time

import numpy as np
import torch

from chase.data.resident import DataSet
from chase.learning.fused import fused_for
from chase.models.catalog import NetSpec, build
from chase.models.layers import MaskSource


def seconds_per_round(data: DataSet, labels: int, clients: int = 10, epochs: int = 10) -> float:
    """Seconds of the steps of one random-selection round in one thread."""
    torch.set_num_threads(1)
    fused = fused_for(build(NetSpec("cifar-cnn", (3, 32, 32), 10, 0.5), 0))
    assert fused is not None
    draw = np.random.default_rng(0)
    elapsed = 0.0
    for _ in range(clients):
        rows = draw.choice(len(data.train), labels // clients, replace=False)
        x = fused.prepare(data.train.ready(torch.from_numpy(rows)))
        y, bits = torch.from_numpy(data.train_labels[rows]), MaskSource(0)
        start = time.perf_counter()
        fused.load()
        for _ in range(epochs):
            for take in np.array_split(draw.permutation(len(rows)), len(rows) // 10):
                fused.step([(x, take)], y[take], bits, None, 0.0, (1e-3, 0.5, 0.0), False)
        elapsed += time.perf_counter() - start
    return elapsed
