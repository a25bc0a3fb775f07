"""Own networks by the fused steps: the same outputs, losses and weights as autograd; any other form is left to it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import blobs
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning import training
from chase.learning.fused import fused_for
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


def perceptron(*start: nn.Module, dropout: float = 0.0) -> nn.Module:
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*start, nn.ReLU(), *drop, nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 2))


NETS = {
    "5x5, 28 pixels": (lambda: Functional(5, 0, 5 * 16), (1, 28, 28)),
    "3x3 padded, 8 pixels": (layered, (1, 8, 8)),
    "5x5 padded by 2, 16 x 8 pixels": (lambda: Functional(5, 2, 5 * 8), (1, 16, 8)),
    "5x5 padded by 1, 18 pixels": (lambda: Functional(5, 1, 5 * 9), (1, 18, 18)),
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
        changed(_0=nn.Conv2d(1, 3, 5, padding=2)),
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
        "other kernel",
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
    assert fused_for(built(net, (1, 8, 8))) is None


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


def test_images_of_an_odd_size_and_networks_of_unknown_shape_are_left_to_autograd() -> None:
    odd = Functional(5, 0, 5 * 16)
    assert fused_for(built(odd, (1, 29, 29))) is None
    assert odd(torch.zeros(2, 1, 29, 29)).shape == (2, 2)
    assert fused_for(layered()) is None


class Features(Net):
    """Its features are what ``head`` sees, wherever that begins."""

    def __init__(self, *body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), *body), head

    def embed(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out


@pytest.mark.parametrize(
    ("net", "fits"),
    [
        (Features(nn.ReLU(), head=nn.Linear(9, 2)), True),
        (Features(nn.ReLU(), head=nn.Sequential(nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 2))), False),
        (Features(head=nn.Sequential(nn.ReLU(), nn.Linear(9, 2))), False),
    ],
    ids=["what the last layer sees", "another width", "before the relu"],
)
def test_the_features_of_an_own_network_are_those_that_it_names(net: Net, fits: bool) -> None:
    samples, _ = images((1, 8, 8))
    assert (fused_for(built(net, (1, 8, 8))) is not None) is fits
    found = features(net, samples, torch.arange(40))
    assert torch.allclose(found, net.eval().embed(samples.ready(torch.arange(40))), atol=1e-5)
