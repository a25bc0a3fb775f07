"""``chase show`` and ``chase report``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from chase.cli.terminal import print_table
from chase.core.errors import RunDirectoryError
from chase.core.text import quoted
from chase.report import tables
from chase.report.measured import has_estimate, is_measured, last_in_words
from chase.report.quality import in_words
from chase.report.runs import RunData, by_method, find_runs, is_run, read_run
from chase.run.metrics import ESTIMATE, ESTIMATE_MEANS, main_value
from chase.studies.plan import SUFFIX

Places = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories that contain some.")
]
ReportOut = Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: report.html in DIR).")]
ShowJson = Annotated[bool, typer.Option("--json", help="Print settings, environment and all metrics as JSON.")]
ReportJson = Annotated[bool, typer.Option("--json", help="Print the path and the summary as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("show", epilog="Example: chase show runs/digits-chase-20261115-201500")(show)
    app.command("report", epilog="Example: chase report runs/chase-0 runs/random-0 --out comparison.html")(report)


def show(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory.")], as_json: ShowJson = False
) -> None:
    """Show one run as a table."""
    if not is_run(directory) and any(directory.glob("*/settings.toml")):
        raise RunDirectoryError(
            f"{directory} contains several runs: compare them with `chase report {quoted(directory)}`"
        )
    run = read_run(directory)
    if as_json:
        print(json.dumps(as_object(run)))
        return
    s, done = run.settings, len(run.metrics)
    title = f"{s.get('strategy')} on {s.get('data')}, seed {run.seed}: {done} of {s.get('rounds')} rounds done"
    if not run.metrics:
        print(f"{title}; resume with: {run.resume_command}")
        return
    print_table(tables.round_by_round(run, title=title))
    if tables.tracks_ev(run):
        print(tables.EV_MEANS)
    print(tables.COLUMNS_MEAN)
    if not is_measured(run):
        print(f"{ESTIMATE_MEANS}\n{last_in_words(run)}" if has_estimate(run) else last_in_words(run))
    found, main = run.confusion.get("quality"), str(s.get("main_metric", "accuracy"))
    if found and run.confusion.get("round") == run.metrics[-1]["round"]:  # else it is of an end before more rounds
        print(in_words(found, main, main_value(run.metrics[-1], main)))
    page = directory / "report.html"
    print(f"report: {page}" if page.is_file() else f"no report yet; make one with: chase report {quoted(directory)}")


def as_object(run: RunData) -> dict[str, object]:
    """A run as JSON gives it to a script."""
    return {
        "directory": str(run.path),
        "settings": dict(run.settings),
        "environment": dict(run.environment),
        "model": dict(run.model),
        "metrics": [dict(line) for line in run.metrics],
    }


def report(places: Places, out: ReportOut = None, as_json: ReportJson = False) -> None:
    """Compare any number of runs on one self-contained HTML page, its tables as CSV and LaTeX beside it."""
    if out is None and len(places) == 1 and list(places[0].glob(f"*{SUFFIX}")):
        from chase.cli.studying import write_pages

        pages = [str(page) for page in write_pages(places[0])]
        if not pages:
            raise RunDirectoryError(
                f"{places[0]}: no round of its studies is finished yet, so there is nothing to show"
            )
        print(json.dumps({"reports": pages}) if as_json else "\n".join(f"report: {page}" for page in pages))
        return
    from chase.report.html import write_report  # only here: drawing takes a second to import
    from chase.report.table_files import write_report_tables

    runs = find_runs(places)
    if out is None:
        out = (places[0] if len(places) == 1 else Path()) / "report.html"
    write_report(runs, out)
    beside = write_report_tables(runs, out)
    methods = by_method(runs)
    if as_json:
        body = {"report": str(out), "tables": str(beside)}
        print(json.dumps(body | {"methods": [summary_object(m.label, m.runs) for m in methods]}))
        return
    print_table(tables.brief(tables.summary(methods)))
    print(f"report: {out}\ntables: {beside}")


def summary_object(label: str, runs: Sequence[RunData]) -> dict[str, object]:
    """The last figures of a method's runs."""
    keys = ("round", "test_accuracy", "test_loss", "labels", ESTIMATE)
    last = [{"directory": str(r.path), "seed": r.seed} | {key: r.metrics[-1].get(key) for key in keys} for r in runs]
    return {"method": label, "runs": last}
