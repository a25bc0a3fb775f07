"""FairFAL (Zong et al., arXiv 2603.10341): equal quotas of pseudo-classes, then diversity among the uncertain of each.

1. Every candidate gets a pseudo-class: the labelled class whose mean is nearest by cosine in the global model's
   features; classes without a label are left out.
2. The budget is split equally over the pseudo-classes that occur.
3. Of each class the 4 * b_c candidates of highest entropy stay, and b_c of them are taken by greedy k-centre on the
   gradients of the last layer (as in BADGE), with the class's labelled samples as first centres.
4. Entropy and gradients are the global model's if 1 - (d + g) / 2 > 0.75, else those of a model trained on this
   client's labels alone. On the labelled samples, each class weighing the same, pi_g and pi_l are the mean
   predictions of both models; d is the mean over all classes of |pi_g - pi_l| / (pi_g + pi_l), and g = min pi_g /
   max pi_g over the classes that the client has labels of. Which model it was is in ``judged_by`` of the round's
   metrics.

Departures (docs/decisions/0103 and 0133): the authors average g over clients; here each client takes its own, so
nothing more leaves it. Their code chooses the model of the gradients by a rule of its own (g < 0.5); here the model of
the entropies gives the gradients too. What a split leaves over goes to the classes with fewest labels.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from chase.acquisition.badge import residuals
from chase.acquisition.strategy import PoolView, Scores, Which, argmax_random
from chase.acquisition.uncertainty import entropy
from chase.core.pools import SampleIds

Points = NDArray[np.floating]
Classes = NDArray[np.int64]

KEPT = 4
"""Uncertain candidates per place of a class's quota."""
TRUST = 0.75
"""Above this the global model judges."""


def pseudo_classes(features: Points, labeled_features: Points, labeled_classes: Classes) -> Classes:
    """The class of nearest mean by cosine, for features (samples, width); class 0 where nothing is labelled."""
    held = np.unique(labeled_classes)
    if held.size == 0:
        return np.zeros(features.shape[0], dtype=np.int64)
    means = np.stack([labeled_features[labeled_classes == c].mean(axis=0) for c in held])
    cosine = _unit(features) @ _unit(means).T
    return np.asarray(held[cosine.argmax(axis=1)])


def _unit(points: Points) -> NDArray[np.float64]:
    exact = points.astype(np.float64)
    return np.asarray(exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-12))


def quotas(sizes: Classes, labels: Classes, budget: int, rng: np.random.Generator) -> Classes:
    """Places per class (classes,): as equal as ``sizes``, the candidates of each, allow.

    Odd places go to the classes of fewest ``labels``, ties to the generator.
    """
    given = np.zeros_like(sizes)
    tie = rng.random(sizes.size)
    while given.sum() < min(budget, int(sizes.sum())):
        open_classes = np.flatnonzero(given < sizes)
        order = open_classes[np.lexsort((tie[open_classes], labels[open_classes], given[open_classes]))]
        given[order[0]] += 1
    return given


def balanced_prediction(probs: NDArray[np.float64], labels: Classes) -> NDArray[np.float64]:
    """Mean (classes,) of probs (samples, classes) in which every class of ``labels`` weighs the same."""
    mean = np.mean([probs[labels == c].mean(axis=0) for c in np.unique(labels)], axis=0)
    return np.asarray(mean, dtype=np.float64)


def trust_in_global(pi_global: NDArray[np.float64], pi_local: NDArray[np.float64], held: Classes) -> float:
    """1 - (d + g) / 2 of mean predictions (classes,), d over all classes, g over those ``held``; 0 / 0 counts as 0."""
    both = pi_global + pi_local
    d = float(np.where(both > 0, np.abs(pi_global - pi_local) / np.where(both > 0, both, 1.0), 0.0).mean())
    top = float(pi_global[held].max())
    g = float(pi_global[held].min()) / top if top > 0 else 0.0
    return 1.0 - (d + g) / 2.0


def gradient_k_centre(
    residual: NDArray[np.float64],
    features: Points,
    centres: tuple[NDArray[np.float64], Points],
    k: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Rows of k samples, each the farthest from all centres so far, in the gradients residual outer features.

    residual (samples, classes), features (samples, width); ``centres`` are (residual, features) of the first ones.
    """
    h, norms = features.astype(np.float64), squared_norms(residual, features)
    nearest = np.full(norms.size, np.inf)
    for a, c in zip(centres[0], centres[1].astype(np.float64), strict=True):
        nearest = np.minimum(nearest, norms + (a @ a) * (c @ c) - 2.0 * (residual @ a) * (h @ c))
    picked: list[int] = []
    for _ in range(min(k, norms.size)):
        row = argmax_random(nearest, rng)
        picked.append(row)
        nearest = np.minimum(nearest, norms + norms[row] - 2.0 * (residual @ residual[row]) * (h @ h[row]))
        nearest[picked] = -np.inf
    return np.array(picked, dtype=np.int64)


def squared_norms(residual: NDArray[np.float64], features: Points) -> Scores:
    """Squared lengths of residual outer features -> (samples,)."""
    return np.asarray((residual**2).sum(axis=1) * (features.astype(np.float64) ** 2).sum(axis=1))


class FairFal:
    """As many questions about every class as the pool allows."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, pool: PoolView, budget: int, rng: np.random.Generator) -> SampleIds:
        """``budget`` candidates, class by class."""
        if budget == 0 or len(pool) == 0:
            return pool.ids[:0]
        pseudo = pseudo_classes(pool.features("global"), pool.labeled_features("global"), pool.labeled_classes)
        sizes = np.bincount(pseudo, minlength=pool.num_classes)
        places = quotas(sizes, pool.class_counts, budget, rng)
        judge = pool.judge = self.judge(pool)
        features = pool.features(judge)  # before the probabilities, which then need no pass of their own
        probs = pool.probs(judge)
        chosen = [
            self.of_class(pool, judge, c, np.flatnonzero(pseudo == c), int(places[c]), rng, (probs, features))
            for c in np.flatnonzero(places).tolist()
        ]
        return pool.ids[np.concatenate(chosen)]

    def judge(self, pool: PoolView) -> Which:
        """The model whose entropies and gradients count; the global one where nothing is labelled."""
        if pool.labeled_ids.size == 0:
            return "global"
        pi_global, pi_alone = (self.prediction(pool, which) for which in ("global", "alone"))
        trust = trust_in_global(pi_global, pi_alone, np.unique(pool.labeled_classes))
        return "global" if trust > TRUST else "alone"

    def prediction(self, pool: PoolView, which: Which) -> NDArray[np.float64]:
        """The mean prediction of a model on the labelled samples, classes balanced."""
        pool.labeled_features(which)  # before the probabilities, as above
        return balanced_prediction(pool.labeled_probs(which), pool.labeled_classes)

    def of_class(
        self,
        pool: PoolView,
        judge: Which,
        c: int,
        rows: NDArray[np.int64],
        places: int,
        rng: np.random.Generator,
        seen: tuple[NDArray[np.float64], Points],
    ) -> NDArray[np.int64]:
        """Rows of ``places`` candidates of one pseudo-class."""
        probs, features = seen[0][rows], seen[1][rows]
        uncertain = np.lexsort((rng.random(rows.size), -entropy(probs)))[: KEPT * places]
        own = pool.labeled_classes == c
        if own.any():
            anchors = pool.labeled_probs(judge)[own]
            anchors[:, c] -= 1.0  # the gradient of a labelled sample has its true class
            centres = (anchors, pool.labeled_features(judge)[own])
        else:
            centres = (np.zeros((0, probs.shape[1])), features[:0])
        residual = residuals(probs[uncertain])
        return rows[uncertain[gradient_k_centre(residual, features[uncertain], centres, places, rng)]]
