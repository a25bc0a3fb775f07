"""The fused steps against autograd: same masks, same batches, gradients to 1e-5, outputs to 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chase.data.resident import Samples
from chase.learning import steppers, training
from chase.learning.distillation import Distillation
from chase.learning.fused import FusedNet, fused_for
from chase.learning.fused.compiled import CompiledNet
from chase.learning.fused.conv import FACTORS
from chase.learning.inference import features, logits, run_chunks
from chase.learning.loss_prediction import WithLossPrediction, new_predictor, predict, tapped, with_taps
from chase.learning.losses import Alignment
from chase.models.catalog import NetSpec, build
from chase.models.layers import Dropout, MaskSource

SHAPES = {"cifar-cnn": (3, 32, 32), "mnist-cnn": (1, 28, 28), "emnist-cnn": (1, 28, 28), "tiny-cnn": (1, 8, 8)}
CLASSES = 10
pytestmark = pytest.mark.usefixtures("each_kernel")


def make(name: str, dropout: float) -> nn.Module:
    return build(NetSpec(name, SHAPES[name], CLASSES, dropout), seed=3)


def make_samples(name: str, count: int = 40) -> Samples:
    pixels = np.random.default_rng(0).integers(0, 256, (count, *SHAPES[name]), dtype=np.uint8)
    pixels[::2, :, : SHAPES[name][1] // 2] = 200  # flat areas: exact ties in the pooling windows, as in real images
    channels = SHAPES[name][0]
    return Samples(torch.from_numpy(pixels), mean=(0.4,) * channels, std=(0.3,) * channels)


class Replay:
    """Hands autograd the masks that the fused network draws, in the layout of the plain one."""

    def __init__(self, name: str, batch: int) -> None:
        bits = MaskSource(0, 1, 2)
        if name == "cifar-cnn":
            self.masks = [self._element(bits, 6, 14, batch), self._element(bits, 16, 5, batch)]
        elif name == "tiny-cnn":
            self.masks = [self._flat(bits, 64 * batch).view(batch, 64)]
        else:
            channel = self._flat(bits, 20 * batch).view(20, batch).t().reshape(batch, 20, 1, 1)
            hidden = 512 if name == "emnist-cnn" else 50
            self.masks = [channel, self._flat(bits, hidden * batch).view(batch, hidden)]

    @staticmethod
    def _flat(bits: MaskSource, count: int) -> Tensor:
        return torch.from_numpy(FACTORS[bits.octets(-(-count // 8))].ravel()[:count].copy())

    def _element(self, bits: MaskSource, out: int, side: int, batch: int) -> Tensor:
        flat = self._flat(bits, 4 * out * side * side * batch)
        windows = flat.view(2, 2, out, side, side, batch).permute(5, 2, 3, 1, 4, 0)
        return windows.reshape(batch, out, 2 * side, 2 * side)

    def factors(self, count: int, p: float) -> Tensor:
        mask = self.masks.pop(0)
        assert mask.numel() == count
        assert p == 0.5
        return mask


def replay(net: nn.Module, name: str, batch: int) -> None:
    """All dropout of the plain network takes the masks of the fused one."""
    shared = Replay(name, batch)
    for module in net.modules():
        if isinstance(module, Dropout):
            module.source = shared  # type: ignore[assignment]


def first_step(stepper: training.Stepper, size: int, epoch: int, epochs: int) -> float:
    """The step that the first epoch of ``train`` takes, as if it were another epoch's."""
    draw = training.rng(0, "batches", 1, 2)
    take = torch.from_numpy(draw.permutation(size))
    return stepper.step(take, training.Step(epoch, epochs, take))


def assert_same_changes(fast: nn.Module, slow: nn.Module, start: nn.Module) -> None:
    before = dict(start.named_parameters())
    for (key, ours), theirs in zip(fast.named_parameters(), slow.parameters(), strict=True):
        wanted = theirs.detach() - before[key].detach()
        error = float((ours.detach() - theirs.detach()).norm() / wanted.norm())
        assert error < 1e-5, f"{key}: relative error {error}"


def an_alignment() -> Alignment:
    directions = torch.randn(20, CLASSES, generator=torch.Generator().manual_seed(1))
    return Alignment(directions, (torch.arange(20) % 3 > 0).float())


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_step_equals_autograd(name: str, dropout: float, aligned: bool, decay: float) -> None:
    samples, net, plain = make_samples(name), make(name, dropout), make(name, dropout)
    labels = torch.arange(7) % CLASSES
    alignment = an_alignment() if aligned else None
    # lr 1 and no momentum: the change of a weight is its gradient
    plan = training.TrainingOptions(1, 7, 1.0, 0.0, decay, 0.7)
    job = training.TrainingTask(samples, torch.arange(7), labels, torch.arange(20, 40), alignment, False, 0, (1, 2))

    fused_outcome = training.train(net, job, plan)
    assert fused_for(net) is not None

    plain.kernels = "plain"
    stepper = training.PlainStepper(plain, job, plan, None)
    replay(plain, name, 14 if aligned else 7)
    plain_loss = first_step(stepper, 7, 0, 1)

    assert_same_changes(net, plain, make(name, dropout))
    assert fused_outcome.loss == pytest.approx(plain_loss, rel=1e-5)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_a_step_of_distillation_equals_autograd(name: str, dropout: float, aligned: bool, single: bool) -> None:
    """As ``train`` takes it, and as a single step."""
    samples, net, plain = make_samples(name), make(name, dropout), make(name, dropout)
    teacher = 3 * torch.randn(7, CLASSES, generator=torch.Generator().manual_seed(1))
    plan = training.TrainingOptions(1, 7, 1.0, 0.0, 0.1, 0.7)
    alignment = an_alignment() if aligned else None
    job = training.TrainingTask(
        samples, torch.arange(7), torch.arange(7), torch.arange(20, 40), alignment, False, 0, (1, 2)
    )
    if single:
        stepper = training.make_stepper(net, job, plan, Distillation(teacher, 0.9, 4.0))
        assert isinstance(stepper, training.FusedStepper)
        loss = first_step(stepper, 7, 0, 1)
        stepper.finish()
    else:
        loss = training.train(net, job, plan, Distillation(teacher, 0.9, 4.0)).loss

    plain.kernels = "plain"
    slow = training.PlainStepper(plain, job, plan, Distillation(teacher, 0.9, 4.0))
    replay(plain, name, 14 if aligned else 7)
    assert loss == pytest.approx(first_step(slow, 7, 0, 1), rel=1e-5)
    assert_same_changes(net, plain, make(name, dropout))


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_before_the_last_epoch_gives_no_loss_of_distillation(name: str) -> None:
    plan = training.TrainingOptions(2, 7, 1.0, 0.0, 0.1, 0.7)
    job = training.TrainingTask(
        make_samples(name), torch.arange(7), torch.arange(7), torch.arange(20, 40), None, False, 0, (1, 2)
    )
    stepper = training.make_stepper(make(name, 0.0), job, plan, Distillation(torch.randn(7, CLASSES), 0.9, 4.0))
    assert isinstance(stepper, training.FusedStepper)
    assert first_step(stepper, 7, 0, 2) == 0.0
    assert first_step(stepper, 7, 1, 2) > 0.0


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("aligned", [False, True])
def test_a_turn_has_the_same_bits_in_one_call_or_in_single_steps(
    name: str, aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three epochs of two batches of seven and one of four."""
    samples, labels, found = make_samples(name), torch.arange(18) % CLASSES, []
    plan = training.TrainingOptions(3, 7, 0.1, 0.5, 0.01, 0.7)
    alignment = an_alignment() if aligned else None
    job = training.TrainingTask(samples, torch.arange(18), labels, torch.arange(20, 40), alignment, True, 0, (1, 2))
    for at_once in (True, False):
        net = make(name, 0.5)
        if not at_once:
            monkeypatch.setattr(steppers.FusedStepper, "epoch", steppers.step_by_step)
        outcome = training.train(net, job, plan)
        found.append(([p.detach().numpy().tobytes() for p in net.parameters()], outcome.loss, outcome.history.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [1, 7, 10])
@pytest.mark.parametrize("attached", [False, True])
def test_a_step_with_loss_prediction_equals_autograd(
    name: str, dropout: float, aligned: bool, size: int, attached: bool
) -> None:
    """Gradients of the network and of the module; ``attached`` is the second of five epochs, else the last."""
    samples, nets = make_samples(name), [with_taps(make(name, dropout)) for _ in range(2)]
    predictors = [new_predictor(net, SHAPES[name], 5) for net in nets]
    alignment = an_alignment() if aligned else None
    plan = training.TrainingOptions(5, size, 1.0, 0.0, 0.1, 0.7)
    labels = torch.arange(size) % CLASSES
    job = training.TrainingTask(samples, torch.arange(size), labels, torch.arange(20, 40), alignment, False, 0, (1, 2))
    losses = []
    for net, predictor, plain in zip(nets, predictors, (False, True), strict=True):
        net.kernels = "plain" if plain else "auto"
        with tapped(net) as seen:
            stepper = training.make_stepper(net, job, plan, WithLossPrediction(predictor, net.taps, seen))
            assert isinstance(stepper, training.PlainStepper if plain else training.FusedStepper)
            if plain:
                replay(net, name, 2 * size if aligned else size)
            losses.append(first_step(stepper, size, 1 if attached else 4, 5))
            stepper.finish()

    start = with_taps(make(name, dropout))
    assert_same_changes(nets[0], nets[1], start)
    assert_same_changes(predictors[0], predictors[1], new_predictor(start, SHAPES[name], 5))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_features_and_predicted_losses_equal_the_plain_network(name: str) -> None:
    samples, net, plain = make_samples(name, 47), with_taps(make(name, 0.5)), with_taps(make(name, 0.5))
    plain.kernels = "plain"
    predictor, rows = new_predictor(net, SHAPES[name], 5), torch.arange(47)
    assert torch.allclose(features(net, samples, rows), features(plain, samples, rows), atol=1e-5)
    assert torch.allclose(predict(net, predictor, samples, rows), predict(plain, predictor, samples, rows), atol=1e-5)
    assert features(net, samples, rows[:0]).numel() == 0


def test_several_steps_of_a_turn_with_loss_prediction_equal_autograd() -> None:
    """Momentum, batches of ten and an odd rest, both parts of a turn: the same weights as by autograd."""
    samples, labels = make_samples("mnist-cnn"), torch.arange(25) % CLASSES
    job = training.TrainingTask(samples, torch.arange(25), labels, torch.arange(0), None, False, 0, (1, 2))
    ends = []
    for plain in (False, True):
        net = with_taps(make("mnist-cnn", 0.0))
        net.kernels = "plain" if plain else "auto"
        predictor = new_predictor(net, SHAPES["mnist-cnn"], 5)
        with tapped(net) as seen:
            loss = WithLossPrediction(predictor, net.taps, seen)
            outcome = training.train(net, job, training.TrainingOptions(5, 10, 0.02, 0.5, 0.001, 0.0), loss)
        ends.append(([*net.parameters(), *predictor.parameters()], outcome.loss))
    for fast, slow in zip(ends[0][0], ends[1][0], strict=True):
        assert torch.allclose(fast, slow, atol=1e-5)
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_equal_the_plain_network(name: str) -> None:
    samples, net = make_samples(name, 47), make(name, 0.5)
    rows = torch.arange(47)
    plain = run_chunks(net, net, samples, rows)
    assert torch.allclose(logits(net, samples, rows), plain, atol=1e-5)


def test_momentum_is_that_of_sgd() -> None:
    """Three steps by hand: v = m v + g, w = w - lr v, seen through two runs that differ in momentum only."""
    samples, labels = make_samples("mnist-cnn"), torch.zeros(10, dtype=torch.int64)
    job = training.TrainingTask(samples, torch.arange(10), labels, torch.arange(0), None, False, 0, (1, 2))
    plan = training.TrainingOptions(3, 10, 0.01, 0.5, 0.0, 0.0)
    fast, slow = make("mnist-cnn", 0.0), make("mnist-cnn", 0.0)
    slow.kernels = "plain"
    training.train(fast, job, plan)
    training.train(slow, job, plan)
    for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_many_watched_samples_give_the_same_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows converted on demand (many watched samples) against rows kept as floats."""
    samples, labels = make_samples("mnist-cnn"), torch.arange(10)
    alignment = Alignment(torch.ones(30, CLASSES), torch.ones(30))
    job = training.TrainingTask(samples, torch.arange(10), labels, torch.arange(10, 40), alignment, True, 0, (1, 2))
    histories = []
    for resident in (6000, 5):
        monkeypatch.setattr(steppers, "RESIDENT_ROWS", resident)
        net = make("mnist-cnn", 0.5)
        histories.append(training.train(net, job, training.TrainingOptions(3, 10, 0.05, 0.5, 0.0, 1.0)).history)
    assert (histories[0] == histories[1]).all()
    assert histories[0].shape == (3, 30)


def test_other_networks_are_left_to_autograd() -> None:
    assert fused_for(build(NetSpec("tiny-cnn", (1, 9, 9), 10, 0.0), 0)) is None
    assert fused_for(build(NetSpec("cifar-cnn", (3, 32, 32), 10, 0.3), 0)) is None
    odd = build(NetSpec("cifar-cnn", (3, 30, 30), 10, 0.5), 0)
    assert fused_for(odd) is None
    forced = make("cifar-cnn", 0.5)
    forced.kernels = "plain"
    assert fused_for(forced) is None


def test_the_flat_vector_goes_in_and_out_unchanged() -> None:
    net = make("cifar-cnn", 0.5)
    fused = fused_for(net)
    assert isinstance(fused, FusedNet | CompiledNet)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    fused.load()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    fused.store()
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key])
