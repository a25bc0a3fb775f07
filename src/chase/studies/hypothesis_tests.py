"""What the finished runs say to each hypothesis.

A comparison pairs two arms by seed, perhaps of different scenes, on the mean accuracy of the last five rounds that
both have; where runs of several lengths fit, at each length. From six seeds on a paired t-test decides, Holm-corrected
over the comparisons of one question on one data set at one length, run or not; below, nothing is decided: a verdict is
provisional and says on which side of zero the interval lies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from chase.report.runs import MethodRuns, RunData, accuracy
from chase.report.statistics import (
    ABOVE,
    BELOW,
    HIGHER,
    LOWER,
    NOT_SIGNIFICANT,
    TEST_FROM,
    Difference,
    holm,
    paired_p,
)
from chase.studies.hypotheses import DEFAULTS, HYPOTHESES, Hypothesis, Where, family, family_size
from chase.studies.results import StudyResult, up_to
from chase.studies.scene_tables import changed

LAST = 5
"""Rounds at the end whose mean accuracy counts."""

SUPPORTED, CONTRADICTED, OPEN, NOT_RUN = "supported", "contradicted", "not decided", "not run"
PROVISIONAL = "provisional"
FEWEST = 3
"""Seeds from which on runs of another length than those with most seeds are compared as well."""
STUDIES_READ = frozenset({"why", "authors", "few-labels", "ablation"})
"""Studies that a hypothesis may read: their arms have the labels that hypotheses name."""


@dataclass(frozen=True)
class Finding:
    """What the runs say to a hypothesis on one data set at one length."""

    hypothesis: Hypothesis
    data: str
    difference: Difference
    rounds: int = 0
    """The last round that counts."""
    several: bool = False
    """Whether hypotheses were compared on this data set at several rounds, so that the round must be said."""

    @property
    def seeds(self) -> int:
        """Seeds that both arms have."""
        return int(self.difference.values.size)

    @property
    def verdict(self) -> str:
        """Supported, contradicted, provisional, not decided or not run, and why where that is not plain."""
        found = self.difference
        if not self.seeds:
            return NOT_RUN
        if self.seeds == 1:
            return f"{OPEN} (one seed)"
        if found.verdict in (ABOVE, BELOW):
            return f"{PROVISIONAL} ({found.verdict}, untested)"
        if found.verdict == NOT_SIGNIFICANT:
            return f"{OPEN} (the interval lies {'above' if found.interval.mean > 0 else 'below'} 0, p does not decide)"
        return {HIGHER: SUPPORTED, LOWER: CONTRADICTED}.get(found.verdict, f"{OPEN} (the interval holds 0)")

    @property
    def holds(self) -> bool:
        """Whether the hypothesis is supported."""
        return self.verdict.startswith(SUPPORTED)

    @property
    def fails(self) -> bool:
        """Whether the hypothesis is contradicted."""
        return self.verdict.startswith(CONTRADICTED)

    @property
    def provisional(self) -> bool:
        """Whether the interval lies on one side of 0, with too few seeds for a test."""
        return self.verdict.startswith(PROVISIONAL)

    @property
    def p_alone(self) -> float | None:
        """Of its own test, without correction; None below six seeds."""
        return paired_p(self.difference.values) if self.seeds >= TEST_FROM else None

    @property
    def open(self) -> bool:
        """Whether there are runs, but no decision."""
        return self.verdict.startswith(OPEN)


@dataclass(frozen=True)
class Group:
    """An arm in a scene, with its finished runs."""

    arm: str
    settings: Mapping[str, Any]
    method: MethodRuns
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the scene that are not the preset's."""
    planned: int = 0
    """Seeds that the study wants of it."""

    @property
    def rounds(self) -> int:
        """Rounds that all its runs have."""
        return min(len(run.metrics) for run in self.method.runs)


def groups_of(studies: Sequence[StudyResult], read: Collection[str] = STUDIES_READ) -> list[Group]:
    """Every arm with a finished run, of every scene of the studies that are read.

    None stands twice, nor beside one that has the same runs and more.
    """
    found: dict[tuple[Any, ...], Group] = {}
    for result in studies:
        for scene in result.scenes if result.study.name in read else ():
            own = scene.jobs[0].settings.model_dump()
            done = {job.arm for job in scene.jobs if job.name in scene.finished}
            for method in scene.methods:
                if method.label in done:
                    seeds = sum(job.arm == method.label for job in scene.jobs)
                    group = Group(method.label, own, of_one_length(method), changed(scene), seeds)
                    runs = tuple(run.path.name for run in method.runs)
                    found.setdefault((method.label, runs, group.rounds), group)
    more = [(label, set(runs), rounds) for label, runs, rounds in found]
    return [
        group
        for (label, runs, rounds), group in found.items()
        if not any(label == other and rounds == end and set(runs) < some for other, some, end in more)
    ]


def of_one_length(method: MethodRuns) -> MethodRuns:
    """The runs up to the round that all of them have: some seeds may have been run for longer."""
    rounds = min(len(run.metrics) for run in method.runs)
    return MethodRuns(method.label, [up_to(run, rounds) for run in method.runs])


def candidates(groups: Sequence[Group], data: str, where: Where) -> list[Group]:
    """The groups of an arm on a data set under the settings that a hypothesis names, and no others."""
    wanted = {**DEFAULTS, **where.settings, "data": data}
    own = [g for g in groups if g.arm == where.arm and g.changed.keys() <= wanted.keys()]
    return [g for g in own if all(g.settings.get(key) == value for key, value in wanted.items())]


def last_rounds(run: RunData, end: int) -> float:
    """Mean accuracy in percent of the last five rounds up to ``end``."""
    found = accuracy(run)[(run.rounds > end - LAST) & (run.rounds <= end)]
    return float(found.mean()) if found.size else float("nan")


def compare(groups: Sequence[Group], hypothesis: Hypothesis, data: str) -> list[Finding]:
    """More minus less, by seed, at every length of runs; where nothing has run, one finding without seeds.

    Of the pairs of groups with the same last round, that with most seeds counts. Lengths with few seeds are left out
    beside the one that has most.
    """
    by_rounds: dict[int, Finding] = {}
    for finding in pairs_of(groups, hypothesis, data):
        if finding.seeds > (by_rounds[finding.rounds].seeds if finding.rounds in by_rounds else 0):
            by_rounds[finding.rounds] = finding
    if not by_rounds:
        return [Finding(hypothesis, data, Difference(hypothesis.key, np.empty(0)))]
    most = max(by_rounds.values(), key=lambda finding: (finding.seeds, finding.rounds))
    return [by_rounds[end] for end in sorted(by_rounds) if by_rounds[end] is most or by_rounds[end].seeds >= FEWEST]


def pairs_of(groups: Sequence[Group], hypothesis: Hypothesis, data: str) -> list[Finding]:
    """What each pair of groups that fit says, those of one length first; a single one where the claim is of one arm."""
    if hypothesis.measure is not None and hypothesis.less == hypothesis.more:
        alone = candidates(groups, data, hypothesis.more)
        return [measured(hypothesis, data, [hypothesis.measure(r) for r in g.method.runs], g.rounds) for g in alone]
    wanted = [hypothesis.more, hypothesis.less, *(hypothesis.beyond or ())]
    pairs = list(product(*(candidates(groups, data, where) for where in wanted)))
    if hypothesis.measure is not None:  # it is of the end of a run
        pairs = [pair for pair in pairs if len({group.rounds for group in pair}) == 1]
    pairs.sort(key=lambda pair: len({group.rounds for group in pair}))
    return [difference_of(hypothesis, data, pair) for pair in pairs]


def measured(hypothesis: Hypothesis, data: str, values: Sequence[float], end: int) -> Finding:
    """A finding from the values of the seeds, those that are known."""
    known = np.array([value for value in values if np.isfinite(value)])
    return Finding(hypothesis, data, Difference(hypothesis.key, known), end)


def difference_of(hypothesis: Hypothesis, data: str, groups: Sequence[Group]) -> Finding:
    """The first of the groups minus the second, by seed; of four, minus what the third has more than the fourth."""
    end = min(group.rounds for group in groups)
    of_run = hypothesis.measure or partial(last_rounds, end=end)
    by_seed = [{run.seed: of_run(run) for run in group.method.runs} for group in groups]
    shared = sorted(set.intersection(*(set(values) for values in by_seed)))
    signs = (1, -1, -1, 1)
    values = [sum(s * own[seed] for s, own in zip(signs, by_seed, strict=False)) for seed in shared]
    return measured(hypothesis, data, values, end)


def findings_of(groups: Sequence[Group]) -> list[Finding]:
    """All hypotheses on all their data sets, those of one family and length with enough seeds tested together."""
    found = [finding for h in HYPOTHESES for data in h.data for finding in compare(groups, h, data)]
    lengths = {(f.hypothesis.key, f.data): f.rounds for f in found}  # the longest
    several = {f.data for f in found if f.rounds != lengths[f.hypothesis.key, f.data]}
    found = [replace(finding, several=finding.data in several) for finding in found]
    families: dict[tuple[tuple[str, str], int], list[int]] = {}
    for place, finding in enumerate(found):
        if finding.seeds >= TEST_FROM:
            families.setdefault((family(finding.hypothesis, finding.data), finding.rounds), []).append(place)
    for (key, _), places in families.items():
        corrected = holm([paired_p(found[place].difference.values) for place in places], family_size(key))
        for place, p in zip(places, corrected, strict=True):
            found[place] = replace(found[place], difference=replace(found[place].difference, p=p))
    return found


def corrected_together(found: Sequence[Finding]) -> list[float | None]:
    """The p of each finding, Holm-corrected over all that are tested, whatever their question; None for the others."""
    alone = [finding.p_alone for finding in found]
    tested = [place for place, p in enumerate(alone) if p is not None]
    corrected = holm([p for p in alone if p is not None])
    by_place = dict(zip(tested, corrected, strict=True))
    return [by_place.get(place) for place in range(len(found))]
