"""``chase run --strategy a,b,c --seeds 3``: a comparison, begun or gone on with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from chase.cli.progress import RunProgress
from chase.cli.reporting import summary_object
from chase.cli.terminal import print_table
from chase.report import labels_saved, tables
from chase.report.runs import by_method, find_runs
from chase.run.comparison import ComparisonRun, open_arm, write_arms


def compare(arms: Sequence[ComparisonRun], out: Path, as_json: bool) -> None:
    """Run what is not finished, then show all of it side by side."""
    write_arms(out, arms)
    for number, arm in enumerate(arms, start=1):
        run_arm(arm, out, f"[{number}/{len(arms)}] {arm.name}", as_json)
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
        progress.say(f"stopped in {arm.name}. Resume with: chase resume {out}")
        raise typer.Exit(130) from None
    for note in experiment.notes:
        progress.say(f"note: {note}")
