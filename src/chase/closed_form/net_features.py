"""Features of a network: what the last layer of the network in ``init_weights`` sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from chase.closed_form.feature_map import InputSpec, Standardised
from chase.core.errors import SettingsError
from chase.core.weights import Arrays
from chase.data.resident import Samples
from chase.learning.inference import features
from chase.models.net import Net


@dataclass(frozen=True)
class NetFeatures(Standardised):
    """Penultimate features of a network whose weights are fixed."""

    spec: InputSpec
    net: nn.Module = field(compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.net, Net):
            raise SettingsError("features = 'net' need a network with an `embed` and a `head` (chase.models.net.Net)")

    @property
    def width(self) -> int:
        """What the last layer takes."""
        head = self.embedder.head
        if not isinstance(head, nn.Linear):
            raise SettingsError("features = 'net' need a network whose last layer is linear")
        return head.in_features

    @property
    def embedder(self) -> Net:
        """The network."""
        assert isinstance(self.net, Net)
        return self.net

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The network's features."""
        return self.embedder.embed(ready)

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Penultimate features (rows, width)."""
        made: NDArray[np.float32] = features(self.embedder, samples, rows).numpy()
        return made.reshape(rows.numel(), self.width)
