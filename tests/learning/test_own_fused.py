"""Own networks by the fused steps: the same outputs, losses and weights as autograd; any other form is left to it."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import blobs
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning import training
from chase.learning.fused import fused_for, fused_since
from chase.learning.inference import features, logits
from chase.learning.loss_prediction import WithLossPrediction, new_predictor, predict, tapped
from chase.learning.losses import Alignment
from chase.models.catalog import SAMPLE_SHAPE
from chase.models.net import Net

pytestmark = pytest.mark.usefixtures("each_kernel")


def built(net: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    setattr(net, SAMPLE_SHAPE, shape)
    return net


class Functional(nn.Module):
    """As in many tutorials: functions instead of layers, and ``view``."""

    def __init__(self, kernel: int, pad: int, wide: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 4, kernel, padding=pad), nn.Conv2d(4, 5, kernel, padding=pad)
        self.fc1, self.fc2, self.fc3 = nn.Linear(wide, 12), nn.Linear(12, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.one(x)), 2)
        x = torch.relu(F.max_pool2d(self.two(x), 2))
        x = x.view(x.size(0), -1)
        out: Tensor = self.fc3(self.fc2(self.fc1(x).relu()).relu())
        return out


def layered(dropout: float = 0.0) -> nn.Module:
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 6, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(24, 10), nn.ReLU(), *drop, nn.Linear(10, 2)),
    )


class Named(nn.Module):
    """As in many tutorials: one pooling layer for both convolutions, and ``view`` that names the width."""

    def __init__(self, kernels: tuple[int, int], pads: tuple[Any, Any], *widths: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(a, b, kernel, padding=pad)
            for a, b, kernel, pad in zip((1, 4), (4, 5), kernels, pads, strict=True)
        )
        self.pool = nn.MaxPool2d(2, 2)
        self.width, self.linears = widths[0], nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((*widths, 2)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.one(x)))
        x = F.relu(self.pool(self.two(x))).view(-1, self.width)
        for layer in self.linears[:-1]:
            x = F.relu(layer(x))
        out: Tensor = self.linears[-1](x)
        return out


class Rows(nn.Module):
    """A perceptron that flattens by naming the width."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron(nn.Linear(64, 9))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x.reshape(-1, 64))
        return out


def perceptron(*start: nn.Module, dropout: float = 0.0) -> nn.Module:
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*start, nn.ReLU(), *drop, nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 2))


NETS = {
    "5x5, 28 pixels": (lambda: Functional(5, 0, 5 * 16), (1, 28, 28)),
    "3x3 padded, 8 pixels": (layered, (1, 8, 8)),
    "5x5 padded by 2, 16 x 8 pixels": (lambda: Functional(5, 2, 5 * 8), (1, 16, 8)),
    "5x5 padded by 1, 18 pixels": (lambda: Functional(5, 1, 5 * 9), (1, 18, 18)),
    "5x5 padded by 2, then 5x5": (lambda: Named((5, 5), (2, 0), 5 * 9, 12, 8), (1, 20, 20)),
    "3x3, then 5x5": (lambda: Named((3, 5), (1, 1), 5 * 9, 12), (1, 16, 16)),
    "7x7, then 1x1 padded": (lambda: Named((7, 1), (0, 0), 5 * 4 * 3, 12), (1, 22, 18)),
    "3x3, odd second map": (lambda: Named((3, 3), (0, 0), 5 * 4, 12), (1, 16, 17)),
    "3x3, odd images": (lambda: Named((3, 3), (0, 0), 5 * 6, 12), (1, 15, 19)),
    "3x3 padded, odd images and second map": (lambda: Named((3, 3), ("same", "same"), 5 * 4, 12), (1, 9, 11)),
    "one linear layer": (lambda: Named((5, 5), (2, 2), 5 * 16), (1, 16, 16)),
    "perceptron that names the width": (Rows, (1, 8, 8)),
    "perceptron, 8 pixels": (lambda: perceptron(nn.Flatten(), nn.Linear(64, 9)), (1, 8, 8)),
    "perceptron, vectors": (lambda: perceptron(nn.Linear(11, 9)), (11,)),
}


def images(shape: tuple[int, ...], count: int = 40) -> tuple[Samples, Tensor]:
    if len(shape) == 1:
        numbers = torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))
        return Samples(numbers, "vectors", (0.1,) * shape[0], (0.9,) * shape[0]), torch.arange(count) % 2
    pixels = torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Samples(pixels, mean=(0.4,), std=(0.25,)), torch.arange(count) % 2


@pytest.mark.parametrize("name", list(NETS))
@pytest.mark.parametrize("aligned", [False, True])
def test_a_turn_ends_with_the_weights_of_autograd(name: str, aligned: bool) -> None:
    make, shape = NETS[name]
    torch.manual_seed(0)
    fast = built(make(), shape)
    slow = copy.deepcopy(fast)
    slow.kernels = "plain"  # type: ignore[assignment]
    samples, labels = images(shape)
    directions = torch.randn(20, 2, generator=torch.Generator().manual_seed(2))
    alignment = Alignment(directions, (torch.arange(20) % 3 > 0).float()) if aligned else None
    watched = torch.arange(20, 40)
    job = training.TrainingTask(samples, torch.arange(17), labels[:17], watched, alignment, True, 0, (1, 2))
    plan = training.TrainingOptions(2, 5, 0.02, 0.5, 0.01, 0.7)
    assert isinstance(training.make_stepper(fast, job, plan, None), training.FusedStepper)
    assert isinstance(training.make_stepper(slow, job, plan, None), training.PlainStepper)
    ours, theirs = training.train(fast, job, plan), training.train(slow, job, plan)
    for (key, a), b in zip(fast.state_dict().items(), slow.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=2e-5, rtol=1e-4), key
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)
    assert (ours.history == theirs.history).mean() > 0.97
    rows = torch.arange(40)
    assert torch.allclose(logits(fast, samples, rows), logits(slow, samples, rows), atol=1e-4)


@pytest.mark.parametrize("make", [layered, lambda p: perceptron(nn.Flatten(), nn.Linear(64, 9), dropout=p)])
def test_dropout_after_the_first_hidden_layer_is_seeded_and_drops_half(make: Any) -> None:
    samples, labels = blobs(30)
    weights = []
    for _ in range(2):
        torch.manual_seed(0)
        net = built(make(0.5), (1, 8, 8))
        assert fused_for(net) is not None
        job = training.TrainingTask(
            samples, torch.arange(30), torch.from_numpy(labels), torch.arange(0), None, False, 0, (1, 2)
        )
        training.train(net, job, training.TrainingOptions(3, 10, 0.05, 0.5, 0.0, 0.0))
        weights.append(net.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    fused = fused_for(net)
    assert fused is not None
    buffers = fused._buffer(10, True)
    lived = buffers.hidden[0] > 0
    assert set((buffers.dropped[lived] / buffers.hidden[0][lived]).tolist()) == {0.0, 2.0}


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.more = layered(), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) + self.more(x.flatten(1))
        return out


class ByValue(nn.Module):
    """What it does depends on the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layered()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) if x.mean() > 0 else -self.inner(x)
        return out


def changed(**places: Any) -> nn.Module:
    net = layered()
    for place, layer in places.items():
        net[int(place[1:])] = layer
    return net


@pytest.mark.parametrize(
    "net",
    [
        Branch(),
        changed(_0=nn.Conv2d(1, 3, 3, padding=1, bias=False)),
        changed(_0=nn.Conv2d(1, 3, 4, padding=2)),
        changed(_0=nn.Conv2d(1, 3, 3, padding=(1, 0)), _7=nn.Linear(12, 10)),
        changed(_0=nn.Conv2d(1, 3, 3, padding=1, padding_mode="reflect")),
        changed(_0=nn.Conv2d(1, 3, 3, padding=2, dilation=2)),
        changed(_0=nn.Conv2d(1, 3, 3, padding=1, stride=2), _7=nn.Linear(6, 10)),
        changed(_1=nn.Sequential(nn.ReLU(), nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())),
        changed(_2=nn.MaxPool2d(2, ceil_mode=True)),
        changed(_2=nn.Sequential(nn.MaxPool2d(2), nn.Dropout(0.5))),
        changed(_2=nn.Sequential(nn.MaxPool2d(2), nn.Dropout2d(0.5))),
        changed(_6=nn.Sequential(nn.Flatten(), nn.Dropout(0.5))),
        changed(_8=nn.LeakyReLU()),
        changed(_9=nn.Sequential(nn.Linear(10, 2), nn.LogSoftmax(1))),
        ByValue(),
        changed(_1=nn.Tanh()),
        changed(_2=nn.AvgPool2d(2)),
        changed(_1=nn.BatchNorm2d(3)),
        layered(0.3),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2, bias=False)),
    ],
    ids=[
        "branch",
        "no bias",
        "even kernel",
        "padding of rows only",
        "mirrored padding",
        "dilation",
        "stride",
        "three convolutions",
        "pooling that rounds up",
        "dropout of pooled elements",
        "dropout of channels of the first convolution",
        "dropout before the first linear layer",
        "leaky relu",
        "log-softmax",
        "a path that depends on the data",
        "tanh",
        "mean pooling",
        "batch norm",
        "other dropout",
        "one layer",
        "perceptron with tanh",
        "perceptron without a bias",
    ],
)
def test_any_other_form_is_left_to_autograd(net: nn.Module) -> None:
    net = built(copy.deepcopy(net), (1, 8, 8))
    assert fused_for(net) is None
    plain = copy.deepcopy(net)
    plain.kernels = "plain"  # type: ignore[assignment]
    samples, labels = images((1, 8, 8), 10)
    job = training.TrainingTask(samples, torch.arange(10), labels, torch.arange(0), None, False, 0, (1, 2))
    for one in (net, plain):
        training.train(one, job, training.TrainingOptions(1, 5, 0.02, 0.5, 0.0, 0.0))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), plain.parameters(), strict=True))


class Tapped(Net):
    """An own network that names its blocks as it likes."""

    taps = ("body",)

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = layered()[:9], nn.Linear(10, 2)

    def embed(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


def test_a_loss_prediction_module_reads_the_blocks_that_an_own_network_names() -> None:
    samples, labels = images((1, 8, 8))
    torch.manual_seed(0)
    net = built(Tapped(), (1, 8, 8))
    assert fused_for(net) is not None  # as after a first pass
    predictor = new_predictor(net, (1, 8, 8), 0)
    job = training.TrainingTask(samples, torch.arange(17), labels[:17], torch.arange(0), None, False, 0, (1, 2))
    plan = training.TrainingOptions(2, 5, 0.02, 0.5, 0.0, 0.0)
    with tapped(net) as seen:
        training.train(net, job, plan, WithLossPrediction(predictor, net.taps, seen))
    found = predict(net, predictor, samples, torch.arange(40))
    net.kernels = "plain"
    assert torch.equal(found, predict(net, predictor, samples, torch.arange(40)))


@pytest.mark.parametrize(
    ("kernels", "channels", "hidden", "since"),
    [
        ((5, 3), (4, 5), 12, 2),
        ((3, 5), (40, 65), 12, 2),
        ((3, 5), (40, 66), 12, 0),
        ((5, 5), (40, 66), 12, 1),
        ((5, 7), (4, 5), 12, 0),
        ((7, 7), (4, 5), 12, 1),
        ((5, 3), (4, 50), 21000, 0),
        ((3, 3), (4, 50), 21000, 1),
    ],
)
def test_large_networks_of_the_later_forms_are_left_to_autograd(
    kernels: tuple[int, int], channels: tuple[int, int], hidden: int, since: int
) -> None:
    one, two = channels
    net = nn.Sequential(
        *(nn.Conv2d(1, one, kernels[0], padding=kernels[0] // 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(one, two, kernels[1], padding=kernels[1] // 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * two, hidden), nn.ReLU(), nn.Linear(hidden, 2)),
    )
    assert fused_since(built(net, (1, 8, 8))) == since


def test_networks_of_unknown_shape_are_left_to_autograd() -> None:
    assert fused_for(layered()) is None


def test_a_network_with_hooks_is_left_to_autograd_as_long_as_it_has_them() -> None:
    net = Named((3, 3), (1, 1), 5 * 4, 12)
    assert fused_for(built(net, (1, 8, 8))) is not None

    def look(*_: Any) -> None: ...

    parameter = net.one.weight
    for add in (
        net.register_forward_hook,
        net.linears.register_forward_hook,
        net.two.register_forward_pre_hook,
        net.pool.register_full_backward_hook,
        net.two.register_full_backward_pre_hook,
        parameter.register_hook,
        parameter.register_post_accumulate_grad_hook,
    ):
        hook = add(look)  # type: ignore[operator]
        assert fused_for(net) is None, add
        hook.remove()
        assert fused_for(net) is not None, add


def hidden() -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(64, 9)]


class Features(Net):
    """Its features are what ``head`` sees, wherever that begins."""

    def __init__(self, *body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(*body), head

    def embed(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


@pytest.mark.parametrize(
    ("net", "fits"),
    [
        (Features(*hidden(), nn.ReLU(), head=nn.Linear(9, 2)), True),
        (Features(*hidden(), nn.ReLU(), head=nn.Sequential(nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 2))), False),
        (Features(*hidden(), head=nn.Sequential(nn.ReLU(), nn.Linear(9, 2))), False),
        (Features(*layered()[:9], head=nn.Linear(10, 2)), True),
        (Features(*layered()[:7], head=nn.Linear(24, 2)), True),
        (Features(*layered()[:7], head=layered()[7:]), False),
    ],
    ids=[
        "what the last layer sees",
        "another width",
        "before the relu",
        "of convolutions, what the last layer sees",
        "of convolutions, what the only layer sees",
        "of convolutions, another width",
    ],
)
def test_the_features_of_an_own_network_are_those_that_it_names(net: Net, fits: bool) -> None:
    samples, _ = images((1, 8, 8))
    assert (fused_for(built(net, (1, 8, 8))) is not None) is fits
    found = features(net, samples, torch.arange(40))
    assert torch.allclose(found, net.eval().embed(samples.ready(torch.arange(40))), atol=1e-5)
