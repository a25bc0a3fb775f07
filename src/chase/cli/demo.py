"""``chase demo``: what is recommended, CHASe and random selection on the built-in digits, in under two minutes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from chase import settings as settings_room
from chase.cli.progress import RunProgress
from chase.cli.terminal import print_table
from chase.core.errors import RunDirectoryError
from chase.core.files import writing
from chase.report import tables
from chase.report.runs import MethodRuns, accuracy, by_method, find_runs
from chase.report.tables import ReportTable
from chase.run.experiment import Experiment

STRATEGIES = ("recommended", "chase", "random")
SEEDS = (0, 1)
ROUNDS = 30

OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="Directory (default: a new one, runs/demo-TIME).")]
RoundsOpt = Annotated[int, typer.Option("--rounds", min=1, help="Rounds of each of the six runs.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo", epilog="Example: chase demo --out runs/demo")(demo)


def demo(out: OutOpt = None, rounds: RoundsOpt = ROUNDS) -> None:
    """Compare the recommended method with CHASe and random selection on scikit-learn's digits: two seeds each.

    Ten clients hold two classes each; some label little and rarely, some much and often (ReCo). An earlier demo
    in the same directory is replaced.
    """
    from chase.report.html import write_report  # only here: drawing takes a second to import

    out = out or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    if clear(out):
        print(f"replacing the demo in {out}")
    names = [f"{strategy}-seed{seed}" for strategy in STRATEGIES for seed in SEEDS]
    for number, name in enumerate(names, start=1):
        strategy, _, seed = name.partition("-seed")
        print(f"run {number} of {len(names)}: {strategy}, seed {seed}")
        chosen = settings_room.load("digits", {"strategy": strategy, "seed": int(seed), "rounds": rounds})
        experiment = Experiment.begin(chosen, out / name)
        try:
            with RunProgress(chosen) as progress:
                experiment.run(progress.round_done)
        except KeyboardInterrupt:
            print(f"stopped; what is done is in {out}. Start again with: chase demo --out {out}")
            raise typer.Exit(130) from None
    runs = find_runs([out / name for name in names])
    methods = by_method(runs)
    print_table(comparison(methods))
    print(verdict(methods))
    print(f"report: {write_report(runs, out / 'report.html')}")


def clear(out: Path) -> bool:
    """Make room for a demo; whether an earlier one was removed. Anything else in the way is left and refused."""
    ours = {f"{strategy}-seed{seed}" for strategy in STRATEGIES for seed in SEEDS} | {"report.html"}
    with writing(out):
        found = {path.name for path in out.iterdir()} if out.is_dir() else set()
        if out.exists() and (not out.is_dir() or found - ours):
            raise RunDirectoryError(f"{out} holds something else than a demo: choose another --out")
        for name in found - {"report.html"}:
            shutil.rmtree(out / name)
        (out / "report.html").unlink(missing_ok=True)
    return bool(found)


def comparison(methods: Sequence[MethodRuns]) -> ReportTable:
    """Accuracy after some rounds, and what it cost: mean over the seeds and their range."""
    reached = tables.accuracy_at(methods, tables.some_rounds(methods, most=3))
    cost = tables.brief(tables.summary(methods), ("labels", "seconds", "inferred per client"))
    rows = [[*left, *right] for left, right in zip(reached.rows, cost.rows, strict=True)]
    rounds = [f"round {r}" for r in reached.columns[1:]]
    title = "Test accuracy in % after some rounds, and what it cost: mean over the seeds (smallest–largest)"
    return ReportTable(("method", *rounds, "labels", "seconds per round", "inferred per client"), rows, title)


def verdict(methods: Sequence[MethodRuns]) -> str:
    """The comparison with the last method in a sentence each, whatever it is."""
    return "\n".join(against(method, methods[-1]) for method in methods[:-1])


def against(ours: MethodRuns, theirs: MethodRuns) -> str:
    """One comparison in one sentence."""
    end = 100 * float(ours.last("test_accuracy").mean() - theirs.last("test_accuracy").mean())
    on_average = float(ours.table(accuracy).mean() - theirs.table(accuracy).mean())
    return (
        f"{ours.label} against {theirs.label}: {end:+.1f} points after the last round, {on_average:+.1f} on average "
        f"over all rounds; {len(SEEDS)} seeds are few."
    )
