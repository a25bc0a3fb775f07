"""When a run's model is scored, and on what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chase.core.messages import ClientUpdate
from chase.core.weights import Weights
from chase.run.metrics import Metrics
from chase.server.evaluation import SCORE_NAMES, confusion, mean_auc, mean_scores, score, score_metrics
from chase.server.quality import quality
from chase.settings import Settings


@dataclass(frozen=True)
class TestSet:
    """A labelled test set, and how to infer it."""

    __test__ = False  # not a test of pytest's

    outputs: Callable[[Weights], Tensor]
    """Weights of a model -> its outputs on the whole test set (samples, classes)."""
    labels: NDArray[np.int64]
    num_classes: int
    classes: tuple[str, ...] = ()
    """Names, where they are known."""
    areas: bool = False
    """Whether every evaluation also measures the area under the ROC curve, which takes longer than the rest."""

    def where(self, labels: NDArray[np.int64]) -> TestSet | None:
        """The samples whose label is known by now (-1 = not yet), with these labels; None without any."""
        known = np.flatnonzero(labels >= 0)
        if known.size == 0:
            return None
        rows = torch.from_numpy(known)
        return replace(self, outputs=lambda weights: self.outputs(weights)[rows], labels=labels[known])

    def quality(self, weights: Weights) -> Metrics:
        """Everything that the outputs tell, see ``server.quality``."""
        probabilities = torch.softmax(self.outputs(weights).double(), dim=1).numpy()
        return quality(probabilities, self.labels, self.classes or tuple(str(c) for c in range(self.num_classes)))

    def scores(self, weights: Weights) -> Metrics:
        """The scores of a model under their names in a line of metrics."""
        outputs = self.outputs(weights)
        found = score_metrics(score(outputs, self.labels, self.num_classes))
        return found | {"auc": mean_auc(outputs, self.labels)} if self.areas else found

    def confusion(self, weights: Weights) -> list[list[int]]:
        """How many test samples of each class (rows) the model takes for each class (columns)."""
        table: list[list[int]] = confusion(self.outputs(weights), self.labels, self.num_classes).tolist()
        return table


@dataclass(frozen=True)
class Evaluation:
    """Scores the global model, or each isolated one, every ``eval_every`` rounds and whenever the run may end."""

    settings: Settings
    test: TestSet | Callable[[], TestSet | None] | None
    """The test set, or what gives it as far as it is known by now."""
    elsewhere: Callable[[Weights], Metrics] | None = None
    """Scores from other sources, such as the sites' held-out parts."""

    def __call__(
        self,
        metrics: Metrics,
        weights: Weights,
        updates: Sequence[ClientUpdate],
        past: list[Metrics],
        due: bool = False,
    ) -> Metrics:
        """The scores that belong into the line ``metrics``; None for each in a round that is not evaluated.

        ``due``: this round is, whatever the settings say.
        """
        settings = self.settings
        spent = settings.total_budget and metrics["labels"] >= settings.total_budget
        due = due or metrics["round"] % settings.eval_every == 0 or metrics["round"] == settings.rounds or bool(spent)
        if settings.form == "isolated":
            return self._isolated(due, weights, updates, past)
        return self._scores(weights) if due else dict.fromkeys(SCORE_NAMES)

    def _scores(self, weights: Weights) -> Metrics:
        test = self._known_test()
        found: Metrics = dict.fromkeys(SCORE_NAMES) if test is None else test.scores(weights)
        return found if self.elsewhere is None else found | self.elsewhere(weights)

    def _known_test(self) -> TestSet | None:
        return self.test if self.test is None or isinstance(self.test, TestSet) else self.test()

    def _isolated(self, due: bool, start: Weights, updates: Sequence[ClientUpdate], past: list[Metrics]) -> Metrics:
        """The mean over the clients' own models; one that has not trained yet has the starting weights."""
        known: dict[str, Metrics] = dict(past[-1]["client_scores"]) if past else {}
        if due or len(updates) < self.settings.clients:
            known |= {str(u.client): self._scores(u.weights) for u in updates}
        if due and len(known) < self.settings.clients:
            untrained = self._scores(start)
            known = {str(c): known.get(str(c), untrained) for c in range(self.settings.clients)}
        scores = mean_scores(list(known.values())) if due else dict.fromkeys(SCORE_NAMES)
        return scores | {"client_scores": known}

    def quality(self, weights: Weights) -> Metrics | None:
        """How good the last global model is in every respect, where there is a test set."""
        test = self._known_test()
        return None if test is None or self.settings.form == "isolated" else test.quality(weights)

    def confusion(self, weights: Weights) -> list[list[int]] | None:
        """What the last global model takes each class for, where there is a test set; isolated clients have no such."""
        test = self._known_test()
        return None if test is None or self.settings.form == "isolated" else test.confusion(weights)
