"""Every network of the table, one's own networks, and given weights."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from chase.core.errors import SettingsError
from chase.core.weights import to_bytes
from chase.models.catalog import NETS, TEXT_NETS, NetSpec, build
from chase.models.layers import Dropout, MaskSource, seed_dropout
from chase.models.net import Net, get_weights, has_batch_norm, set_weights, start_from, tensors_of
from chase.server.aggregation import average

SHAPES = {"tiny-cnn": (1, 8, 8), "mnist-cnn": (1, 28, 28), "emnist-cnn": (1, 28, 28)}


def spec_of(name: str, classes: int = 7, dropout: float = 0.2) -> NetSpec:
    if name in TEXT_NETS:
        return NetSpec(name, (20,), classes, dropout, vocabulary=80)
    if name == "mlp":
        return NetSpec(name, (20,), classes, dropout)
    return NetSpec(name, SHAPES.get(name, (3, 32, 32)), classes, dropout)


def batch(spec: NetSpec, count: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if spec.vocabulary:
        return torch.randint(0, spec.vocabulary, (count, *spec.shape), generator=generator)
    return torch.randn((count, *spec.shape), generator=generator)


@pytest.mark.parametrize("name", NETS)
def test_contract(name):
    """Logits, features that the head turns into them, taps that exist, seeded weights, every weight trained."""
    spec = spec_of(name)
    net = build(spec, seed=1).eval()
    assert isinstance(net, Net)
    x = batch(spec)
    with torch.no_grad():
        assert net(x).shape == (4, 7)
        assert torch.equal(net(x), net.head(net.embed(x)))
    seen = []
    for tap in net.taps:
        net.get_submodule(tap).register_forward_hook(lambda m, i, out: seen.append(out.shape))
    net.train()
    seed_dropout(net, MaskSource(0))
    nn.functional.cross_entropy(net(x), torch.arange(4)).backward()
    assert len(seen) == len(net.taps) > 0
    assert all(shape[0] == 4 for shape in seen)
    assert all(p.grad is not None for p in net.parameters())
    again, other = get_weights(build(spec, seed=1)), get_weights(build(spec, seed=2))
    first = get_weights(build(spec, seed=1))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert any(not np.array_equal(first[k], other[k]) for k in first)


@pytest.mark.parametrize("name", NETS)
def test_building_leaves_torchs_generator_alone(name):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(spec_of(name), seed=0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", sorted(TEXT_NETS))
def test_text_dropout_comes_from_the_seeded_source(name):
    net = build(spec_of(name, dropout=0.5), 0)
    assert not any(isinstance(m, nn.Dropout) for m in net.modules())
    assert any(isinstance(m, Dropout) for m in net.modules())
    assert all(m.dropout == 0 for m in net.modules() if isinstance(m, nn.LSTM))


def linear_sizes(net: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in net.modules() if isinstance(m, nn.Linear)]


def test_the_authors_start_is_normal_with_zero_biases():
    spec = NetSpec("emnist-cnn", (1, 28, 28), 62, 0.0, init="normal")
    net, same, other = (build(spec, seed) for seed in (0, 0, 1))
    assert float(net.fc.weight.detach().std()) == pytest.approx(0.05, rel=0.02)
    assert float(net.fc.weight.detach().mean()) == pytest.approx(0, abs=1e-3)
    assert not any(m.bias.any() for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    assert torch.equal(net.fc.weight, same.fc.weight)
    assert not torch.equal(net.fc.weight, other.fc.weight)


def test_paper_sizes():
    vgg = build(NetSpec("vgg19", (3, 32, 32), 100, 0.0), 0)
    convolutions = [m for m in vgg.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 16
    assert has_batch_norm(vgg)
    assert linear_sizes(vgg) == [(512, 4096), (4096, 4096), (4096, 100)]
    projecting = build(NetSpec("vgg19-projection", (3, 32, 32), 100, 0.0), 0)
    assert linear_sizes(projecting) == [(512, 4096), (4096, 4096), (4096, 256), (256, 100)]
    assert projecting.eval().embed(torch.zeros(2, 3, 32, 32)).shape == (2, 256)
    lstm = build(NetSpec("char-lstm", (80,), 80, 0.2, vocabulary=80), 0)
    assert lstm.embedding.embedding_dim == 8
    assert [lstm.lstm1.hidden_size, lstm.lstm2.hidden_size] == [256, 256]
    assert not has_batch_norm(build(NetSpec("resnet-gn", (3, 32, 32), 10, 0.0), 0))


def test_padding_changes_nothing_for_the_text_classifier():
    net = build(NetSpec("text-bag", (6,), 3, 0.0, vocabulary=50), 0).eval()
    short, padded = torch.tensor([[4, 9, 2]]), torch.tensor([[4, 9, 2, 0, 0, 0]])
    assert torch.allclose(net(short), net(padded))
    assert torch.isfinite(net(torch.zeros((1, 6), dtype=torch.long))).all()


def test_batch_norm_is_averaged_and_its_counter_survives_a_file(tmp_path):
    first, second = (build(NetSpec("vgg19", (3, 32, 32), 4, 0.0), seed) for seed in (0, 1))
    first.train()(torch.randn(4, 3, 32, 32))
    for _ in range(3):
        second.train()(torch.randn(4, 3, 32, 32))
    a, b = get_weights(first), get_weights(second)
    mean = average([(0, a, 1.0), (1, b, 3.0)])
    name = "block1.1.running_mean"
    assert np.allclose(mean[name], (a[name] + 3 * b[name]) / 4, atol=1e-6)
    assert mean["block1.1.num_batches_tracked"] == 3
    (tmp_path / "w.safetensors").write_bytes(to_bytes(mean))
    start_from(first, tmp_path / "w.safetensors")
    assert np.array_equal(get_weights(first)[name], mean[name])
    set_weights(second, mean)


def test_a_start_from_given_weights_refuses_what_does_not_fit(tmp_path):
    net = build(spec_of("tiny-cnn"), 0)
    with pytest.raises(SettingsError, match="does not exist"):
        start_from(net, tmp_path / "none.safetensors")
    (tmp_path / "bad").write_bytes(b"no weights")
    with pytest.raises(SettingsError, match="cannot read"):
        start_from(net, tmp_path / "bad")
    (tmp_path / "other").write_bytes(to_bytes(get_weights(build(spec_of("cifar-cnn"), 0))))
    with pytest.raises(SettingsError, match="do not match the network"):
        start_from(net, tmp_path / "other")


@pytest.fixture
def own(monkeypatch):
    """A module of a user's networks."""
    module = types.ModuleType("own_nets")
    module.good = lambda shape, classes, dropout: nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    module.text = lambda shape, classes, dropout, vocabulary: nn.Sequential(
        nn.Embedding(vocabulary, 4), nn.Flatten(), nn.Linear(4 * shape[0], classes)
    )
    module.wide = lambda shape, classes, dropout: nn.Sequential(nn.Flatten(), nn.Linear(64, classes + 1))
    module.odd = lambda shape, classes, dropout: "a string"
    module.deaf = lambda shape, classes, dropout: nn.Linear(3, classes)
    module.few = lambda shape: nn.Linear(3, 2)
    monkeypatch.setitem(sys.modules, "own_nets", module)
    return module


def test_own_networks(own):
    net = build(NetSpec("own_nets:good", (1, 8, 8), 5, 0.0), seed=3)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 5)
    same = build(NetSpec("own_nets:good", (1, 8, 8), 5, 0.0), seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(*(get_weights(n).values() for n in (net, same)), strict=True))
    assert not np.allclose(get_weights(net)["1.bias"], 0.01)
    assert build(NetSpec("own_nets:text", (6,), 5, 0.0, vocabulary=9), 0)(torch.zeros(2, 6, dtype=torch.long)).shape


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_nets:wide", r"must give logits of shape \(2, 5\)"),
        ("own_nets:odd", "gave a str, not a torch.nn.Module"),
        ("own_nets:deaf", "does not take samples of shape"),
        ("own_nets:few", "cannot be built"),
        ("own_nets:none", "has no 'none'"),
        ("no_such_module:x", "cannot import"),
        ("vgg91", "did you mean 'vgg19'"),
        ("char-lstm", "does not take images"),
        ("cifar-cnn", "does not take samples|cannot be built"),
    ],
)
def test_networks_that_do_not_fit_are_refused_in_a_sentence(own, name, words):
    with pytest.raises(SettingsError, match=words):
        build(NetSpec(name, (1, 8, 8), 5, 0.0), 0)


@pytest.mark.parametrize("name", NETS)
def test_tensors_are_those_of_the_state_in_its_order(name):
    net = build(spec_of(name), seed=1)
    for _ in range(2):
        found, state = tensors_of(net), net.state_dict()
        assert list(found) == list(state)
        assert all(found[key].data_ptr() == state[key].data_ptr() for key in state)


class Tied(nn.Module):
    """Two names for one layer, a buffer that is not saved, and one that is."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.two = self.one
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("dropped", torch.zeros(2), persistent=False)


class Renamed(nn.Linear):
    """A network that says itself what its state is."""

    def state_dict(self, *arguments, **options):
        return {f"x.{key}": value for key, value in super().state_dict(*arguments, **options).items()}


@pytest.mark.parametrize("net", [Tied(), Renamed(2, 2)])
def test_own_networks_with_unusual_states_keep_them(net):
    assert list(get_weights(net)) == list(net.state_dict())
    other = {key: np.full_like(array, 2.0) for key, array in get_weights(net).items()}
    set_weights(net, other)
    assert all((array == 2.0).all() for array in get_weights(net).values())


def test_weights_set_again_are_those_given_now():
    """What a network was filled with last is remembered: other arrays, and arrays changed since, count as they are."""
    net = nn.Linear(2, 2)
    first = get_weights(net)
    set_weights(net, first)
    with torch.no_grad():
        net.weight.zero_()
    set_weights(net, first)
    assert np.array_equal(get_weights(net)["weight"], first["weight"])
    set_weights(net, first | {"bias": np.ones(2, np.float32)})
    assert get_weights(net)["bias"].tolist() == [1.0, 1.0]
    turned = {"weight": np.arange(4, dtype=np.float32).reshape(2, 2).T, "bias": np.zeros(2, np.float32)}
    set_weights(net, turned)
    turned["weight"][0, 1] = 9.0
    set_weights(net, turned)
    assert get_weights(net)["weight"].tolist() == [[0.0, 9.0], [1.0, 3.0]]
    net.weight = nn.Parameter(torch.zeros(2, 2))
    set_weights(net, turned)
    assert net.weight.tolist() == [[0.0, 9.0], [1.0, 3.0]]
