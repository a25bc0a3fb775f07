"""The one place that makes networks and clients."""

from __future__ import annotations

from torch import nn

from chase.data.resident import Samples
from chase.models.catalog import NetSpec, build
from chase.settings import Settings


def build_net(settings: Settings, samples: Samples, num_classes: int) -> nn.Module:
    """The network that the settings name for these samples, with its initial weights."""
    net = build(NetSpec.of(settings.net, samples, num_classes, settings.dropout, settings.init), settings.seed)
    net.plain_kernels = settings.kernels == "plain"  # type: ignore[assignment]
    return net
