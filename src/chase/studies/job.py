"""One job of a study or a comparison in a process of its own: ``python -m chase.studies.job PLAN-FILE JOB [DATA]``.

DATA is an entry of the cache of decoded data, for a node of a cluster that has no other copy.

The runner holds the other end of this process's standard input. When the runner is gone, by kill -9
even, the input ends and so does the job: its last whole round is in the checkpoint. A lock keeps
a second process from the same run directory.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from chase.core.errors import ChaseError
from chase.core.files import held_by, locked, read_jsonl
from chase.core.processes import end_with_parent
from chase.data.sources import SENT
from chase.learning.native.choice import OWN_FORMS, Kernels
from chase.run import comparison
from chase.run.experiment import Experiment
from chase.run.metrics import stop_reason
from chase.run.record import LOCK, MAY_CHANGE, kernels_before
from chase.studies.plan import StudyJob, StudyPlan, read_plan

ORPHANED = 3


def log_of(directory: Path, name: str) -> Path:
    """Where what a job says is kept."""
    return directory / "logs" / f"{name}.txt"


def failure_of(directory: Path, name: str) -> Path:
    """Where the runner keeps why a job failed."""
    return directory / "logs" / f"{name}.failed"


def failure(directory: Path, name: str) -> str:
    """Why a job failed when it was last run; nothing where it did not, or is being run again."""
    path = failure_of(directory, name)
    locks = (directory / "locks" / name, directory / name / LOCK)
    running = any(held_by(lock) is not None for lock in locks)
    return path.read_text(encoding="utf-8") if path.is_file() and not running else ""


def is_done(directory: Path, job: StudyJob) -> bool:
    """Whether a job has nothing left to do; one that was exported when it was finished has not either."""
    where = directory / job.name
    if not (where / "settings.toml").is_file():
        return False
    last = read_jsonl(where / "metrics.jsonl")[-1:]
    checkpoint = where / "checkpoint" / f"{last[0]['round']:06d}.json" if last else where
    saved = bool(last) and (checkpoint.is_file() or (where / "metrics.jsonl.gz").is_file())
    return saved and bool(stop_reason(job.settings, last))


def put_aside(where: Path) -> None:
    """An exported run that is not done has no checkpoint: its lines are kept beside the run that begins again."""
    if not (where / "metrics.jsonl.gz").is_file():
        return
    aside = next(p for n in count(1) if not (p := where.with_name(f"{where.name}.exported-{n}")).exists())
    where.rename(aside)


def open_job(
    directory: Path, job: StudyJob, kernels: Kernels | None = None, own_forms: int = OWN_FORMS
) -> Experiment | None:
    """The run to begin, computed as the plan says, or to resume; None when it is finished."""
    if is_done(directory, job):
        return None
    where = directory / job.name
    put_aside(where)
    if not (where / "settings.toml").is_file():
        return Experiment.begin(job.settings, where, kernels and kernels_before(job.settings, kernels), own_forms)
    return Experiment.resume(where, {key: getattr(job.settings, key) for key in MAY_CHANGE})


def read_jobs(path: Path) -> StudyPlan:
    """The jobs of a study, or the runs of a comparison as jobs that take one core each."""
    return read_comparison(path) if path.name == comparison.PLAN else read_plan(path)


def read_comparison(path: Path) -> StudyPlan:
    """A comparison as a plan."""
    jobs = []
    for arm in comparison.read_arms(path.parent):
        settings = arm.settings.model_copy(update={"engine": "inprocess"})
        label = settings.strategy if settings.model == "local" else f"{settings.strategy}@{settings.model}"
        jobs.append(StudyJob(arm.name, 0, settings.data, label, settings))
    where = path.parent
    return StudyPlan("comparison", path, jobs, comparison.kernels_in(where), comparison.own_forms_in(where))


def main() -> None:
    """Run one job to its end."""
    end_with_parent(0, lambda: os._exit(ORPHANED))  # not sys.stdin: its lock would be held at the end
    plan, name = read_jobs(Path(sys.argv[1])), sys.argv[2]
    job = next(job for job in plan.jobs if job.name == name)
    if sys.argv[3:] and sys.argv[3]:
        SENT[job.settings.data] = sys.argv[3]
    with locked(plan.directory / "locks" / name, wait=True):
        experiment = open_job(plan.directory, job, plan.kernels, plan.own_forms)
        if experiment is not None:
            experiment.run(ends=job.ends)
            for note in experiment.notes:
                print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ChaseError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
