"""The contract of a network, and moving its weights in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor, nn

from chase.core.errors import CheckpointError, SettingsError
from chase.core.weights import Array, Weights, contiguous, read
from chase.data.resident import Samples


class Net(nn.Module, ABC):
    """A network in two parts: ``embed`` gives the penultimate features, ``head`` the logits."""

    head: nn.Module
    taps: tuple[str, ...] = ()
    """Names of the submodules whose outputs a loss-prediction module reads."""

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """x -> features (batch, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """x -> logits (batch, classes)."""
        return self.both(x)[0]

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x -> logits (batch, classes) and features (batch, width), in one pass."""
        features = self.embed(x)
        logits: Tensor = self.head(features)
        return logits, features

    def stored_features(self, samples: Samples, rows: Tensor) -> Tensor | None:
        """Features of stored samples, where the network has them without a pass; None where it has not."""
        return None


def with_embedding(net: nn.Module) -> Net:
    """The network, if its features can be read."""
    if not isinstance(net, Net):
        raise SettingsError("align_on = 'features' reads what the last layer sees, so the network must be a Net")
    return net


def has_batch_norm(net: nn.Module) -> bool:
    """Whether a forward pass in training mode mixes the samples of a batch."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())


def get_weights(net: nn.Module) -> dict[str, Array]:
    """A copy of all parameters and buffers as NumPy arrays."""
    return {name: t.detach().cpu().numpy().copy() for name, t in net.state_dict().items()}


def set_weights(net: nn.Module, weights: Weights) -> None:
    """Copy weights into the net, in place."""
    own = net.state_dict()
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())
        raise SettingsError(f"weights do not match the network: {', '.join(odd[:5])}")
    with torch.no_grad():
        for name, tensor in own.items():
            array = weights[name]
            if tuple(tensor.shape) != array.shape:
                raise SettingsError(
                    f"weights do not match the network: '{name}' has shape {list(array.shape)}, "
                    f"the network {list(tensor.shape)}"
                )
            tensor.copy_(torch.from_numpy(contiguous(array)))


def start_from(net: nn.Module, path: Path) -> None:
    """Fill the net from a safetensors file; a file of another network is refused."""
    if not path.is_file():
        raise SettingsError(f"init_weights = {path} does not exist; give a safetensors file")
    try:
        weights = read(path)
    except CheckpointError as error:
        raise SettingsError(f"init_weights: {error}") from None
    set_weights(net, weights)
