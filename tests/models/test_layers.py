from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support import tiny_net
from torch import nn

from chase.core.randomness import fold
from chase.models.layers import Dropout, MaskSource, seed_dropout, xavier_


@pytest.mark.parametrize("p", [0.5, 0.2, 0.75])
def test_dropout_drops_at_its_rate_and_rescales_the_rest(p: float) -> None:
    drop = Dropout(p).train()
    seed_dropout(drop, MaskSource(0, 1, 2))
    out = drop(torch.ones(200, 500))
    assert out.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    assert float((out == 0).float().mean()) == pytest.approx(p, abs=0.005)
    assert float((out[:, 1:] * out[:, :-1]).mean()) == pytest.approx(1.0, abs=0.03), "neighbours are not independent"


def test_masks_are_seeded_by_place_and_differ_within_it() -> None:
    one, same, other = MaskSource(0, 1, 2), MaskSource(0, 1, 2), MaskSource(0, 2, 1)
    first = one.factors(1003, 0.5)
    assert first.shape == (1003,)
    assert torch.equal(same.factors(1003, 0.5), first)
    assert not torch.equal(other.factors(1003, 0.5), first)
    assert not torch.equal(one.factors(1003, 0.5), first)
    assert torch.equal(MaskSource(0, 3).factors(99, 0.3), MaskSource(0, 3).factors(99, 0.3))


def test_channelwise_dropout_drops_whole_channels() -> None:
    drop = Dropout(0.5, channelwise=True).train()
    seed_dropout(drop, MaskSource(0))
    out = drop(torch.ones(64, 20, 4, 4)).flatten(2)
    assert ((out == 0).all(2) | (out == 2).all(2)).all()
    assert 0.4 < float((out == 0).float().mean()) < 0.6


def test_dropout_is_still_when_evaluating_or_when_p_is_zero() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0).train()(x), x)


def test_unseeded_dropout_is_refused() -> None:
    with pytest.raises(RuntimeError, match="not seeded"):
        Dropout(0.5).train()(torch.ones(2, 2))


def test_xavier_normal_weights_and_biases_of_one_hundredth() -> None:
    layer, conv = nn.Linear(300, 200), nn.Conv2d(8, 16, 3)
    xavier_(nn.Sequential(layer, conv), torch.Generator().manual_seed(0))
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 500), rel=0.02)
    assert abs(layer.weight.mean().item()) < 0.002
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 8 + 9 * 16)), rel=0.05)
    assert (layer.bias == 0.01).all()
    assert (conv.bias == 0.01).all()


def test_a_net_starts_from_its_seed_alone() -> None:
    torch.manual_seed(5)
    one = tiny_net(seed=1).state_dict()
    torch.manual_seed(6)
    same, other = tiny_net(seed=1).state_dict(), tiny_net(seed=2).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["fc.weight"], other["fc.weight"])


class AtOnce:
    """The plain source: each block is drawn in one piece."""

    def __init__(self, *coordinates: int) -> None:
        self._rng = np.random.Generator(np.random.SFC64(fold(0, "dropout", *coordinates)))
        self._block, self._at = np.empty(0, dtype=np.uint8), 0

    def octets(self, count: int) -> np.ndarray:
        if self._at + count > self._block.size:
            words = max(MaskSource.BLOCK, count) // 8 + 1
            self._block, self._at = self._rng.integers(0, 2**64, words, dtype=np.uint64).view(np.uint8), 0
        self._at += count
        return self._block[self._at - count : self._at]


def test_bits_are_the_same_in_whatever_pieces_they_are_drawn() -> None:
    draw = np.random.default_rng(0)
    source, plain = MaskSource(0, 1, 2), AtOnce(1, 2)
    for count in (*draw.integers(1, 60_000, size=40).tolist(), 5, MaskSource.BLOCK + 9, 3, 300_000, 1):
        assert np.array_equal(source.octets(count), plain.octets(count))
