"""IFAL (Zong, Jin and Huang, "Inconsistency-based federated active learning", IJCAI 2025): neighbours that disagree.

Every labelled sample gives its class as a vote to its 250 nearest candidates (reverse nearest neighbours), once in the
features of the local model (p_l), of the global model (p_g) and of a model distilled from the global one (p_kd: the
local model trained on by 0.1 cross-entropy + 0.9 distillation at temperature 4). With W the distance of two
distributions, D_l = W(p_l, p_kd) and D_g = W(p_g, p_kd):

    U1 = max(D_g / D_l, D_l / D_g) * (D_g + D_l)          knowledge that one of the models lacks
    U2 = W(p_l, softmax of the local model)               features and head disagree

Candidates with U1 * U2 above Otsu's threshold stay; of each of ``budget`` clusters of them (k-means in local features)
the highest is asked for. Where too few stay, the highest of the others follow.

Departures (docs/decisions/0103 and 0133):

- Classes have no order, so W, the Wasserstein distance, is taken with distance 1 between any two classes: half the sum
  of absolute differences. A candidate without a vote counts as evenly spread over all classes.
- A share of n votes is known only to within one vote. In the ratio, a distance below 1 / (n + 1), n the fewest votes
  that the candidate has in one of the three features, counts as 1 / (n + 1). Otherwise a distance of exactly 0, common
  with few votes, makes the ratio infinite and decides the ranking alone. Larger distances are as published.
- A labelled sample votes for at most half of the candidates (rounded up), so for fewer than 250 where there are fewer
  than 499. If it votes for all, the three shares are the same and every score is 0. Candidates as far away as the last
  one that gets a vote get one too.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.logo import best_of_clusters, clusters
from chase.acquisition.strategy import PoolView, Scores, Which
from chase.core.pools import SampleIds

Points = NDArray[np.floating]
Probs = NDArray[np.float64]
Counts = NDArray[np.float64]
Rows = NDArray[np.int64]

MODELS: tuple[Which, ...] = ("local", "global", "distilled")

VOTES = 250
"""Nearest candidates that a labelled sample votes for."""
CHUNK = 256
"""Labelled samples whose distances to all candidates are in memory at once."""


def votes(features: Points, labeled_features: Points, labeled_classes: NDArray[np.int64], classes: int) -> Counts:
    """Votes by class of the labelled samples that have a candidate among their nearest (candidates, classes)."""
    counts = np.zeros((features.shape[0], classes))
    points = features.astype(np.float64)
    square = (points**2).sum(axis=1)
    k = min(VOTES, (points.shape[0] + 1) // 2)
    own = np.eye(classes)[labeled_classes]
    for start in range(0, labeled_classes.size, CHUNK):
        some = labeled_features[start : start + CHUNK].astype(np.float64)
        distance = square[None, :] - 2.0 * (some @ points.T)  # the labelled sample's own length changes no order
        last = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        counts += (distance <= last).T.astype(np.float64) @ own[start : start + CHUNK]
    return counts


def shares(counts: Counts) -> Probs:
    """Votes (candidates, classes) as shares; even where there is no vote."""
    total = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, counts / np.maximum(total, 1.0), 1.0 / counts.shape[1]))


def one_vote(*counts: Counts) -> Scores:
    """What one vote more can change a share by: 1 / (n + 1), n the fewest votes of a candidate -> (candidates,)."""
    return np.asarray(1.0 / (1.0 + np.min([of_model.sum(axis=1) for of_model in counts], axis=0)))


def distance(p: Probs, q: Probs) -> Scores:
    """Half the sum of absolute differences of p, q (samples, classes) -> (samples,)."""
    return np.asarray(0.5 * np.abs(p - q).sum(axis=1))


def ifal(p_local: Probs, p_global: Probs, p_distilled: Probs, local_probs: Probs, least: Scores) -> Scores:
    """U1 * U2 of class shares and local probabilities, all (samples, classes).

    ``least`` (samples,): distances below it count as it in the ratio; above 0.
    """
    d_local, d_global = distance(p_local, p_distilled), distance(p_global, p_distilled)
    ratio = np.maximum(d_global, least) / np.maximum(d_local, least)
    return np.asarray(np.maximum(ratio, 1.0 / ratio) * (d_global + d_local) * distance(p_local, local_probs))


def otsu(values: Scores) -> float:
    """The value above which the upper of two groups begins: their means differ most, weighted by both sizes."""
    ordered = np.sort(values)
    below = np.arange(1, ordered.size)
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (ordered.size - below)
    between = below * (ordered.size - below) * (high - low) ** 2
    return float(ordered[int(between.argmax())]) if between.size and between.max() > 0 else -np.inf


class Ifal:
    """Samples about which the neighbourhoods of three models disagree."""

    needs: ClassVar[frozenset[str]] = frozenset({"local_model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The highest of each cluster of the candidates above the threshold."""
        if budget == 0 or len(pool) == 0:
            return pool.ids[:0]
        counts = [
            votes(pool.features(which), pool.labeled_features(which), pool.labeled_classes, pool.num_classes)
            for which in MODELS
        ]
        p_local, p_global, p_distilled = (shares(of_model) for of_model in counts)
        scores = ifal(p_local, p_global, p_distilled, pool.probs("local"), one_vote(*counts))
        rows, pool.groups = self.diverse(scores, pool.features("local"), min(budget, len(pool)), rng)
        pool.scores = scores
        return pool.ids[rows]

    def diverse(
        self, scores: Scores, features: Points, budget: int, rng: np.random.Generator
    ) -> tuple[Rows, Rows | None]:
        """Rows of ``budget`` candidates: by clusters above Otsu's threshold, else by rank; and the clusters.

        Clusters (samples,): -1 below the threshold; None where the rank alone decides.
        """
        kept = np.flatnonzero(scores > otsu(scores))
        if kept.size <= budget:
            return np.lexsort((rng.random(scores.size), -scores))[:budget], None
        cluster = clusters(features[kept], budget, rng)
        groups = np.full(scores.size, -1)
        groups[kept] = cluster
        return kept[best_of_clusters(cluster, scores[kept], budget, rng)], groups
