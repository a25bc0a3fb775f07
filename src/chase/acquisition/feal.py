"""FEAL (Chen et al. 2024): evidential uncertainty of the global and the local model, and a neighbour rule.

A model's outputs z are read as evidence of a Dirichlet distribution: alpha = relu(z) + 1, S = sum alpha. Its expected
(aleatoric) entropy is u = sum_c alpha_c / S * (psi(S + 1) - psi(alpha_c + 1)), and the entropy of the Dirichlet
itself says how little is known. The score is minmax(H[Dir(alpha_global)]) * (u_global + u_local), largest first.
Walking down that ranking, a sample is passed over if one of its five nearest neighbours of cosine above 0.85 is
chosen already; what is still missing at the end follows by rank.

Departures: the network is trained by cross-entropy, not by the authors' evidential loss; neighbours are found in the
features of the local model; a pool of equal Dirichlet entropies counts as fully unknown.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores
from chase.core.pools import SampleIds

NEIGHBOURS = 5
NEAR = 0.85
"""Cosine above which a neighbour counts."""


def evidence(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """alpha = relu(z) + 1 of logits (samples, classes)."""
    return np.maximum(logits.astype(np.float64), 0.0) + 1.0


def expected_entropy(alpha: NDArray[np.float64]) -> Scores:
    """E[H(p)] for p from Dir(alpha), alpha (samples, classes): sum (alpha/S)(psi(S + 1) - psi(alpha + 1))."""
    a = torch.from_numpy(alpha)
    total = a.sum(dim=1, keepdim=True)
    terms = a / total * (torch.digamma(total + 1) - torch.digamma(a + 1))
    return np.asarray(terms.sum(dim=1).numpy(), dtype=np.float64)


def dirichlet_entropy(alpha: NDArray[np.float64]) -> Scores:
    """Entropy of Dir(alpha): ln B + (S - K) psi(S) - sum (alpha - 1) psi(alpha); alpha (samples, K)."""
    a = torch.from_numpy(alpha)
    total, classes = a.sum(dim=1), a.shape[1]
    log_beta = torch.lgamma(a).sum(dim=1) - torch.lgamma(total)
    found = log_beta + (total - classes) * torch.digamma(total) - ((a - 1) * torch.digamma(a)).sum(dim=1)
    return np.asarray(found.numpy(), dtype=np.float64)


def minmax(values: Scores) -> Scores:
    """Scaled to 0..1; all ones where the values do not differ."""
    span = values.max() - values.min()
    return np.asarray((values - values.min()) / span if span > 0 else np.ones_like(values))


def feal(global_logits: NDArray[np.floating], local_logits: NDArray[np.floating]) -> Scores:
    """The score of logits (samples, classes) of both models."""
    alpha_global, alpha_local = evidence(global_logits), evidence(local_logits)
    unknown = minmax(dirichlet_entropy(alpha_global))
    return np.asarray(unknown * (expected_entropy(alpha_global) + expected_entropy(alpha_local)))


def apart(order: NDArray[np.int64], features: NDArray[np.floating], budget: int) -> NDArray[np.int64]:
    """Rows of ``budget`` samples in rank order, near neighbours of a chosen one passed over at first.

    order (samples,): rows from best to worst; features (samples, width).
    """
    points = features.astype(np.float64)
    points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    chosen = np.zeros(order.size, dtype=bool)
    picked: list[int] = []
    for row in order.tolist():
        if len(picked) == budget:
            break
        if not picked or not chosen[near_neighbours(points, row)].any():
            chosen[row] = True
            picked.append(row)
    rest = [row for row in order.tolist() if not chosen[row]]
    return np.array([*picked, *rest[: budget - len(picked)]], dtype=np.int64)


def near_neighbours(points: NDArray[np.float64], row: int) -> NDArray[np.int64]:
    """The five others of largest cosine with ``row``, those above 0.85; points (samples, width) of length one."""
    cosine = points @ points[row]
    cosine[row] = -np.inf
    count = min(NEIGHBOURS, cosine.size)
    best = np.argpartition(-cosine, count - 1)[:count]
    return np.asarray(best[cosine[best] > NEAR])


class Feal:
    """Samples that neither model knows, each in another place."""

    needs: ClassVar[frozenset[str]] = frozenset({"local_model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates down the ranking by the neighbour rule."""
        if budget == 0 or len(pool) == 0:
            return pool.ids[:0]
        features = pool.features("local")  # before the outputs, which then need no pass of their own
        scores = pool.scores = feal(pool.logits("global"), pool.logits("local"))
        order = np.lexsort((rng.random(scores.size), -scores))
        return pool.ids[apart(order, features, min(budget, len(pool)))]
