"""``chase run`` and ``chase resume``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from chase import settings as settings_room
from chase.cli.cluster import AddressOpt, OnOpt, check_on, clients_on, jobs_on
from chase.cli.compare import compare
from chase.cli.coverage import show_coverage
from chase.cli.options import SetOpt
from chase.cli.people import keep_labels, page_beside
from chase.cli.progress import RunProgress
from chase.cli.terminal import print_table
from chase.core import plugins
from chase.core.errors import SettingsError
from chase.core.text import counted, quoted
from chase.home.page.serving import PORT, Address, bind
from chase.library import new_directory
from chase.report import tables
from chase.report.measured import has_estimate, is_measured, last_in_words
from chase.report.quality import in_words
from chase.report.runs import read_run
from chase.run.comparison import is_comparison, method_changes, plan_arms, read_arms
from chase.run.experiment import Experiment
from chase.run.metrics import ESTIMATE_MEANS, main_value, stop_reason
from chase.run.record import Record
from chase.simulation.recommended import values_of
from chase.simulation.world import with_all_owners

PresetArg = Annotated[
    str,
    typer.Argument(help="A preset (see `chase list`), a TOML file, or your own data: a folder, CSV or parquet file."),
]
StrategyOpt = Annotated[
    str | None, typer.Option("--strategy", "-s", help="Method, e.g. chase; several, separated by commas, are compared.")
]
SeedsOpt = Annotated[int | None, typer.Option("--seeds", min=1, help="Run every method with this many seeds.")]
RoundsOpt = Annotated[int | None, typer.Option("--rounds", help="Rounds to run in all (short for --set rounds=N).")]
OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="Directory (default: runs/PRESET-STRATEGY-TIME).")]
DirOpt = Annotated[
    str | None,
    typer.Option("--data-dir", help="Directory of data sets, NAME/train.parquet (else the variable CHASE_DATA)."),
]
AnnotatorOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--annotator",
        "-a",
        help="Who labels: oracle (simulated, the true labels); team (simulated people, who err); page (you label one "
        "client); or the names of people, repeatable.",
    ),
]
PageClientOpt = Annotated[
    str | None, typer.Option("--page-client", help="The client that you label [0]; all = every client on one page.")
]
WaitOpt = Annotated[
    float | None,
    typer.Option("--wait", help="Seconds that a round waits for your answers [no limit if only people label, else 0]."),
]
PortOpt = Annotated[int, typer.Option("--page-port", help="Port of the labelling page; 0 takes any free one.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end instead of text.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", epilog="Example: chase run digits --strategy chase,ev,random --seeds 3 --rounds 30")(run)
    app.command("resume", epilog="Example: chase resume runs/digits-chase-20261115-201500")(resume)


def run(
    preset: PresetArg = "digits",
    strategy: StrategyOpt = None,
    rounds: RoundsOpt = None,
    seeds: SeedsOpt = None,
    out: OutOpt = None,
    data_dir: DirOpt = None,
    change: SetOpt = None,
    as_json: JsonOpt = False,
    annotator: AnnotatorOpt = None,
    page_client: PageClientOpt = None,
    wait: WaitOpt = None,
    page_port: PortOpt = PORT,
    on: OnOpt = "here",
    address: AddressOpt = "",
) -> None:
    """Run federated active learning, or compare several methods, and write a directory with metrics and a report."""
    check_on(on, address)
    changes = settings_room.parse_changes(change or [])
    who, people = annotators(annotator or [])
    changes |= given(rounds=rounds, data_dir=data_dir, annotator=who, page_client=page_client, wait=wait)
    methods = [] if strategy is None else strategy.split(",")
    base = values_of(preset, changes, strategy)
    if (base | changes).get("owners") == "all" and "clients" in changes:
        raise SettingsError(
            f"owners = all makes every owner a client, so clients = {changes['clients']} cannot be set as well: "
            "remove one of the two"
        )
    if len(methods) > 1 or seeds is not None:
        values = base | changes
        values |= all_owners(values)
        first = settings_room.from_mapping(values).seed
        arms = plan_arms(values, methods or [values.get("strategy", "chase")], range(first, first + (seeds or 1)))
        compare(arms, out or new_directory(preset, "comparison"), as_json, jobs_on(on, address))
        return
    changes |= clients_on(on, address)
    if strategy is not None:
        changes |= method_changes(strategy)
    chosen = settings_room.from_mapping(base | changes).resolved()
    if chosen.annotator == "page":
        bind(Address(port=page_port)).close()  # a port in use is refused before a directory is made
    go(Experiment.begin(chosen, out or new_directory(preset, chosen.strategy)), as_json, page_port, people)


def all_owners(values: Mapping[str, Any]) -> dict[str, Any]:
    """The number of clients where every owner that the data names is one: all runs of a comparison have the same."""
    if values.get("owners") != "all":
        return {}
    chosen = settings_room.from_mapping({**values, "strategy": "random", "model": "local"}).resolved()
    return {"clients": with_all_owners(chosen).clients}


def annotators(given: list[str]) -> tuple[str | None, list[str]]:
    """The setting ``annotator`` and the names of people, from what was given: oracle, team, page, or names."""
    known = {*settings_room.ANNOTATORS, *plugins.offered("annotator")}
    simulated = [name for name in given if (name in known and name != "page") or ":" in name]
    names = [name for name in given if name not in (*simulated, "page")]
    if simulated and len(given) > 1:
        raise SettingsError(
            f"--annotator {simulated[0]} cannot be combined with other annotators; given: {', '.join(given)}"
        )
    # Whoever mistypes page or team gets a page; whoever is called Thea must not be taken for a team.
    others = sorted(known - {"page", "team"})
    for name in names:
        if near := difflib.get_close_matches(name, others, n=1, cutoff=0.75):
            raise SettingsError(
                f"unknown annotator '{name}'; did you mean '{near[0]}'? Or use another name for the person."
            )
    if names:
        return "page", names
    return (given[0] if given else None), []


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, as changes of settings."""
    return {key: value for key, value in options.items() if value is not None}


def resume(
    directory: Annotated[Path, typer.Argument(help="The run or comparison directory to resume.")],
    rounds: RoundsOpt = None,
    change: SetOpt = None,
    as_json: JsonOpt = False,
    page_port: PortOpt = PORT,
    annotator: Annotated[
        list[str] | None, typer.Option("--annotator", "-a", help="People who label, by name; repeatable.")
    ] = None,
    on: OnOpt = "here",
    address: AddressOpt = "",
) -> None:
    """Resume a run or a comparison that was stopped; `--rounds 300` makes it longer."""
    check_on(on, address)
    changes = settings_room.parse_changes(change or []) | given(rounds=rounds)
    if is_comparison(directory):
        compare(read_arms(directory, changes), directory, as_json, jobs_on(on, address))
        return
    changes |= clients_on(on, address)
    go(Experiment.resume(directory, changes), as_json, page_port, annotators(annotator or [])[1])


def ends_of_studies(record: Record) -> tuple[int, ...]:
    """Rounds of which a run that studies share keeps the confusion matrix: those at which shorter studies end."""
    directory = record.path.absolute().parent
    if not any(directory.glob("*.study.json")):
        return ()
    from chase.studies.plan import ends_within  # only here: plans take a moment to import

    return ends_within(directory, record.path.absolute().name, record.settings.rounds)


def go(experiment: Experiment, as_json: bool, page_port: int = PORT, people: Sequence[str] = ()) -> None:
    """Run what is left with live progress, then show the outcome."""
    record = experiment.record
    if experiment.coverage is not None and not as_json:
        show_coverage(experiment.coverage, experiment.notes)
        experiment.notes.clear()
    progress = RunProgress(record.settings, quiet=as_json)
    try:
        with progress, page_beside(experiment, page_port, progress.say, people) as wait_for_people:

            def after_round(metrics: dict[str, Any]) -> None:
                progress.round_done(metrics)
                if not stop_reason(record.settings, [metrics]):
                    wait_for_people()

            metrics = experiment.run(after_round, ends_of_studies(record))
    except KeyboardInterrupt:
        again, saved = quoted(record.path), experiment.saved_rounds
        rounds = "1 round is saved" if saved == 1 else f"{saved} rounds are saved"
        progress.say(f"stopped; {rounds}. Resume with: chase resume {again}")
        say_labels(progress, experiment)
        say_report(progress, record.path)
        raise typer.Exit(130) from None
    for note in experiment.notes:
        progress.say(f"note: {note}")
    if as_json:
        keep_labels(experiment)
        report_run(record.path)
        print(json.dumps(outcome(experiment, metrics)))
        return
    title = f"{record.settings.strategy} on {record.settings.data}: {stop_reason(record.settings, metrics)}"
    run = read_run(record.path)
    print_table(tables.round_by_round(run, title=title))
    if tables.tracks_ev(run):
        progress.say(tables.EV_MEANS)
    progress.say(tables.COLUMNS_MEAN)
    found, main = run.confusion.get("quality"), record.settings.main_metric
    if not is_measured(run):
        progress.say(ESTIMATE_MEANS if has_estimate(run) else "")
        progress.say(last_in_words(run))
    if found:
        progress.say(in_words(found, main, main_value(metrics[-1], main)))
    progress.say(f"run directory: {record.path}")
    say_labels(progress, experiment)
    say_report(progress, record.path)


def report_run(path: Path) -> Path | None:
    """Write ``report.html`` into a run directory."""
    from chase.report import html  # only here: drawing takes a second to import

    return html.report_run(path)


def say_labels(progress: RunProgress, experiment: Experiment) -> None:
    """Write the labels of people and say where they are."""
    kept = keep_labels(experiment)
    if kept is not None:
        file, labels, people = kept
        progress.say(
            f"labels: {file} ({counted(labels, 'sample')} by their own names, {people} of them labelled by people)"
        )


def say_report(progress: RunProgress, path: Path) -> None:
    """Write the report and say where it is; nothing before the first round."""
    page = report_run(path)
    if page is not None:
        progress.say(f"report: {page}")


def outcome(experiment: Experiment, metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """What a script wants to know of a finished run."""
    last = {key: value for key, value in metrics[-1].items() if key != "clients"} if metrics else {}
    return {"directory": str(experiment.record.path), "rounds": len(metrics), "last": last}
