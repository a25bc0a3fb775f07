"""The alignment loss on two-dimensional vectors, worked by hand.

sample 0: now (3, 4), previous local (1, 0), global (0, 2): cosines 0.6 and 0.8
sample 1: now (1, 0), previous local (0, 5), global (2, 0): cosines 0 and 1
"""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from chase.learning.losses import alignment_loss, easy_samples, prepare_alignment, unit

NOW = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
LOCAL = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
GLOBAL = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
COSINES = [(0.6, 0.8), (0.0, 1.0)]


def by_hand(sample: int, towards_local: bool, tau: float) -> float:
    """-log(exp(d*/tau) / (exp(d_loc/tau) + exp(d_glo/tau)))."""
    d_loc, d_glo = COSINES[sample]
    own = d_loc if towards_local else d_glo
    return -log(exp(own / tau) / (exp(d_loc / tau) + exp(d_glo / tau)))


def loss(easy: list[bool], mode: str, tau: float = 0.5) -> float:
    ready = prepare_alignment(LOCAL, GLOBAL, np.array(easy), mode, tau)
    return float(alignment_loss(NOW, ready.directions, ready.aligned))


def test_the_easy_one_goes_to_the_local_model_and_the_hard_one_to_the_global() -> None:
    assert by_hand(1, towards_local=True, tau=0.5) == pytest.approx(2.126928, abs=1e-6)
    assert by_hand(1, towards_local=False, tau=0.5) == pytest.approx(0.126928, abs=1e-6)
    assert loss([True, True], "both") == pytest.approx((by_hand(0, True, 0.5) + 2.126928) / 2, abs=1e-6)
    assert loss([True, False], "both") == pytest.approx((by_hand(0, True, 0.5) + 0.126928) / 2, abs=1e-6)
    assert loss([False, True], "both") == pytest.approx((by_hand(0, False, 0.5) + 2.126928) / 2, abs=1e-6)


def test_local_aligns_only_the_easy_and_global_only_the_hard_with_the_mean_over_those() -> None:
    assert loss([True, False], "local") == pytest.approx(by_hand(0, True, 0.5), abs=1e-6)
    assert loss([True, False], "global") == pytest.approx(by_hand(1, False, 0.5), abs=1e-6)


def test_a_mode_that_aligns_none_of_the_samples_costs_nothing() -> None:
    assert loss([False, False], "local") == 0.0
    assert loss([True, True], "global") == 0.0


def test_all_global_pays_no_heed_to_easy_and_hard() -> None:
    expected = (by_hand(0, False, 0.5) + by_hand(1, False, 0.5)) / 2
    for easy in ([True, True], [True, False], [False, False]):
        assert loss(easy, "all-global") == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_tau_divides_the_cosines(tau: float) -> None:
    expected = (by_hand(0, True, tau) + by_hand(1, False, tau)) / 2
    assert loss([True, False], "both", tau) == pytest.approx(expected, rel=1e-5)


def papers_form(now: Tensor, local: Tensor, glob: Tensor, easy: Tensor, tau: float) -> Tensor:
    """The equation as the paper prints it, one sample at a time."""
    each = []
    for f, loc, glo, is_easy in zip(now, local, glob, easy, strict=True):
        d_loc, d_glo = F.cosine_similarity(f, loc, dim=0), F.cosine_similarity(f, glo, dim=0)
        own = d_loc if is_easy else d_glo
        each.append(-torch.log(torch.exp(own / tau) / (torch.exp(d_loc / tau) + torch.exp(d_glo / tau))))
    return torch.stack(each).mean()


def test_the_short_form_and_its_gradient_equal_the_papers() -> None:
    draw = torch.Generator().manual_seed(1)
    now, local, glob = (torch.randn(16, 5, generator=draw, dtype=torch.float64) for _ in range(3))
    easy = torch.rand(16, generator=draw) < 0.5
    ours, theirs = now.clone().requires_grad_(), now.clone().requires_grad_()
    ready = prepare_alignment(local, glob, easy.numpy(), "both", 0.3)
    short = alignment_loss(ours, ready.directions, ready.aligned.double())
    long = papers_form(theirs, local, glob, easy, 0.3)
    assert short.item() == pytest.approx(long.item(), rel=1e-12)
    short.backward()
    long.backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)


def test_easy_is_at_most_the_mean() -> None:
    assert easy_samples(np.array([0, 1, 2, 5])).tolist() == [True, True, True, False]  # mean 2
    assert easy_samples(np.array([0, 0, 0, 1])).tolist() == [True, True, True, False]  # mean 0.25
    assert easy_samples(np.array([3, 3])).tolist() == [True, True]
    assert easy_samples(np.array([], dtype=np.int64)).tolist() == []


def test_unit_leaves_a_zero_row_zero() -> None:
    assert torch.allclose(unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
