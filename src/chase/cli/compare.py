"""``chase run --strategy a,b,c --seeds 3``: a comparison, begun or gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chase.cli.progress import RunProgress
from chase.cli.reporting import summary_object
from chase.cli.studying import StudyProgress
from chase.cli.terminal import print_table
from chase.core.text import quoted
from chase.report import labels_saved, tables
from chase.report.runs import by_method, find_runs, is_run
from chase.run.comparison import PLAN, ComparisonRun, open_arm, write_arms
from chase.studies.job import read_comparison
from chase.studies.runner import Progress, check, held, look, run_jobs

if TYPE_CHECKING:
    from chase.studies.on_ray import RayJobs


def compare(
    arms: Sequence[ComparisonRun], out: Path, as_json: bool, start: Callable[[], RayJobs] | None = None
) -> None:
    """Run what is not finished, then show all of it side by side; ``start`` connects to a cluster that runs it."""
    cluster = None if start is None else start()  # before anything is written
    arms = write_arms(out, arms)
    progress: list[Progress] = []
    if cluster is not None:
        progress = run_on(cluster, arms, out, as_json)
    else:
        for number, arm in enumerate(arms, start=1):
            run_arm(arm, out, f"[{number}/{len(arms)}] {arm.name}", as_json)
    if any(is_run(out / arm.name) for arm in arms):
        show(out, as_json)
    check(progress)


def run_on(cluster: RayJobs, arms: Sequence[ComparisonRun], out: Path, as_json: bool) -> list[Progress]:
    """All runs of the comparison that are not finished, as jobs on a cluster."""
    names = {arm.name for arm in arms}
    plan = read_comparison(out / PLAN)
    with held(out, plan.study), StudyProgress(plan.study, cluster.cores, quiet=as_json) as view:
        progress = look(plan, [job for job in plan.jobs if job.name in names])
        try:
            run_jobs(plan, progress, cluster.cores, view.show, cluster)
        except KeyboardInterrupt:
            view.say(f"stopped; finished rounds are saved. Resume with: chase resume {quoted(out)}")
            raise typer.Exit(130) from None
    return progress


def show(out: Path, as_json: bool) -> None:
    """Report and tables of all runs in the directory."""
    from chase.report.html import write_report  # only here: drawing takes a second to import
    from chase.report.table_files import write_report_tables

    runs = find_runs([out])
    page = write_report(runs, out / "report.html")
    beside = write_report_tables(runs, page)
    methods = by_method(runs)
    if as_json:
        body = {"directory": str(out), "report": str(page), "tables": str(beside)}
        print(json.dumps(body | {"methods": [summary_object(m.label, m.runs) for m in methods]}))
        return
    saved = labels_saved.saved_table(methods)
    if saved is not None:
        print_table(saved)
    print_table(tables.brief(tables.summary(methods)))
    for sentence in labels_saved.saved_sentences(methods):
        print(sentence)
    print(f"comparison: {out}\nreport: {page}\ntables: {beside}")


def run_arm(arm: ComparisonRun, out: Path, title: str, as_json: bool) -> None:
    """One run of the comparison; a finished one is left as it is."""
    progress = RunProgress(arm.settings, quiet=as_json)
    experiment = open_arm(out, arm)
    if experiment is None:
        if not as_json:
            progress.say(f"{title}: finished before")
        return
    if not as_json:
        progress.say(title)
    try:
        with progress:
            experiment.run(progress.round_done)
    except KeyboardInterrupt:
        progress.say(f"stopped in {arm.name}. Resume with: chase resume {quoted(out)}")
        raise typer.Exit(130) from None
    for note in experiment.notes:
        progress.say(f"note: {note}")
