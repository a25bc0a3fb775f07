"""Networks by name: a literal table, and ``package.module:function`` for one's own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from chase.core.errors import SettingsError, unknown
from chase.core.randomness import torch_rng
from chase.models.convnets import CifarCNN, MnistCNN, TinyCNN
from chase.models.layers import xavier_


@dataclass(frozen=True)
class NetSpec:
    """How to build a network, enough to build the same one in another process."""

    name: str
    shape: tuple[int, ...]
    """Shape of one sample."""
    classes: int
    dropout: float


NETS: dict[str, tuple[str, Callable[..., nn.Module]]] = {
    "tiny-cnn": ("two 3x3 convolutions for 8x8 images", TinyCNN),
    "mnist-cnn": ("conv 5x5 10-20, fc 50 (the paper's, MNIST)", MnistCNN),
    "emnist-cnn": ("conv 5x5 10-20, fc 512 (the paper's, EMNIST)", partial(MnistCNN, hidden=512)),
    "cifar-cnn": ("conv 5x5 6-16, fc 120-84 (the paper's, CIFAR-10)", CifarCNN),
}


def load_object(kind: str, path: str) -> Any:
    """The object that ``package.module:name`` names."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a module beside the settings, whatever the command was started from
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise SettingsError(f"{kind} '{path}': cannot import '{module}' ({type(error).__name__}: {error})") from error
    if not hasattr(found, name):
        raise SettingsError(f"{kind} '{path}': module '{module}' has no '{name}'")
    return getattr(found, name)


def build(spec: NetSpec, seed: int) -> nn.Module:
    """The network with its seeded initial weights."""
    if ":" in spec.name:
        make = load_object("net", spec.name)
    elif spec.name in NETS:
        make = NETS[spec.name][1]
    else:
        raise SettingsError(unknown("net", spec.name, NETS))
    net: nn.Module = make(spec.shape, spec.classes, spec.dropout)
    xavier_(net, torch_rng(seed, "init"))
    return net
