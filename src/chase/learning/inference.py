"""Forward passes outside training: eval mode, no gradients, chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning.fused import Fused, Prepared, fused_for
from chase.models.net import Net

CHUNK = 200
"""Samples a forward pass; measured best between 100 and 250 for the small networks on a CPU."""
STORED = 25 * CHUNK
"""Samples whose stored features are in memory as numbers at a time: 32 MB with 200 filters."""


def run_chunks(
    forward: Callable[[Tensor], Tensor], net: nn.Module, samples: Samples, rows: Tensor, chunk: int = CHUNK
) -> Tensor:
    """``forward`` on every row, in eval mode, without gradients -> (rows, ...)."""
    was_training = net.training
    net.eval()
    device = next(net.parameters()).device
    with torch.inference_mode():
        parts = [forward(samples.ready(part).to(device)).cpu() for part in torch.split(rows, chunk)]
    net.train(was_training)
    return torch.cat(parts).clone() if parts else torch.empty(0)


def logits(net: nn.Module, samples: Samples, rows: Tensor) -> Tensor:
    """Outputs before the softmax -> (rows, classes)."""
    if isinstance(net, Net) and net.stored_features(samples, rows[:0]) is not None:
        return _from_stored(net, samples, rows)
    fused = fused_on_cpu(net)
    if fused is None:
        return run_chunks(net, net, samples, rows)
    fused.load()
    return fused_logits(fused, samples, rows)


def _from_stored(net: Net, samples: Samples, rows: Tensor) -> Tensor:
    """The same from features that are stored: a large pool is never in memory as numbers at once."""
    parts = []
    with torch.inference_mode():
        for block in torch.split(rows, STORED):
            stored = net.stored_features(samples, block)
            assert stored is not None
            parts += [net.head(part) for part in torch.split(stored, CHUNK)]
        return torch.cat(parts).clone()


def features(net: Net, samples: Samples, rows: Tensor) -> Tensor:
    """What the network's last layer sees -> (rows, width)."""
    stored = net.stored_features(samples, rows)
    if stored is not None:
        return stored
    fused = fused_on_cpu(net)
    if fused is None:
        return run_chunks(net.embed, net, samples, rows)
    fused.load()
    return fused_chunks(fused.features, fused, samples, rows)


def fused_on_cpu(net: nn.Module) -> Fused | None:
    """The fused form of a network, if it has one and is not on another device."""
    return fused_for(net) if next(net.parameters()).device.type == "cpu" else None


def fused_logits(fused: Fused, samples: Samples, rows: Tensor) -> Tensor:
    """The same by a fused network, from its parameters as they stand."""
    return fused_chunks(fused.outputs, fused, samples, rows)


def fused_chunks(forward: Callable[[Prepared], Tensor], fused: Fused, samples: Samples, rows: Tensor) -> Tensor:
    """``forward``, one of the network's fused passes, on every row -> (rows, ...)."""
    parts = [forward(fused.prepare(samples.ready(part))) for part in torch.split(rows, CHUNK)]
    return torch.cat(parts).clone() if parts else torch.empty(0)
