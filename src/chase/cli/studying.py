"""``chase study NAME``: an experiment of the paper at one command; ``chase study list``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import click
import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from chase import settings as settings_room
from chase.cli.cluster import AddressOpt, OnOpt, check_on, jobs_on
from chase.cli.groups_help import CommandGroup
from chase.cli.options import SetOpt
from chase.cli.progress import percent
from chase.cli.study_notes import notes_on
from chase.cli.terminal import plain_console, print_table, share_bar
from chase.core.errors import SettingsError
from chase.core.text import split_list
from chase.report.cells import Cell
from chase.report.tables import ReportTable, duration
from chase.studies import recommend
from chase.studies.catalog import all_studies, find_study
from chase.studies.job import is_done
from chase.studies.plan import (
    Options,
    StudyJob,
    StudyPlan,
    kernels_in,
    place_of,
    plan,
    plan_file,
    read_plan,
    write_plan,
)
from chase.studies.runner import Progress, Running, RunningJob, check, held, look, run_jobs, seconds_left
from chase.studies.study import Study

NameArg = Annotated[str, typer.Argument(metavar="NAME", help="A study (see `chase study list`).")]
DataOpt = Annotated[
    str | None, typer.Option("--data", help="Presets to use instead of the study's own, separated by commas.")
]
ArmOpt = Annotated[
    list[str] | None, typer.Option("--arm", help="Only this arm (method or variant) of the study; repeatable.")
]
RoundsOpt = Annotated[
    int,
    typer.Option(
        "--rounds",
        min=0,
        help="Rounds of every job (0 = as the study or preset says); in study cycles those of the shortest cycles, "
        "longer ones get more.",
    ),
]
SeedsOpt = Annotated[int, typer.Option("--seeds", min=1, help="Seeds of every arm.")]
FirstSeedOpt = Annotated[int, typer.Option("--first-seed", min=0, help="The first of those seeds.")]
ScaleOpt = Annotated[
    float, typer.Option("--scale", min=1e-6, max=1.0, help="Share of every client's data that is used.")
]
OutOpt = Annotated[Path, typer.Option("--out", "-o", help="Directory; may hold several studies, which share runs.")]
JobsOpt = Annotated[
    int, typer.Option("--jobs", "-j", min=0, help="Jobs at a time, each on one core (0 = one per core).")
]
NoLabelsOpt = Annotated[
    bool, typer.Option("--no-labels", help="Add an arm that buys no labels: what the initial ones alone are worth.")
]
DryOpt = Annotated[bool, typer.Option("--dry-run", help="Only show what would run and the estimated time.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end instead of text.")]

QUIET_SECONDS = 60.0
"""Where the output is no terminal, a line at most this often."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(cls=StudyByDefault, no_args_is_help=True, rich_markup_mode=None)
    example = "Example: chase study ablation --data mnist --rounds 20 --seeds 2 --scale 0.1 --dry-run"
    group.command("run", epilog=example)(study)
    group.command("list", epilog="Example: chase study list")(show_studies)
    group.command("export", epilog="Example: chase study export studies --out docs/results/reco")(export)
    group.command("publish", epilog="Example: chase study publish docs/results")(publish)
    app.add_typer(group, name="study", help="Run an experiment of the paper; list, export and publish them.")


class StudyByDefault(CommandGroup):
    """``chase study NAME`` runs a study; ``chase study list`` and the like are commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before anything that is no command."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: Any) -> None:
        """Show the short form."""
        formatter.write_usage("chase study", "NAME [OPTIONS] | COMMAND ...")


def study(
    name: NameArg,
    data: DataOpt = None,
    arm: ArmOpt = None,
    rounds: RoundsOpt = 0,
    seeds: SeedsOpt = 3,
    first_seed: FirstSeedOpt = 0,
    scale: ScaleOpt = 1.0,
    out: OutOpt = Path("studies"),
    jobs: JobsOpt = 0,
    change: SetOpt = None,
    no_labels: NoLabelsOpt = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
    on: OnOpt = "here",
    address: AddressOpt = "",
) -> None:
    """Run an experiment of the paper; what is finished already is not run again."""
    check_on(on, address)
    chosen = find_study(name)
    presets = split_list(data or "")
    if data is not None and not presets:
        raise SettingsError(f"--data {data!r} names no preset: name some, or leave --data out for those of the study")
    changes = settings_room.parse_changes(change or [])
    fixed = {"seed": "--seeds", "rounds": "--rounds", "data_share": "--scale", "data": "--data"}
    for key, option in fixed.items():
        if key in changes:
            raise SettingsError(f"--set {key}=... cannot be used with a study: use {option}")
    options = Options(presets, tuple(arm or ()), rounds, seeds, first_seed, scale, changes, no_labels)
    wanted = plan(chosen, options)
    workers = jobs or os.cpu_count() or 1
    planned = StudyPlan(name, plan_file(out, name), wanted, kernels_in(out))
    if dry_run:
        show_plan(planned, workers, as_json, chosen)
        return
    progress = look(planned, wanted)  # before anything is written: the data may not be there
    notes = notes_on(planned, progress, chosen)
    start: Callable[[StudyPlan, Progress], RunningJob] = Running
    connect = jobs_on(on, address)
    if connect is not None:
        start = cluster = connect()
        workers = jobs or cluster.cores
    with held(out, name):
        work = write_plan(out, name, [*wanted, *finished_beside(chosen, options, out)])
        with StudyProgress(name, workers, quiet=as_json) as view:
            for note in () if as_json else notes:
                view.say(f"note: {note}")
            try:
                run_jobs(work, progress, workers, view.show, start)
            except KeyboardInterrupt:
                view.say(f"stopped; finished rounds are saved. Resume with the same command ({out}).")
                raise typer.Exit(130) from None
    finish(work, progress, as_json, notes)


def finished_beside(chosen: Study, options: Options, out: Path) -> list[StudyJob]:
    """Jobs of the study's other arms that the directory has finished already: they cost nothing to show."""
    if not options.arms:
        return []
    others = plan(chosen, replace(options, arms=()))
    file = plan_file(out, chosen.name)
    known = {place_of(job) for job in read_plan(file).jobs} if file.is_file() else set()
    beside = [job for job in others if job.arm not in options.arms and place_of(job) not in known]
    return [job for job in beside if is_done(out, job)]


def finish(work: StudyPlan, progress: Sequence[Progress], as_json: bool, notes: Sequence[str] = ()) -> None:
    """Say where the results are, and what failed; as JSON with the notes that were given at the start."""
    done = sum(p.state == "done" for p in progress)
    pages = write_pages(work.directory)
    if as_json:
        states = {p.job.name: p.state for p in progress}
        body = {"study": work.study, "directory": str(work.directory), "done": done, "jobs": states}
        print(json.dumps(body | {"notes": list(notes)}))
    else:
        print(f"study {work.study}: {done} of {len(progress)} jobs done, in {work.directory}")
        for page in pages:
            print(f"report: {page}")
        if work.study == recommend.STUDY.name:
            show_ranking(work)
    check(progress)


def show_ranking(work: StudyPlan) -> None:
    """The methods by mean rank, and which is recommended by the rule of the study."""
    from chase.studies.ranking import labels_needed, ranking, recommendation
    from chase.studies.results import read_study

    result = read_study(work)
    print_table(ranking(result))
    print(recommendation(result))
    print_table(labels_needed(result))


def write_pages(directory: Path) -> list[Path]:
    """The page and tables of every study in a directory."""
    from chase.studies.page import write_study  # only here: drawing takes a second to import
    from chase.studies.results import read_studies

    return [page for result in read_studies(directory) if (page := write_study(result, directory)) is not None]


def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory of studies.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to write, e.g. docs/results/NAME.")],
) -> None:
    """Copy what studies have found so far, raw metrics compressed, without checkpoints."""
    from chase.studies.publish import pack

    runs = pack(directory, out)
    print(f"{runs} runs are in {out}; make the page with: chase study publish {quote(str(out.parent))}")


def publish(directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of exported studies.")]) -> None:
    """Make README.md, figures and tables from exported studies alone."""
    from chase.studies.publish import publish as make

    print(f"results: {make(directory)}")


def show_studies(as_json: JsonOpt = False) -> None:
    """List the studies and what each of them runs."""
    if as_json:
        print(json.dumps({name: entry.about for name, entry in all_studies().items()}))
        return
    print_table(
        ReportTable(("study", "what it runs"), [[s.name, s.about] for s in all_studies().values()], text_columns=2)
    )


def show_plan(work: StudyPlan, workers: int, as_json: bool, chosen: Study) -> None:
    """What would run, arm by arm, and about how long it would take."""
    progress = {p.job.name: p for p in look(work, work.jobs, dry=True)}
    left = seconds_left(list(progress.values()), workers)
    notes = notes_on(work, progress.values(), chosen)
    if as_json:
        jobs = {name: {"state": p.state, "rounds": p.rounds, "seconds": p.left} for name, p in progress.items()}
        body = {"study": work.study, "jobs": jobs, "seconds": left, "missing": missing(progress.values())}
        print(json.dumps(body | {"notes": notes}))
        return
    groups: dict[tuple[str, str], list[Progress]] = {}
    for job in work.jobs:
        groups.setdefault((job.scene, job.arm), []).append(progress[job.name])
    rows: list[list[Cell]] = [
        [
            scene,
            arm,
            len(some),
            sum(p.state == "done" for p in some),
            some[0].job.settings.rounds,
            "data missing" if some[0].state == "missing" else duration(sum(p.left for p in some)),
        ]
        for (scene, arm), some in groups.items()
    ]
    columns = ("data", "arm", "jobs", "done", "rounds", "time on one core")
    print_table(ReportTable(columns, rows, f"study {work.study}", text_columns=2))
    shared = len(work.jobs) - len(progress)
    some = f" ({shared} fewer than above: arms share them)" if shared else ""
    left_text = f"about {duration(left)} with {workers} at a time, if the machine stays as busy as now"
    lacking = sum(p.state == "missing" for p in progress.values())
    if lacking:
        left_text += f", not counting {lacking} without data"
    if lacking == len(progress):
        left_text = "all of them without data"
    print(f"{len(progress)} jobs{some}, {left_text}")
    for problem in missing(progress.values()):
        print(f"missing: {problem}")
    for note in notes:
        print(f"note: {note}")


def missing(progress: Iterable[Progress]) -> list[str]:
    """What stands in the way of jobs, each reason once."""
    return list(dict.fromkeys(p.problem for p in progress if p.state == "missing"))


class StudyProgress:
    """All jobs on one screen: a bar with the time left, and a line for each running job."""

    def __init__(self, name: str, workers: int, quiet: bool = False) -> None:
        self._name, self._workers, self._quiet = name, workers, quiet
        self._console = plain_console(stderr=quiet, soft_wrap=True)
        self._live: Live | None = None
        self._said, self._finished, self._told = -QUIET_SECONDS, -1, dict[str, int]()

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(Text("starting ..."), console=self._console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text)

    def headline(self, jobs: Sequence[Progress]) -> str:
        """The state of the study in one line."""
        done, failed = (sum(p.state == state for p in jobs) for state in ("done", "failed"))
        rounds = sum(min(p.rounds, p.job.settings.rounds) for p in jobs)
        total = sum(p.job.settings.rounds for p in jobs)
        text = f"{self._name}  {done}/{len(jobs)} jobs  {rounds}/{total} rounds"
        return text + (f"  {failed} failed" if failed else "") + f"  {duration(seconds_left(jobs, self._workers))} left"

    def show(self, jobs: Sequence[Progress]) -> None:
        """Show how far all jobs are, and what happened to them since."""
        for p in jobs:
            for note in p.notes[self._told.get(p.job.name, 0) :]:
                self.say(note)
            self._told[p.job.name] = len(p.notes)
        if self._live is not None:
            share = sum(p.rounds for p in jobs) / max(1, sum(p.job.settings.rounds for p in jobs))
            lines = [Text(f"{share_bar(share)}  {self.headline(jobs)}")]
            lines += [Text(job_line(p)) for p in jobs if p.state == "running"]
            self._live.update(Group(*lines))
            return
        finished, now = sum(p.state in ("done", "failed") for p in jobs), time.monotonic()
        if not self._quiet and (finished != self._finished or now - self._said >= QUIET_SECONDS):
            self._finished, self._said = finished, now
            self.say(self.headline(jobs))


def job_line(progress: Progress) -> str:
    """One running job."""
    job = progress.job
    return (
        f"  {job.scene} · {job.arm} · seed {job.settings.seed}  round {progress.rounds}/{job.settings.rounds}"
        f"  accuracy {percent(progress.accuracy)}"
    )
