"""The contract of a network, and moving its weights in and out."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from chase.core.errors import CheckpointError, SettingsError
from chase.core.weights import Array, Weights, contiguous, read
from chase.data.resident import Samples

Place = tuple[str, dict[str, Tensor], str]
"""A tensor of a network: its name, and where it is kept under which key."""


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


_NORMED: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_PLACES: WeakKeyDictionary[nn.Module, list[Place] | None] = WeakKeyDictionary()


def has_batch_norm(net: nn.Module) -> bool:
    """Whether a forward pass in training mode mixes the samples of a batch; layers do not change after it is asked."""
    if net not in _NORMED:
        _NORMED[net] = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    return _NORMED[net]


def tensors_of(net: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, as ``state_dict`` gives them.

    Where they are is looked up once: ``state_dict`` of a small network costs as much as a step of its training.
    """
    if net not in _PLACES:
        _PLACES[net] = _places(net)
    places = _PLACES[net]
    if places is None:
        return dict(net.state_dict())
    return {name: holder[key] for name, holder, key in places}


def _places(net: nn.Module) -> list[Place] | None:
    """Where each tensor of ``state_dict`` is; None where a network gives others than its parameters and buffers."""
    places: list[Place] = []
    for prefix, module in net.named_modules(remove_duplicate=False):
        buffers = {key for key in module._buffers if key not in module._non_persistent_buffers_set}
        for held, keys in ((module._parameters, set(module._parameters)), (module._buffers, buffers)):
            places += [
                (f"{prefix}.{key}" if prefix else key, cast("dict[str, Tensor]", held), key)
                for key, tensor in held.items()
                if key in keys and tensor is not None
            ]
    found = net.state_dict()
    same = list(found) == [name for name, _, _ in places]
    if not same or any(found[n].data_ptr() != held[key].data_ptr() for n, held, key in places):
        return None
    return places


def get_weights(net: nn.Module) -> dict[str, Array]:
    """A copy of all parameters and buffers as NumPy arrays."""
    return {name: tensor.numpy(force=True).copy() for name, tensor in tensors_of(net).items()}


_SOURCES: WeakKeyDictionary[nn.Module, tuple[list[Array], list[Tensor]]] = WeakKeyDictionary()
"""The arrays that a network was filled with last, and the same as tensors: all clients of a round begin with them."""


def set_weights(net: nn.Module, weights: Weights) -> None:
    """Copy weights into the net, in place."""
    own = tensors_of(net)
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())
        raise SettingsError(f"weights do not match the network: {', '.join(odd[:5])}")
    arrays = [weights[name] for name in own]
    known, sources = _SOURCES.get(net, ([], []))
    if len(known) != len(arrays) or any(a is not b for a, b in zip(arrays, known, strict=True)):
        sources = [_source(name, tensor, weights[name]) for name, tensor in own.items()]
        if all(isinstance(array, np.ndarray) and array.flags.c_contiguous for array in arrays):  # none was copied
            _SOURCES[net] = arrays, sources
    with torch.no_grad():
        torch._foreach_copy_(list(own.values()), sources)


def _source(name: str, tensor: Tensor, array: Array) -> Tensor:
    if tuple(tensor.shape) != array.shape:
        raise SettingsError(
            f"weights do not match the network: '{name}' has shape {list(array.shape)}, "
            f"the network {list(tensor.shape)}"
        )
    return torch.from_numpy(_whole(array))


def _whole(array: Array) -> Array:
    """The array in one piece; one number that NumPy has taken out of its array is put back into one."""
    return array if isinstance(array, np.ndarray) and array.flags.c_contiguous else contiguous(array)


SENT_WEIGHTS = "CHASE_SENT_WEIGHTS"
"""Environment of a job on a machine without the file of ``init_weights``: where the copy is that was sent there."""


def start_from(net: nn.Module, path: Path) -> None:
    """Fill the net from a safetensors file; a file of another network is refused."""
    path = Path(os.environ.get(SENT_WEIGHTS) or path)
    if not path.is_file():
        raise SettingsError(f"init_weights = {path} does not exist; give a safetensors file")
    try:
        weights = read(path)
    except CheckpointError as error:
        raise SettingsError(f"init_weights: {error}") from None
    set_weights(net, weights)
