"""LoGo (Kim et al. 2023): clusters by a local model, the most uncertain of each by the global model.

Macro: k-means with k = budget on embeddings. Micro: of each cluster the sample of highest entropy under
the global model; where there are fewer clusters than budget, the second of each follows, and so on.

``logo`` (as published): a model trained from scratch on the client's labels alone (at most 50 epochs, until
99 % of them are learnt), embedding = features * (1 - p of the predicted class). ``logo-chase`` (as the CHASe
paper ran it): the previous local model and plain features.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores
from chase.acquisition.uncertainty import entropy
from chase.core.pools import SampleIds


def clusters(points: NDArray[np.floating], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Cluster number of each of points (samples, width): k-means, one thread, seeded."""
    from sklearn.cluster import KMeans  # seconds to import: only where a strategy needs it
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    means = KMeans(n_clusters=min(k, points.shape[0]), n_init=1, random_state=int(rng.integers(2**31)))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
        return np.asarray(means.fit_predict(points.astype(np.float64)), dtype=np.int64)


def best_of_clusters(cluster: NDArray[np.int64], scores: Scores, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of k samples: the best of every cluster, then the second of every cluster, and so on.

    cluster, scores (samples,); ties are broken by the generator.
    """
    tie = rng.random(cluster.size)
    order = np.lexsort((tie, -scores, cluster))
    first = np.r_[0, np.flatnonzero(np.diff(cluster[order])) + 1]
    sizes = np.diff(np.r_[first, cluster.size])
    rank = np.arange(cluster.size) - np.repeat(first, sizes)
    return np.asarray(order[np.lexsort((tie[order], -scores[order], rank))][:k])


def uncertain_embedding(features: NDArray[np.floating], probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """features * (1 - p of the predicted class); features (samples, width), probs (samples, classes)."""
    return np.asarray(features * (1.0 - probs.max(axis=1, keepdims=True)), dtype=np.float64)


class LoGoChase:
    """Clusters in the plain features of the previous local model."""

    needs: ClassVar[frozenset[str]] = frozenset({"local_model"})

    def embedding(self, pool: PoolView) -> NDArray[np.floating]:
        """(candidates, width)."""
        return pool.features("local")

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The most uncertain candidate of each of ``budget`` clusters."""
        if budget == 0 or len(pool) == 0:
            return pool.ids[:0]
        cluster = clusters(self.embedding(pool), budget, rng)
        return pool.ids[best_of_clusters(cluster, entropy(pool.probs("global")), budget, rng)]


class LoGo(LoGoChase):
    """Clusters in the uncertainty-weighted features of a model trained on the client alone."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def embedding(self, pool: PoolView) -> NDArray[np.floating]:
        """(candidates, width)."""
        return uncertain_embedding(pool.features("alone"), pool.probs("alone"))
