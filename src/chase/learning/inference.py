"""Forward passes outside training: eval mode, no gradients, chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning.fused import FusedNet, fused_for

CHUNK = 200
"""Samples a forward pass; measured best between 100 and 250 for the small networks on a CPU."""


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
    fused = fused_for(net) if next(net.parameters()).device.type == "cpu" else None
    if fused is None:
        return run_chunks(net, net, samples, rows)
    fused.load()
    return fused_logits(fused, samples, rows)


def fused_logits(fused: FusedNet, samples: Samples, rows: Tensor) -> Tensor:
    """The same by a fused network, from its parameters as they stand."""
    parts = [fused.outputs(fused.prepare(samples.ready(part))) for part in torch.split(rows, CHUNK)]
    return torch.cat(parts).clone() if parts else torch.empty(0)
