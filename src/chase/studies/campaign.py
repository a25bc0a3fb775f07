"""The runs behind docs/results, in the order in which they are to be run (docs/studies.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from chase.studies.catalog import find_study
from chase.studies.plan import Options, StudyJob, plan
from chase.studies.repeat import command
from chase.studies.results import StudyResult


@dataclass(frozen=True)
class Planned:
    """One command of the campaign."""

    study: str
    options: Options
    directory: str
    """Where it runs: studies of one directory share their runs."""

    @property
    def command(self) -> str:
        """Without a directory."""
        return command(self.study, self.options)

    @cached_property
    def jobs(self) -> list[StudyJob]:
        """What it runs."""
        return plan(find_study(self.study), self.options)


BOTH, SHORT, ALONE = ("mnist", "cifar10"), ("FedRandom",), ("isolated",)
STATISTICS, EQUAL = {"normalisation": "statistics"}, {"client_weights": "equal"}

CAMPAIGN = (
    Planned("why", Options(("mnist",), rounds=60, seeds=6), "why"),
    Planned("why", Options(("cifar10",), rounds=60, seeds=6), "why"),
    Planned("why", Options(("digits",), rounds=14, seeds=6), "why"),
    Planned("ablation", Options(("cifar10",), SHORT, rounds=60, seeds=6, changes=STATISTICS), "why"),
    Planned("ablation", Options(("mnist",), rounds=200, seeds=6), "why"),
    Planned("ablation", Options(("mnist",), rounds=200, seeds=6, changes=EQUAL), "why"),
    Planned("few-labels", Options(seeds=10), "few-labels"),
    Planned("isolated", Options(BOTH, ALONE, rounds=10, seeds=6), "alone"),
    Planned("authors", Options(rounds=60, seeds=3), "why"),
    Planned("ablation", Options(("cifar10",), rounds=200, seeds=3), "why"),
    Planned("ablation", Options(("emnist",), rounds=30, seeds=3), "emnist"),
    Planned("ablation", Options(BOTH, rounds=60, seeds=3, changes={"behaviour": "AbCo"}), "abco"),
    Planned("strong", Options(rounds=60, seeds=6), "why"),
    Planned("ablation", Options(("cifar100",), SHORT, rounds=2, seeds=1), "cifar100"),
    Planned("shakespeare", Options(arms=SHORT, rounds=5, seeds=1, changes={"clients": 10}), "shakespeare"),
)


def left(studies: Sequence[StudyResult]) -> list[tuple[Planned, int, int]]:
    """What is not finished in these studies: the command, how many of its runs are finished, and how many it has.

    Nothing where they have no finished run of the first command: they are no part of the campaign.
    """
    done: dict[str, int] = {}
    for result in studies:
        for scene in result.scenes:
            for job in scene.jobs:
                if job.name in scene.finished:
                    done[job.name] = max(done.get(job.name, 0), job.settings.rounds)
    counted = []
    for planned in CAMPAIGN:
        jobs = planned.jobs
        counted.append((planned, sum(done.get(job.name, 0) >= job.settings.rounds for job in jobs), len(jobs)))
        if not counted[0][1]:
            return []
    return [(planned, finished, total) for planned, finished, total in counted if finished < total]
