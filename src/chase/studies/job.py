"""One job of a study or a comparison in a process of its own: ``python -m chase.studies.job PLAN-FILE JOB [DATA]
[ROUNDS]``.

DATA is an entry of the cache of decoded data, for a node of a cluster that has no other copy. ROUNDS: which entry of
the plan is meant, where parts or scenes of a study share a run and want other numbers of rounds.

The runner holds the other end of this process's standard input. When the runner is gone, by kill -9
even, the input ends and so does the job: its last whole round is in the checkpoint. A lock keeps
a second process from the same run directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chase.core.errors import ChaseError
from chase.core.files import held_by, locked
from chase.core.processes import end_with_parent
from chase.data.sources import SENT
from chase.learning.native.choice import OWN_FORMS, Kernels
from chase.run import comparison
from chase.run.experiment import Experiment
from chase.run.metrics import stop_reason
from chase.run.record import LOCK, MAY_CHANGE, kernels_before, never_began
from chase.studies.places import put_aside, run_place, saved_lines
from chase.studies.plan import StudyJob, StudyPlan, ends_within, read_plan

ORPHANED = 3
COMPARISON = "comparison"
"""What stands for the study in a comparison as a plan."""


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
    where = run_place(directory, job.name, job.settings.rounds)
    return (where / "settings.toml").is_file() and bool(stop_reason(job.settings, saved_lines(where)[-1:]))


def open_job(
    directory: Path, job: StudyJob, kernels: Kernels | None = None, own_forms: int = OWN_FORMS
) -> Experiment | None:
    """The run to begin, computed as the plan says, or to resume; None when it is finished."""
    if is_done(directory, job):
        return None
    where = directory / job.name
    put_aside(where)
    if not (where / "settings.toml").is_file() or never_began(where):  # the second: its account may be incomplete
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
    return StudyPlan(COMPARISON, path, jobs, comparison.kernels_in(where), comparison.own_forms_in(where))


def entry_of(plan: StudyPlan, name: str, rounds: int) -> StudyJob:
    """The entry of a job with these rounds; without such a one, that with most."""
    own = [job for job in plan.jobs if job.name == name]
    return max(own, key=lambda job: (job.settings.rounds == rounds, job.settings.rounds))


def main() -> None:
    """Run one job to its end."""
    end_with_parent(0, lambda: os._exit(ORPHANED))  # not sys.stdin: its lock would be held at the end
    plan, name = read_jobs(Path(sys.argv[1])), sys.argv[2]
    rounds = int(sys.argv[4]) if sys.argv[4:] else 0
    job = entry_of(plan, name, rounds)
    if sys.argv[3:] and sys.argv[3]:
        SENT[job.settings.data] = sys.argv[3]
    with locked(plan.directory / "locks" / name, wait=True):
        experiment = open_job(plan.directory, job, plan.kernels, plan.own_forms)
        if experiment is not None:  # ends: also of studies that were planned while this one ran
            ends = ends_within(plan.directory, name, job.settings.rounds) if plan.study != COMPARISON else ()
            experiment.run(ends=(*job.ends, *ends))
            for note in experiment.notes:
                print(f"note: {note}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ChaseError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
