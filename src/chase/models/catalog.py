"""Networks by name: a literal table; one's own is an object, of another package, or ``package.module:function``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from chase.core import plugins
from chase.core.errors import SettingsError
from chase.core.randomness import fold, torch_rng
from chase.data.resident import Samples
from chase.models.convnets import CifarCNN, MnistCNN, TinyCNN
from chase.models.layers import Init, draw_weights_
from chase.models.resnet import SmallResNet
from chase.models.text_nets import CharLSTM, TextBag
from chase.models.vectors import Mlp
from chase.models.vgg import VGG19


@dataclass(frozen=True)
class NetSpec:
    """How to build a network, enough to build the same one in another process."""

    name: str
    shape: tuple[int, ...]
    """Shape of one sample."""
    classes: int
    dropout: float
    vocabulary: int = 0
    """Number of distinct tokens where the samples are texts; 0 for images."""
    init: Init = "xavier"
    """How first weights are drawn; one's own network draws them itself."""
    features: str = ""
    """A closed-form model: its feature map and what that knows of the samples, as JSON (see ``chase.closed_form``)."""

    @classmethod
    def of(cls, name: str, samples: Samples, classes: int, dropout: float, init: Init = "xavier") -> NetSpec:
        """For these samples."""
        return cls(name, samples.shape, classes, dropout, samples.vocabulary, init)


SAMPLE_SHAPE = "chase_sample_shape"
"""Attribute of an own network: the shape of the samples that it was built for."""

NETS: dict[str, tuple[str, Callable[..., nn.Module]]] = {
    "tiny-cnn": ("two 3x3 convolutions for 8x8 images", TinyCNN),
    "mnist-cnn": ("conv 5x5 10-20, fc 50 (the paper's, MNIST)", MnistCNN),
    "emnist-cnn": ("conv 5x5 10-20, fc 512 (the paper's, EMNIST)", partial(MnistCNN, hidden=512)),
    "cifar-cnn": ("conv 5x5 6-16, fc 120-84 (the paper's, CIFAR-10)", CifarCNN),
    "vgg19": ("VGG-19 with batch norm, fc 4096-4096 (the paper's, CIFAR-100)", VGG19),
    "vgg19-projection": ("the same with a projection 512-4096-4096-256", partial(VGG19, projection=256)),
    "resnet-gn": ("small ResNet with group norm, 0.2 million weights, for images of any size", SmallResNet),
    "char-lstm": ("embedding 8, 2-layer LSTM 256 (the paper's, Shakespeare)", CharLSTM),
    "mlp": ("two hidden layers of 64, for tables and vectors", Mlp),
    "text-bag": ("mean and maximum of word embeddings, fc 64: a small text classifier", TextBag),
}

TEXT_NETS = frozenset({"char-lstm", "text-bag"})
"""Networks that take tokens."""
FLAT_NETS = frozenset({"mlp"})
"""Networks that take vectors and rows of tables; all others take images."""


def takes(net: str) -> str:
    """What a network of the table takes."""
    return "texts" if net in TEXT_NETS else "tables or vectors" if net in FLAT_NETS else "images"


def build(spec: NetSpec, seed: int) -> nn.Module:
    """The network with its seeded initial weights.

    The networks of the table start as the paper says; one's own starts as its function makes it, with
    torch's generator seeded. For texts the function gets the size of the vocabulary as a fourth argument.
    """
    own = spec.name not in NETS
    kind = "texts" if spec.vocabulary else "tables or vectors" if len(spec.shape) == 1 else "images"
    if not own and takes(spec.name) != kind:
        fit = [name for name in NETS if takes(name) == kind]
        raise SettingsError(f"net = {spec.name} does not take {kind}; for these: {', '.join(fit)}")
    make = _own_net(spec.name) if own else NETS[spec.name][1]
    more = (spec.vocabulary,) if spec.vocabulary else ()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(seed, "init-default"))
        try:
            net = make(spec.shape, spec.classes, spec.dropout, *more)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SettingsError(
                f"net '{spec.name}' cannot be built for samples of shape {spec.shape}: {error}"
            ) from error
    if not isinstance(net, nn.Module):
        raise SettingsError(f"net '{spec.name}' gave a {type(net).__name__}, not a torch.nn.Module")
    check_outputs(net, spec)
    if own:
        setattr(net, SAMPLE_SHAPE, spec.shape)
    else:
        draw_weights_(net, spec.init, torch_rng(seed, "init"))
    return net


def _own_net(name: str) -> Callable[..., nn.Module]:
    """What makes a network that is not built in; a network itself is copied, its weights with it."""
    found = plugins.find("net", name, NETS)
    if isinstance(found, nn.Module):
        return lambda *_: copy.deepcopy(found)
    if not callable(found):
        raise SettingsError(f"net '{name}' is of type {type(found).__name__}: give a torch.nn.Module or what makes one")
    made: Callable[..., nn.Module] = found
    return made


def check_outputs(net: nn.Module, spec: NetSpec) -> None:
    """Refuse a network whose output is not one number a class."""
    probe = torch.zeros((2, *spec.shape), dtype=torch.long if spec.vocabulary else torch.float32)
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            out = net(probe)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise SettingsError(f"net '{spec.name}' does not take samples of shape {spec.shape}: {error}") from error
    net.train(was_training)
    shape = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
    if shape != (2, spec.classes):
        raise SettingsError(
            f"net '{spec.name}' gives {shape} for 2 samples; it must give logits of shape (2, {spec.classes})"
        )
