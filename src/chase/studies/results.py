"""What a study has so far: its runs by part, scene and arm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chase.core.errors import RunDirectoryError
from chase.report.runs import MethodRuns, RunData, is_run, read_json, read_run
from chase.run.metrics import stop_reason
from chase.settings import Settings, load, presets
from chase.studies.catalog import all_studies
from chase.studies.places import run_place
from chase.studies.plan import StudyJob, StudyPlan, plans_in
from chase.studies.study import NO_LABELS, Study, StudyPart


def key_of(*words: str) -> str:
    """Words as a name for files and links."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in " ".join(words).lower()).split())


@dataclass(frozen=True)
class SceneResult:
    """The arms of one part in one scene."""

    study: Study
    part: StudyPart
    scene: str
    jobs: Sequence[StudyJob]
    methods: Sequence[MethodRuns]
    """Arms that have a finished round, in the order of the study."""
    finished: frozenset[str] = frozenset()
    """The names of the jobs that have nothing left to do."""

    @property
    def key(self) -> str:
        """A name for files and links."""
        return key_of(self.study.name, self.part.title, self.scene)

    @property
    def title(self) -> str:
        """The scene, and the part where a study has several."""
        return f"{self.scene}: {self.part.title}" if self.part.title else self.scene

    @property
    def data(self) -> str:
        """The data set."""
        return self.jobs[0].settings.data

    @property
    def papers(self) -> dict[str, str]:
        """The paper's row by arm."""
        return {arm.label: arm.paper for arm in self.part.arms if arm.paper}

    @property
    def beside_paper(self) -> bool:
        """Whether the paper's tables are of this scene: ReCo, the paper's way of sharing out data or its authors'."""
        settings = self.jobs[0].settings
        shared_out = {load(self.data).partition, "shards-reference"} if self.data in presets() else set()
        return settings.behaviour == "ReCo" and settings.partition in shared_out and settings.form != "cycles"


@dataclass(frozen=True)
class StudyResult:
    """One study in a directory."""

    study: Study
    scenes: Sequence[SceneResult]
    done: int
    """Jobs that have nothing left to do."""
    jobs: int

    @property
    def state(self) -> str:
        """How much of the study is there."""
        return f"{self.done} of {self.jobs} jobs are finished"


def read_study(plan: StudyPlan) -> StudyResult:
    """The runs of a study as they stand."""
    study = all_studies().get(plan.study)
    if study is None:
        raise RunDirectoryError(f"{plan.path} is of a study '{plan.study}' that this version does not know")
    runs = {key_of_run(job): run for job in plan.jobs if (run := run_of(plan, job)) is not None}
    finished = {(key := key_of_run(job)): key in runs and has_ended(runs[key], job.settings) for job in plan.jobs}
    groups: dict[tuple[int, str], list[StudyJob]] = {}
    for job in plan.jobs:
        groups.setdefault((job.part, job.scene), []).append(job)
    scenes = []
    for (number_of_part, scene), jobs in groups.items():
        part = study.parts[number_of_part]
        if any(job.arm == NO_LABELS.label for job in jobs):
            part = part.with_no_labels()
        # a run under way would drag the last shared round down for all
        whole = any(finished[key_of_run(job)] for job in jobs)
        methods = []
        for arm in part.arms:
            keys = [key_of_run(job) for job in jobs if job.arm == arm.label]
            own = [runs[key] for key in keys if key in runs and finished[key] >= whole and runs[key].metrics]
            if own:
                methods.append(MethodRuns(arm.label, sorted(own, key=lambda run: run.seed)))
        names = frozenset(job.name for job in jobs if finished[key_of_run(job)])
        scenes.append(SceneResult(study, part, scene, jobs, methods, names))
    return StudyResult(study, scenes, sum(finished.values()), len(finished))


def key_of_run(job: StudyJob) -> tuple[str, int]:
    """What a job reads: parts and scenes may share a run and want other numbers of rounds of it."""
    return job.name, job.settings.rounds


def has_ended(run: RunData, settings: Settings) -> bool:
    """Whether a run has done its rounds, or stopped before by a target or a budget of its settings."""
    return bool(stop_reason(settings, [dict(line) for line in run.metrics[-1:]]))


def run_of(plan: StudyPlan, job: StudyJob) -> RunData | None:
    """A job's run up to the rounds that the study wants: another may have run it for longer. None before it begins."""
    rounds = job.settings.rounds
    place = run_place(plan.directory, job.name, rounds)
    if not is_run(place):
        return None
    run = read_run(place)
    return up_to(run, min(rounds, len(run.metrics)), rounds)


FROM_ROUND = re.compile(r"(?:before|from) round (\d+)")
"""In notes on what happens in a later round."""


def up_to(run: RunData, rounds: int, planned: int = 0) -> RunData:
    """A run as it was after a round: its lines and requests, and its confusion matrix if that was kept.

    ``planned``: rounds of the study, of which notes may speak, where they are more.
    """
    if len(run.metrics) == rounds and run.confusion.get("round", rounds) == rounds:
        return run
    asked = [line for line in run.selections if line["round"] <= rounds]
    earlier = read_json(run.path / f"confusion-{rounds}.json")
    confusion = run.confusion if run.confusion.get("round") == rounds else earlier
    notes = [note for note in run.notes if not (at := FROM_ROUND.search(note)) or int(at[1]) <= max(rounds, planned)]
    return replace(run, metrics=run.metrics[:rounds], selections=asked, confusion=confusion, notes=notes)


def read_studies(directory: Path) -> list[StudyResult]:
    """All studies of a directory."""
    return [read_study(plan) for plan in plans_in(directory)]


def is_study(directory: Path) -> bool:
    """Whether a directory holds studies."""
    return bool(list(directory.glob("*.study.json")))
