"""Own networks with dropout by the fused steps: a step has the gradients of autograd with the same masks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning import training
from chase.learning.fused import fused_for
from chase.learning.fused.conv import FACTORS
from chase.models.catalog import SAMPLE_SHAPE
from chase.models.layers import Dropout, MaskSource

pytestmark = pytest.mark.usefixtures("each_kernel")
BATCH = 7
SIDES = (5, 2)
"""Of the pooled maps of images of 12 pixels."""


def layers(order: str) -> list[nn.Module]:
    """A network from letters: convolution, dropout of elements or channels (d), relu, pooling, flatten, linear."""
    convs, linears = [nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 3, padding=1)], [nn.Linear(12, 6), nn.Linear(6, 2)]
    made = {
        "c": lambda: convs.pop(0),
        "e": lambda: Dropout(0.5),
        "d": lambda: Dropout(0.5, channelwise=True),
        "r": nn.ReLU,
        "p": lambda: nn.MaxPool2d(2),
        "f": nn.Flatten,
        "l": lambda: linears.pop(0),
    }
    return [made[letter]() for letter in order]  # type: ignore[operator]


def bits_of(source: MaskSource, count: int) -> Tensor:
    return torch.from_numpy(FACTORS[source.octets(-(-count // 8))].ravel()[:count].copy())


class Replay:
    """Hands autograd the masks that the fused network draws, in the layout of the plain one."""

    def __init__(self, order: str) -> None:
        source, (first, second) = MaskSource(0, 1, 2), order[: order.index("f")].split("c")[1:]
        self.masks = [self._elements(source, 4, SIDES[0], 0)] if "e" in first else []
        if "e" in second:
            self.masks.append(self._elements(source, 3, SIDES[1], 1))
        if "d" in second:
            self.masks.append(bits_of(source, 3 * BATCH).view(3, BATCH).t().reshape(BATCH, 3, 1, 1))
        if "e" in order[order.index("f") :]:
            self.masks.append(bits_of(source, 6 * BATCH).view(BATCH, 6))

    @staticmethod
    def _elements(source: MaskSource, out: int, side: int, left_out: int) -> Tensor:
        windows = bits_of(source, 4 * out * side * side * BATCH).view(2, 2, out, side, side, BATCH)
        mask = windows.permute(5, 2, 3, 1, 4, 0).reshape(BATCH, out, 2 * side, 2 * side)
        return nn.functional.pad(mask, (0, left_out, 0, left_out))

    def factors(self, count: int, p: float) -> Tensor:
        mask = self.masks.pop(0)
        assert (mask.numel(), p) == (count, 0.5)
        return mask


@pytest.mark.parametrize(
    "order",
    ["crpcdrpflrl", "crpcrdpfl", "cprcrpdflrel", "cprcprdflrl", "cerpcrpflrl", "crepcrepflrel", "ceprceprflrl"],
)
def test_a_step_equals_autograd_with_the_same_masks(order: str) -> None:
    torch.manual_seed(0)
    fast = nn.Sequential(*layers(order))
    setattr(fast, SAMPLE_SHAPE, (1, 12, 12))
    slow, start = copy.deepcopy(fast), copy.deepcopy(fast)
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 1, 12, 12), dtype=np.uint8)
    samples = Samples(torch.from_numpy(pixels), mean=(0.4,), std=(0.3,))
    labels, plan = torch.arange(BATCH) % 2, training.TrainingOptions(1, BATCH, 1.0, 0.0, 0.0, 0.0)
    job = training.TrainingTask(samples, torch.arange(BATCH), labels, torch.arange(0), None, False, 0, (1, 2))
    assert fused_for(fast) is not None
    loss = training.train(fast, job, plan).loss
    slow.kernels = "plain"  # type: ignore[assignment]
    stepper, masks = training.PlainStepper(slow, job, plan, None), Replay(order)
    for module in slow.modules():
        if isinstance(module, Dropout):
            module.source = masks  # type: ignore[assignment]
    take = torch.from_numpy(training.rng(0, "batches", 1, 2).permutation(BATCH))
    assert loss == pytest.approx(stepper.step(take, training.Step(0, 1)), rel=1e-5)
    assert not masks.masks
    for ours, theirs, before in zip(*(net.state_dict().values() for net in (fast, slow, start)), strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float((theirs - before).norm()) + 1e-7


@pytest.mark.parametrize("order", ["crpecrpflrl", "cdrpcrpflrl", "crpcrpeflrl", "crpcderpflrl", "crpcrpfelrl"])
def test_dropout_at_other_places_is_left_to_autograd(order: str) -> None:
    net = nn.Sequential(*layers(order))
    setattr(net, SAMPLE_SHAPE, (1, 12, 12))
    assert fused_for(net) is None


def test_dropout_layers_of_torch_are_known_and_another_rate_is_left_to_autograd() -> None:
    for rate, known in ((0.5, True), (0.0, True), (0.25, False)):
        net = nn.Sequential(*layers("crpcrp"), nn.Dropout2d(rate), *layers("ccflrl")[2:])
        setattr(net, SAMPLE_SHAPE, (1, 12, 12))
        assert (fused_for(net) is not None) is known, rate
