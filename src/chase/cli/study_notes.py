"""What ``chase study`` says before jobs start: what the data cannot give, and what becomes of earlier results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from chase.run.loop import CONFUSION, kept_as, round_of
from chase.studies.estimate import shortages_of
from chase.studies.places import run_place, saved_lines
from chase.studies.plan import StudyJob, StudyPlan, place_of, read_plan, rounds_for_a_request
from chase.studies.runner import Progress
from chase.studies.study import Study


def foreseen(progress: Iterable[Progress], chosen: Study) -> list[str]:
    """What the data cannot give, scene by scene and seed by seed, told by jobs that are to run and ask for labels.

    Notes of seeds that differ in nothing but numbers are one, with the numbers of the first of them.
    """
    first: dict[str, dict[int, StudyJob]] = {}
    for p in progress:
        if p.state == "waiting" and p.job.settings.budget > 0:
            first.setdefault(p.job.scene, {}).setdefault(p.job.settings.seed, p.job)
    notes = []
    for scene, jobs in first.items():
        said: dict[str, list[tuple[int, str]]] = {}
        for seed, job in jobs.items():
            for text in shortages_of(job.settings):
                said.setdefault(re.sub(r"\d+", "", text), []).append((seed, text))
        for alike in said.values():
            job = jobs[alike[0][0]]
            too_few = job.settings.form == "cycles" and job.settings.rounds <= job.settings.cycle_rounds
            advice = f" (--rounds {rounds_for_a_request(chosen, job)} or more)" if too_few else ""
            notes.append(f"{scene}{about_seeds(alike, len(jobs))}{advice}")
    return notes


def not_kept(work: StudyPlan, progress: Iterable[Progress]) -> list[str]:
    """Which finished jobs have no confusion matrix of their last round, because their run had gone past it before."""
    gone: dict[int, int] = {}
    for p in progress:
        settings, rounds = p.job.settings, p.job.settings.rounds
        if p.state == "done" and p.rounds > rounds and settings.form != "isolated":
            place = run_place(work.directory, p.job.name, rounds)
            measured = saved_lines(place)[rounds - 1].get("test_accuracy") is not None
            if measured and rounds != round_of(place / CONFUSION) and not (place / kept_as(rounds)).is_file():
                gone[rounds] = gone.get(rounds, 0) + 1
    return [
        f"{count} {'run was' if count == 1 else 'runs were'} past round {rounds} already, and which classes the model "
        "confused after that round was not kept: tables of errors and of the pull leave "
        f"{'it' if count == 1 else 'them'} out. To have them there, run this study in a new directory (--out); all of "
        "it then begins again."
        for rounds, count in gone.items()
    ]


def other_lengths(wanted: StudyPlan) -> list[str]:
    """What becomes of jobs that the directory has for another number of rounds: a study has one length per job."""
    known = read_plan(wanted.path).jobs if wanted.path.is_file() else ()
    before = {place_of(job): job.settings.rounds for job in known}
    moved: dict[tuple[int, int], int] = {}
    for job in wanted.jobs:
        rounds = before.get(place_of(job), job.settings.rounds), job.settings.rounds
        if rounds[0] != rounds[1]:
            moved[rounds] = moved.get(rounds, 0) + 1
    return [
        f"this directory has {count} {'run' if count == 1 else 'runs'} of this study for {old} rounds, "
        f"wanted for {new} now: the page "
        + ("leaves out those that do not have them yet" if new > old else f"shows them up to round {new} only")
        + ". To keep both lengths, use another directory (--out)."
        for (old, new), count in moved.items()
    ]


def about_seeds(said: Sequence[tuple[int, str]], total: int) -> str:
    """A note of one kind: of all seeds that are to run, or of the first, with the others for which it holds too."""
    (seed, text), *others = said
    alike = len({each for _, each in said}) == 1
    if len(said) == total and alike:
        return f": {text}"
    more = ", ".join(str(other) for other, _ in others)
    how = "" if alike else "in other numbers "
    also = f" ({how}for seed{'s' if len(others) > 1 else ''} {more} too)" if others else ""
    return f", seed {seed}: {text}{also}"


def notes_on(work: StudyPlan, progress: Collection[Progress], chosen: Study) -> list[str]:
    """All that a user must know before jobs start."""
    return [*foreseen(progress, chosen), *not_kept(work, progress), *other_lengths(work)]
