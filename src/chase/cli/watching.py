"""``chase watch DIR``: a run or the studies of a directory while they run, from what they have written."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from chase.cli.terminal import can_show, screen, share_bar
from chase.core.errors import RunDirectoryError
from chase.core.files import held_by
from chase.core.pools import in_words
from chase.report.cells import NONE, number
from chase.report.runs import RunData, is_run, read_run
from chase.report.tables import EV_MEANS, duration, tracks_ev
from chase.run.metrics import ESTIMATE, NOT_MEASURED, estimate_in_words
from chase.run.record import LOCK
from chase.settings import from_mapping
from chase.studies.job import failure
from chase.studies.plan import StudyPlan, plans_in
from chase.studies.results import has_ended, key_of_run, run_of

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"
"""For a terminal that cannot show the others."""
WIDE = 40

DirArg = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a directory of studies or runs.")]
EveryOpt = Annotated[float, typer.Option("--every", min=0.2, help="Seconds between updates.")]
OnceOpt = Annotated[bool, typer.Option("--once", help="Show once and exit.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("watch", epilog="Example: chase watch runs/digits-chase-20261115-201500")(watch)


def watch(directory: DirArg, every: EveryOpt = 2.0, once: OnceOpt = False) -> None:
    """Watch a run or a study in the terminal; ends with it, or with Ctrl-C."""
    console = screen()
    lines, over = view(directory)
    if once or over or not console.is_terminal:
        console.print(Group(*lines))
        return
    with Live(Group(*lines), console=console, refresh_per_second=4) as live:
        try:
            while not over:
                time.sleep(every)
                lines, over = view(directory)
                live.update(Group(*lines))
        except KeyboardInterrupt:
            return


def view(directory: Path) -> tuple[list[RenderableType], bool]:
    """What there is to see, and whether all of it has ended."""
    if is_run(directory):
        run = read_run(directory)
        stopped = is_stopped(run)
        return [*run_lines(run), *([Text(said_stopped(run))] if stopped else [])], stopped or finished(run)
    plans = plans_in(directory) if directory.is_dir() else []
    if plans:
        both = [study_lines(plan) for plan in plans]
        return [line for lines, _ in both for line in lines], all(over for _, over in both)
    paths = sorted(p.parent for p in directory.glob("*/settings.toml")) if directory.is_dir() else []
    if not paths:
        raise RunDirectoryError(f"{directory} has no run and no study in it: give the directory of one")
    runs = [read_run(path) for path in paths]
    lines = [Text(one_line(run.path.name, run)) for run in runs]
    return list(lines), all(finished(run) or is_stopped(run) for run in runs)


def is_stopped(run: RunData) -> bool:
    """Whether a run has rounds left and no process that works on it."""
    return not finished(run) and held_by(run.path / LOCK) is None


def said_stopped(run: RunData) -> str:
    """What to do about a run that stopped."""
    return f"stopped after round {len(run.metrics)}: no process is running it. Resume with: {run.resume_command}"


def finished(run: RunData) -> bool:
    """Whether a run has done its rounds, or stopped before by a target or a budget."""
    # Other settings may be of an earlier version.
    ends = ("rounds", "target", "target_accuracy", "total_budget", "main_metric")
    return has_ended(run, from_mapping({key: run.settings[key] for key in ends if key in run.settings}))


def spark(values: Iterable[float], width: int = WIDE) -> str:
    """A line of bars from the lowest to the highest value, one a column."""
    known = [v for v in values if v == v]
    if not known:
        return ""
    step = max(1.0, len(known) / width)
    picked = [known[min(len(known) - 1, round(i * step + step) - 1)] for i in range(min(width, len(known)))]
    low, high = min(picked), max(picked)
    bars = BARS if can_show(BARS) else ASCII_BARS
    return "".join(bars[round((v - low) / (high - low or 1.0) * (len(bars) - 1))] for v in picked)


def left(run: RunData, rounds: int) -> float:
    """Seconds that the rounds left take at the pace of the last ten."""
    pace = run.series("seconds")[-10:]
    return float(pace.mean()) * max(0, rounds - len(run.metrics)) if pace.size else 0.0


def one_line(name: str, run: RunData, wanted: int = 0) -> str:
    """A run in one line; ``wanted`` rounds where a study asks for others than the run's own settings."""
    done, rounds = len(run.metrics), wanted or int(run.settings.get("rounds", 0))
    text = f"{name}  round {done}/{rounds}"
    if done:
        shown = spark(run.series("test_accuracy"), 16)
        text += f"  accuracy {number(run.last('test_accuracy'), 1, 100)} %  {shown}" if shown else _unmeasured(run)
    if done >= rounds or (not wanted and finished(run)):
        return text
    if not wanted and is_stopped(run):
        return f"{text}  stopped"
    return text + (f"  {duration(left(run, rounds))} left" if done else "")


def _unmeasured(run: RunData) -> str:
    estimate = estimate_in_words(run.metrics[-1])
    return f"  accuracy {NOT_MEASURED}" + (f", estimate {estimate}" if estimate else "")


WIDE = len("seconds per round")


def run_lines(run: RunData) -> list[RenderableType]:
    """A run with its curves."""
    s = run.settings
    lines: list[RenderableType] = [Text(one_line(f"{s.get('strategy')} on {s.get('data')}, seed {run.seed}", run))]
    if not run.metrics:
        return [*lines, Text("no round is finished yet")]
    for title, key, digits, scale in (
        ("accuracy, %", "test_accuracy", 1, 100.0),
        ("estimate, %", ESTIMATE, 1, 100.0),
        ("test loss", "test_loss", 3, 1.0),
        ("mean EV", "mean_ev", 2, 1.0),
        ("labels", "labels", 0, 1.0),
        ("seconds per round", "seconds", 2, 1.0),
    ):
        shown = str(number(run.last(key), digits, scale))
        if shown != NONE:
            lines.append(Text(f"{title:>{WIDE}}  {shown:>9}  {spark(run.series(key))}"))
    pools = ", ".join(f"{in_words(name)} {count}" for name, count in run.metrics[-1].get("pools", {}).items())
    lines.append(Text(f"{'samples':>{WIDE}}  {pools}"))
    return [*lines, Text(EV_MEANS)] if tracks_ev(run) else lines


def study_lines(plan: StudyPlan) -> tuple[list[RenderableType], bool]:
    """A study: how many jobs are done, the jobs under way, and those that failed with the reason."""
    once = {key_of_run(job): job for job in plan.jobs}
    runs = {key: run for key, job in once.items() if (run := run_of(plan, job)) is not None}
    done = [key for key, run in runs.items() if has_ended(run, once[key].settings)]
    rounds = sum(len(run.metrics) for run in runs.values())
    total = sum(job.settings.rounds for job in once.values())
    head = f"{share_bar(rounds / max(1, total))}  {plan.study}: {len(done)}/{len(once)} jobs, {rounds}/{total} rounds"
    failed = {key: failure(plan.directory, key[0]) for key in once if key not in done}
    count = sum(bool(why) for why in failed.values())
    holder = held_by(plan.directory / LOCK)
    idle = bool(failed) and (holder is None or holder.name not in (plan.study, ""))
    head += (f", {count} failed" if count else "") + (", not running" if idle else "")
    lines: list[RenderableType] = [Text(head)]
    for key, why in failed.items():
        job = once[key]
        named = f"  {job.scene} · {job.arm} · seed {job.settings.seed}"
        if why:
            lines.append(Text(f"{named}  failed: {why}"))
        elif key in runs:
            lines.append(Text(one_line(named, runs[key], job.settings.rounds)))
    return lines, not failed or (idle and count == len(failed))
