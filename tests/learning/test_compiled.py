"""The compiled kernel: any geometry, any batch, all sets of instructions, threads and forks; and where it is not."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled_kernel import kernel_with
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from chase.learning.fused import FusedNet, Series, Watched, compiled, fused_for
from chase.learning.fused.compiled import CompiledNet
from chase.learning.fused.form import Form
from chase.learning.native import kernel as kernel_room
from chase.learning.native.choice import chosen
from chase.learning.native.kernel import ANY, AVX2, AVX512, NoKernel, load
from chase.models.catalog import NetSpec, build
from chase.models.layers import MaskSource

SGD = (0.1, 0.5, 0.01)


@dataclass(frozen=True)
class Geometry:
    """A network of the fused form, drawn at random."""

    channels: tuple[int, int, int]
    kernels: tuple[int, int]
    pads: tuple[int, int]
    pooled: tuple[int, int]
    left_out: tuple[int, int]
    """Rows or columns of the second and the first convolution that pooling leaves out, 0 or 1."""
    hidden: tuple[int, ...]
    form: Form
    batch: int
    watched: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width whose second map has ``pooled`` rows and columns."""
        outer, inner = grown(self.kernels, self.pads)
        more, first_more = self.left_out
        height, width = (2 * (2 * side + inner + more) + outer + first_more for side in self.pooled)
        return height, width

    def layers(self) -> tuple[list[nn.Conv2d], list[nn.Linear]]:
        torch.manual_seed(0)
        first, second, third = self.channels
        convs = [
            nn.Conv2d(a, b, kernel, padding=pad)
            for a, b, kernel, pad in zip((first, second), (second, third), self.kernels, self.pads, strict=True)
        ]
        widths = [third * self.pooled[0] * self.pooled[1], *self.hidden, 3]
        return convs, [nn.Linear(a, b) for a, b in pairwise(widths)]


def grown(kernels: tuple[int, int], pads: tuple[int, int]) -> tuple[int, int]:
    """How much larger an image is than the map that each convolution makes of it."""
    outer, inner = (kernel - 1 - 2 * pad for kernel, pad in zip(kernels, pads, strict=True))
    return outer, inner


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    kernel = st.sampled_from([1, 3, 5, 7])
    kernels = draw(st.one_of(kernel.map(lambda k: (k, k)), st.tuples(kernel, kernel)))
    pads = (draw(st.integers(0, kernels[0] - 1)), draw(st.integers(0, kernels[1] - 1)))
    outer, inner = grown(kernels, pads)
    least = next(s for s in range(1, 20) if 2 * s + inner >= 1 and 2 * (2 * s + inner) + outer >= 1)
    side = st.integers(least, least + 4)
    channels = st.tuples(st.integers(1, 4), st.integers(1, 11), st.integers(1, 7))
    form = st.builds(Form, st.booleans(), st.sampled_from(["none", "element", "channel"]), st.booleans())
    hidden = draw(st.lists(st.integers(1, 20), max_size=2).map(tuple))
    made = draw(form)
    made = made if hidden else Form(made.first, made.second, False)
    batch = draw(st.integers(1, 13))
    pooled, left_out = draw(st.tuples(side, side)), draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
    return Geometry(draw(channels), kernels, pads, pooled, left_out, hidden, made, batch, draw(st.integers(0, batch)))


def images(geometry: Geometry, count: int) -> Tensor:
    made = torch.randn(count, geometry.channels[0], *geometry.size, generator=torch.Generator().manual_seed(1))
    made[::2, :, ::2] = 0.5  # flat areas: exact ties in the pooling windows
    return made


def after_steps(net: FusedNet | CompiledNet, geometry: Geometry) -> tuple[Tensor, Tensor, list[float]]:
    """Momentum and outputs after three steps, and their losses."""
    net.load()
    samples, bits = net.prepare(images(geometry, 20)), MaskSource(0, "test")
    labels = torch.arange(geometry.batch) % 3
    draw, losses = np.random.default_rng(0), []
    for _ in range(3):
        batches = [(samples, draw.permutation(20)[: geometry.batch])]
        alignment = None
        if geometry.watched:
            batches.append((samples, draw.permutation(20)[: geometry.watched]))
            directions = torch.from_numpy(draw.normal(size=(geometry.watched, 3)).astype(np.float32))
            alignment = directions, torch.ones(geometry.watched)
        losses.append(net.step(batches, labels, bits, alignment, 0.7, SGD, True))
    return net.velocity.clone(), net.outputs(samples), losses


def pair(geometry: Geometry, path: int) -> tuple[FusedNet, CompiledNet]:
    convs, linears = geometry.layers()
    fused = FusedNet(convs, linears, geometry.size, geometry.form, geometry.pads)
    return fused, CompiledNet(convs, linears, geometry.size, geometry.form, geometry.pads, kernel_with(path))


@pytest.mark.parametrize("path", [AVX512, AVX2, ANY])
@given(geometry=geometries())
def test_any_geometry_gives_what_the_fused_steps_give(path: int, geometry: Geometry) -> None:
    fused, compiled = pair(geometry, path)
    (speed, outputs, losses), (own_speed, own_outputs, own_losses) = (
        after_steps(net, geometry) for net in (fused, compiled)
    )
    assert float((own_speed - speed).norm()) <= 2e-5 * float(speed.norm()) + 1e-6
    assert torch.allclose(own_outputs, outputs, rtol=1e-4, atol=1e-5)
    assert own_losses == pytest.approx(losses, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("path", [AVX512, AVX2, ANY])
@given(geometry=geometries())
def test_outputs_are_those_of_the_layers(path: int, geometry: Geometry) -> None:
    convs, linears = geometry.layers()
    net = CompiledNet(convs, linears, geometry.size, geometry.form, geometry.pads, kernel_with(path))
    net.load()
    x = images(geometry, geometry.batch)
    wanted = x
    with torch.no_grad():
        for conv in convs:
            wanted = nn.functional.max_pool2d(conv(wanted).relu(), 2)
        wanted = wanted.flatten(1)
        for layer in linears[:-1]:
            wanted = layer(wanted).relu()
        wanted = linears[-1](wanted)
    assert torch.allclose(net.outputs(net.prepare(x)), wanted, rtol=1e-4, atol=1e-5)


def in_steps(geometry: Geometry, path: int, at_once: bool) -> tuple[bytes, list[float]]:
    """Parameters and losses after seven steps, in one call or one by one."""
    net = pair(geometry, path)[1]
    net.load()
    samples, bits, draw = net.prepare(images(geometry, 20)), MaskSource(0, "test"), np.random.default_rng(0)
    positions = np.stack([draw.permutation(20)[: geometry.batch] for _ in range(7)])
    picks = np.stack([draw.permutation(20)[: geometry.watched] for _ in range(7)])
    labels = positions % 3
    directions = torch.from_numpy(draw.normal(size=(20, 3)).astype(np.float32))
    aligned = torch.from_numpy((np.arange(20) % 3 > 0).astype(np.float32))
    if at_once:
        watched = Watched(samples, picks, directions, aligned) if geometry.watched else None
        losses = net.steps(Series(samples, positions, labels, SGD, 0.7, watched), bits, want_loss=True).tolist()
    else:
        losses = []
        for take, pick, classes in zip(positions, picks, labels, strict=True):
            batches = [(samples, take)] + ([(samples, pick)] if geometry.watched else [])
            alignment = (directions[pick], aligned[pick]) if geometry.watched else None
            losses.append(net.step(batches, torch.from_numpy(classes), bits, alignment, 0.7, SGD, True))
    return net.theta.numpy().tobytes() + net.velocity.numpy().tobytes(), losses


@pytest.mark.parametrize("path", [AVX512, AVX2, ANY])
@given(geometry=geometries())
def test_steps_in_one_call_have_the_bits_of_single_steps(path: int, geometry: Geometry) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "CALLS", 3)
        assert in_steps(geometry, path, at_once=True) == in_steps(geometry, path, at_once=False)


@given(geometry=geometries())
def test_avx512_has_the_bits_of_avx2(geometry: Geometry) -> None:
    """So a run goes on with the same figures on another processor."""
    (wide, wide_losses), (narrow, losses) = (in_steps(geometry, path, at_once=True) for path in (AVX512, AVX2))
    assert (wide, wide_losses) == (narrow, losses)
    wide_net, narrow_net = (pair(geometry, path)[1] for path in (AVX512, AVX2))
    x = images(geometry, 37)
    for net in (wide_net, narrow_net):
        net.load()
    assert torch.equal(wide_net.outputs(wide_net.prepare(x)), narrow_net.outputs(narrow_net.prepare(x)))


@given(geometry=geometries())
def test_samples_are_prepared_with_padding_as_far_as_they_are_read(geometry: Geometry) -> None:
    net, x = pair(geometry, AVX2)[1], images(geometry, 18)
    first, pad = net.geometry[0], geometry.pads[0]
    wanted = nn.functional.pad(x, (pad, pad, pad, pad))[:, :, : first.height, : first.width].permute(0, 2, 3, 1)
    samples = net.prepare(x.transpose(2, 3).contiguous().transpose(2, 3))  # as good as contiguous
    assert np.array_equal(samples, wanted.reshape(18, -1).numpy())
    for at, part in zip((0, 16), net.in_passes(samples), strict=True):
        rows = wanted[at : at + 16]
        planes = rows.reshape(len(rows), first.height, first.width // 2, 2, first.channels).permute(4, 1, 3, 2, 0)
        assert np.array_equal(part.ravel(), planes.numpy().ravel())


def small(path: int = AVX2) -> CompiledNet:
    net = build(NetSpec("mnist-cnn", (1, 28, 28), 10, 0.5), 0)
    fused = fused_for(net)
    assert fused is not None
    convs, linears = [net.conv1, net.conv2], [net.fc, net.head]
    made = CompiledNet(convs, linears, (28, 28), Form(False, "channel", True), (0, 0), kernel_with(path))
    made.load()
    return made


@pytest.mark.parametrize("path", [AVX512, AVX2, ANY])
def test_the_bits_of_an_output_do_not_depend_on_the_pass(path: int) -> None:
    net = small(path)
    samples = net.prepare(torch.randn(37, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    whole = net.outputs(samples)
    for chunk in (1, 2, 3, 5, 20, 37):
        net.chunk = chunk
        assert torch.equal(net.outputs(samples), whole)
    assert torch.equal(net.outputs_of(net.in_passes(samples)), whole)


def test_threads_and_forks_compute_the_same() -> None:
    def steps(_: int = 0) -> bytes:
        net = small()
        samples, bits = net.prepare(torch.ones(10, 1, 28, 28)), MaskSource(0, "test")
        samples += np.arange(samples.shape[1], dtype=np.float32) % 7
        for _ in range(20):
            net.step([(samples, np.arange(10))], torch.arange(10), bits, None, 0.0, SGD, False)
        return net.theta.numpy().tobytes()

    wanted = steps()
    with ThreadPoolExecutor(4) as pool:
        assert all(found == wanted for found in pool.map(steps, range(8)))
    child = os.fork()
    if child == 0:
        os._exit(0 if steps() == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_positions_and_labels_that_do_not_exist_are_refused() -> None:
    net = small()
    samples, bits = net.prepare(torch.ones(4, 1, 28, 28)), MaskSource(0, "test")
    before = net.theta.clone()
    for positions, labels in ([0, 4], [0, 1]), ([-1, 0], [0, 1]), ([0, 1], [0, 10]), ([0, 1], [-1, 0]):
        with pytest.raises(IndexError, match="outside of"):
            net.step([(samples, np.array(positions))], torch.tensor(labels), bits, None, 0.0, SGD, False)
        with pytest.raises(IndexError, match="outside of"):
            net.steps(Series(samples, np.array([positions]), np.array([labels]), SGD), bits, want_loss=False)
    watched = Watched(samples, np.array([[0, 4]]), torch.ones(4, 10), torch.ones(4))
    with pytest.raises(IndexError, match="outside of"):
        net.steps(Series(samples, np.array([[0, 1]]), np.array([[0, 1]]), SGD, 0.0, watched), bits, want_loss=False)
    assert torch.equal(net.theta, before)


def test_images_of_another_size_are_refused() -> None:
    net = small()
    for shape in ((5, 3, 28, 28), (5, 1, 32, 28), (5, 1, 28, 27)):
        with pytest.raises(ValueError, match=r"was laid out for \(1, 28, 28\)"):
            net.prepare(torch.zeros(shape))


def test_a_kernel_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoKernel, match="was not built: install chase again on a machine with a C compiler"):
        load(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(NoKernel, match="cannot be loaded"):
        load(tmp_path / "text.so")
    kernel_with(ANY)
    monkeypatch.setattr(kernel_room, "sources_hash", lambda: "other")
    with pytest.raises(NoKernel, match="was built from other sources"):
        load(Path(kernel_room.__file__).with_name(kernel_room.LIBRARY))


def test_auto_is_fused_without_a_kernel_or_without_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [chosen("fused"), chosen("plain")] == ["fused", "plain"]
    monkeypatch.setattr(kernel_room, "_looked_up", lambda: NoKernel("was not built"))
    assert chosen("auto") == "fused"
    with pytest.raises(NoKernel, match="was not built"):
        chosen("compiled")
    monkeypatch.undo()
    portable, fast = kernel_with(ANY), kernel_with(AVX2)
    monkeypatch.setattr(kernel_room, "_looked_up", lambda: portable)
    assert [chosen("auto"), chosen("compiled")] == ["fused", "compiled"]
    monkeypatch.setattr(kernel_room, "_looked_up", lambda: fast)
    assert chosen("auto") == "compiled"
