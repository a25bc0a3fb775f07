"""Why strategies win or lose: hypotheses as comparisons of arms, and what the finished runs say to each.

A comparison pairs two arms by seed, perhaps of different scenes, on the mean accuracy of the last five rounds that
both have. From six seeds on a paired t-test decides, Holm-corrected over all comparisons of the page; below, a verdict
only says on which side of zero the interval lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chase.report.runs import MethodRuns, RunData, accuracy
from chase.report.statistics import ABOVE, BELOW, HIGHER, LOWER, TEST_FROM, Difference, holm, paired, paired_p
from chase.studies.results import StudyResult

LAST = 5
"""Rounds at the end whose mean accuracy counts."""

SUPPORTED, CONTRADICTED, OPEN, NOT_RUN = "supported", "contradicted", "not decided", "not run"
STUDIES_READ = ("why", "authors")


@dataclass(frozen=True)
class Where:
    """An arm under settings of its scene."""

    arm: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """``more`` is claimed to have the higher accuracy than ``less``, on each of the data sets."""

    key: str
    text: str
    more: Where
    less: Where
    data: tuple[str, ...] = ("mnist", "cifar10")


LABELLED, EQUAL = {"client_weights": "labelled"}, {"client_weights": "equal"}
SHUFFLED = {"client_weights": "shuffled"}
AUTHORS = {"normalisation": "authors"}


def _claim(key: str, text: str, more: tuple[str, Any], less: tuple[str, Any], *data: str) -> Claim:
    return Claim(key, text, Where(*more), Where(*less), data or ("mnist", "cifar10"))


CLAIMS = (
    _claim(
        "H1",
        "In the paper's weighting, bought labels do harm: without any, accuracy is higher than with random selection",
        ("no labels", LABELLED),
        ("FedRandom", LABELLED),
    ),
    _claim(
        "H2",
        "The weights are the reason: with equal weights, random selection is better than with weights by labels",
        ("FedRandom", EQUAL),
        ("FedRandom", LABELLED),
    ),
    _claim("H3", "With equal weights, bought labels help", ("FedRandom", EQUAL), ("no labels", EQUAL)),
    _claim("H4", "In the paper's weighting, EV beats random selection", ("EV", LABELLED), ("FedRandom", LABELLED)),
    _claim("H5", "With equal weights, EV beats random selection", ("EV", EQUAL), ("FedRandom", EQUAL)),
    _claim("H6", "In the paper's weighting, alignment adds to EV", ("CHASe", LABELLED), ("EV", LABELLED)),
    _claim("H7", "With equal weights, alignment adds to EV", ("CHASe", EQUAL), ("EV", EQUAL)),
    _claim(
        "H8",
        "Aligning every sample to the global model (the authors' code) is better than the paper's easy and hard split",
        ("CHASe, all-global", LABELLED),
        ("CHASe", LABELLED),
    ),
    _claim(
        "H9",
        "With equal weights, aligning every sample to the global model is better than the paper's easy and hard split",
        ("CHASe, all-global", EQUAL),
        ("CHASe", EQUAL),
    ),
    _claim(
        "H10",
        "Shuffled weights (the authors' code) are better than weights by labels, for random selection",
        ("FedRandom", SHUFFLED),
        ("FedRandom", LABELLED),
        "mnist",
    ),
    _claim(
        "H11", "With shuffled weights, EV beats random selection", ("EV", SHUFFLED), ("FedRandom", SHUFFLED), "mnist"
    ),
    _claim(
        "H12",
        "Normalising by the data set's own mean and deviation gives a higher accuracy than the authors' 0.5 and 0.5",
        ("FedRandom", {"normalisation": "statistics", **LABELLED}),
        ("FedRandom", {**AUTHORS, **LABELLED}),
        "cifar10",
    ),
)
"""In the order of the page."""


@dataclass(frozen=True)
class Finding:
    """What the runs say to a claim on one data set."""

    claim: Claim
    data: str
    difference: Difference

    @property
    def verdict(self) -> str:
        """Supported, contradicted, not decided or not run; with what it rests on where that is no test."""
        found = self.difference
        if not found.values.size:
            return NOT_RUN
        said = {HIGHER: SUPPORTED, ABOVE: SUPPORTED, LOWER: CONTRADICTED, BELOW: CONTRADICTED}.get(found.verdict, OPEN)
        return said if found.p is not None or said == OPEN else f"{said} ({found.verdict}, untested)"

    @property
    def holds(self) -> bool:
        """Whether the claim is supported."""
        return self.verdict.startswith(SUPPORTED)


@dataclass(frozen=True)
class Group:
    """An arm in a scene, with its finished runs."""

    arm: str
    settings: Mapping[str, Any]
    method: MethodRuns


def groups_of(studies: Sequence[StudyResult]) -> list[Group]:
    """Every arm of every scene of the studies that the page reads."""
    found = []
    for result in studies:
        if result.study.name in STUDIES_READ:
            for scene in result.scenes:
                own = scene.jobs[0].settings.model_dump()
                done = {job.arm for job in scene.jobs if job.name in scene.finished}
                found += [Group(m.label, own, m) for m in scene.methods if m.label in done]
    return found


DEFAULTS = {"partition": "classes", "image_size": 0, "behaviour": "ReCo", "data_share": 1.0, **AUTHORS}
"""What a comparison means where it does not say otherwise."""


def pick(groups: Sequence[Group], data: str, where: Where) -> MethodRuns | None:
    """The runs of an arm on a data set under the settings that a claim names."""
    wanted = {**DEFAULTS, **where.settings, "data": data}
    for group in groups:
        if group.arm == where.arm and all(group.settings.get(key) == value for key, value in wanted.items()):
            return group.method
    return None


def last_rounds(run: RunData, end: int) -> float:
    """Mean accuracy in percent of the last five rounds up to ``end``."""
    found = accuracy(run)[(run.rounds > end - LAST) & (run.rounds <= end)]
    return float(found.mean()) if found.size else float("nan")


def compare(groups: Sequence[Group], claim: Claim, data: str) -> Difference:
    """More minus less, by seed."""
    more, less = pick(groups, data, claim.more), pick(groups, data, claim.less)
    if more is None or less is None:
        return Difference(claim.key, np.empty(0))
    end = min(len(run.metrics) for method in (more, less) for run in method.runs)
    return Difference(claim.key, paired(more, less, lambda run: last_rounds(run, end)))


def findings_of(groups: Sequence[Group]) -> list[Finding]:
    """All claims on all their data sets, those with enough seeds tested together."""
    found = [Finding(claim, data, compare(groups, claim, data)) for claim in CLAIMS for data in claim.data]
    tested = [place for place, finding in enumerate(found) if finding.difference.values.size >= TEST_FROM]
    corrected = holm([paired_p(found[place].difference.values) for place in tested])
    for place, p in zip(tested, corrected, strict=True):
        old = found[place]
        found[place] = Finding(old.claim, old.data, Difference(old.difference.label, old.difference.values, p))
    return found
