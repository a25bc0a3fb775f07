"""Which method a team with few labels should use: the closed-form learner and the network learner, by area and rank.

The rule is in docs/decisions/0062; it was written before any run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chase.studies.study import Arm, Scene, Study, StudyPart

CLOSED = {"learner": "closed-form"}
NAMES = ("random", "margin", "balanced-margin", "entropy", "ev", "posterior", "typical", "badge")
NETWORK = ("random", "ev", "chase")
ARMS = (
    *(Arm(f"closed-form, {name}", {**CLOSED, "strategy": name}) for name in NAMES),
    *(Arm(f"network, {name}", {"strategy": name, "head": "trained"}) for name in NETWORK),
    *(Arm(f"network with closed-form head, {name}", {"strategy": name, "head": "closed-form"}) for name in NETWORK),
)
FEW = {"behaviour": "AbCo", "test_limit": 2000}
"""Circumstances of all scenes; a tenth or less of the large data sets, so that EV can be measured on every pool."""

STUDY = Study(
    "recommend",
    "closed-form with eight strategies, and the network learner with random, ev and chase, with a trained and with a "
    "closed-form head, at 40 to 2,000 labels on digits, MNIST, CIFAR-10 and EMNIST: mean rank of the area under the "
    "label curve",
    (
        StudyPart(
            (
                Scene("digits", {**FEW, "budget": 4, "initial_labels": 0.03}, rounds=11, name="digits"),
                Scene(
                    "mnist", {**FEW, "budget": 8, "initial_labels": 0.0133, "data_share": 0.05}, rounds=9, name="MNIST"
                ),
                Scene(
                    "cifar10",
                    {**FEW, "budget": 24, "initial_labels": 0.008, "data_share": 0.1},
                    rounds=9,
                    name="CIFAR-10",
                ),
                Scene(
                    "emnist",
                    {**FEW, "budget": 3, "initial_labels": 0.0166, "data_share": 0.06, "filters": 100},
                    rounds=7,
                    name="EMNIST",
                ),
            ),
            ARMS,
            against="closed-form, random",
        ),
    ),
    "The rule by which the default is chosen was written down first (docs/decisions/0062): seeds 0 to 5 choose, "
    "seeds 6 to 11 report (--first-seed 6).",
)


def mean_ranks(areas: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean rank of each method over data sets, best first; areas by data set and method, larger is better.

    Only methods with an area on every data set are ranked.
    """
    methods = sorted(set.intersection(*(set(found) for found in areas.values()))) if areas else []
    if not methods:
        return {}
    from scipy.stats import rankdata  # more than a second to import: only where ranks are asked for

    ranks = np.array([rankdata([-found[name] for name in methods]) for found in areas.values()])
    means = dict(zip(methods, ranks.mean(axis=0).tolist(), strict=True))
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))
