"""KSAS, the score of KAFAL (Cao et al. 2022): where local and global model disagree in the client's own classes.

log n_c, the client's labelled count of each class, is added to both models' logits; the score is
(KL(g || l) + KL(l || g)) / 2, largest first. A class that the client has no label of would get log 0: its
probability is 0 in both models, so it is left out. ``kafal`` is this score with the loss KCFU
(``chase.learning.compensation``); ``ksas`` is the score alone.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.strategy import PoolView, Scores, best_of
from chase.core.pools import SampleIds


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the softmax over the last axis, without overflow."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)


def ksas(
    local_logits: NDArray[np.floating], global_logits: NDArray[np.floating], class_counts: NDArray[np.int64]
) -> Scores:
    """(KL(g || l) + KL(l || g)) / 2 over the classes held; logits (samples, classes), counts (classes,).

    Of a client without any label all classes count alike.
    """
    held = class_counts > 0 if class_counts.any() else np.ones_like(class_counts, dtype=bool)
    shift = np.log(np.maximum(class_counts[held], 1).astype(np.float64))
    log_local = log_softmax(local_logits[:, held].astype(np.float64) + shift)
    log_global = log_softmax(global_logits[:, held].astype(np.float64) + shift)
    both = (np.exp(log_global) - np.exp(log_local)) * (log_global - log_local)
    return np.asarray(0.5 * both.sum(axis=1), dtype=np.float64)


class Ksas:
    """The samples on which the client knows something else than the federation."""

    needs: ClassVar[frozenset[str]] = frozenset({"local_model"})

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """The ``budget`` candidates of largest discrepancy."""
        scores = ksas(pool.logits("local"), pool.logits("global"), pool.class_counts)
        return best_of(pool, scores, budget, rng)
