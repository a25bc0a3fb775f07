"""The tables of a scene: methods against each other, and the paper's figures beside ours."""

from __future__ import annotations

from typing import Any

from chase.report import method_tables
from chase.report.cells import Cell, Number, number, with_interval
from chase.report.runs import MethodRuns, clock
from chase.report.statistics import accuracy_after, interval, last_shared_round, of_shared_seeds, paired
from chase.report.table_files import comparison_tables
from chase.report.tables import ReportTable, said
from chase.run.record import NO_EFFECT
from chase.settings import load, presets
from chase.studies import paper
from chase.studies.results import SceneResult

PAPER_MINUTES = "The paper measured its minutes on its authors' GPU: compare the ratios, not the minutes."
"""What stands below the table of times."""


def tables_of(result: SceneResult) -> dict[str, ReportTable]:
    """The tables of a scene by a name for their files."""
    found: dict[str, ReportTable | None] = {
        **comparison_tables(result.methods, result.part.against),
        "paper": paper_table(result),
        "variants-paper": variant_table(result),
        "time-paper": minutes_table(result),
    }
    return {name: table for name, table in found.items() if table is not None and table.rows}


def paper_table(result: SceneResult) -> ReportTable | None:
    """Our accuracies and, below each, the paper's, at the paper's rounds; None where the paper has none."""
    rows: list[list[Cell]] = []
    known = False
    if last_shared_round(result.methods) < paper.ROUNDS[0]:
        return None
    for method in of_shared_seeds(result.methods):
        theirs = paper.accuracy(result.data, result.papers.get(method.label, "")) if result.beside_paper else {}
        known = known or bool(theirs)
        ours = [with_interval(method_tables.of_runs(method, accuracy_after(r)).within(0, 100)) for r in paper.ROUNDS]
        rows.append([method.label, "ours", *ours])
        if theirs:
            whose = "paper, not comparable" if why_not(result, method.label) else "paper"
            rows.append([method.label, whose, *(number(theirs[r], 1) for r in paper.ROUNDS)])
    columns = ("accuracy, %, after round", "whose", *(str(r) for r in paper.ROUNDS))
    return ReportTable(columns, rows, "Accuracy beside the paper", text_columns=2) if known else None


def why_not(result: SceneResult, label: str) -> str:
    """Why the paper's row beside an arm cannot be set against ours; empty where it can."""
    return paper.NOT_COMPARABLE.get((result.data, result.papers.get(label, "")), "")


def variant_table(result: SceneResult) -> ReportTable | None:
    """Number-class minus EV, ours paired by seed and the paper's; None where either is missing."""
    by_label = {method.label: method for method in result.methods}
    theirs = paper.NUMBER_CLASS_MINUS_EV.get(result.data)
    if theirs is None or not result.beside_paper or not {"EV", "number-class"} <= by_label.keys():
        return None
    own = {r: interval(paired(by_label["number-class"], by_label["EV"], accuracy_after(r))) for r in theirs}
    rows: list[list[Cell]] = [
        ["ours", *(with_interval(own[r], 2, signed=True) for r in theirs)],
        ["paper", *(Number(value, 1, signed=True) for value in theirs.values())],
    ]
    return ReportTable(
        ("number-class minus EV, points, after round", *map(str, theirs)), rows, "Number-class beside EV"
    )


def paper_notes(result: SceneResult) -> list[str]:
    """What must be said beside the paper's figures."""
    settings, notes = result.jobs[0].settings, []
    shared = of_shared_seeds(result.methods)
    if [m.seeds for m in shared] != [m.seeds for m in result.methods]:
        seeds = ", ".join(map(str, shared[0].seeds))
        notes.append(f"Ours beside the paper: only seeds that all methods have finished ({seeds}).")
    for method in result.methods:
        why = why_not(result, method.label)
        if why:
            notes.append(f"The paper's figures for {method.label} are not comparable: {why}.")
    if result.data in paper.LESS_DATA:
        notes.append(f"A local copy of {result.data} may hold less: {paper.LESS_DATA[result.data]}.")
    end = last_shared_round(result.methods)
    if end < paper.ROUNDS[-1]:
        notes.append(f"Ours ends after round {end}; the paper's rounds after that have nothing of ours beside them.")
    if settings.data_share < 1:
        notes.append(f"Only {100 * settings.data_share:g} % of the data was used here: not comparable with the paper.")
    departed = departures(result)
    if departed:
        notes.append(f"Different from the paper: {', '.join(departed)}.")
    if settings.partition == "shards-reference":
        notes.append("Partitioned as in the authors' code: clients share samples and some classes may be missing.")
    elif result.data in ("mnist", "cifar10", "emnist"):
        notes.append("Ours: no sample belongs to two clients; the authors' code let clients share samples.")
    return notes


NOT_NAMED = NO_EFFECT | {"seed"}
"""Settings that decide no result, or what a mean is taken over."""


def departures(result: SceneResult) -> list[str]:
    """Settings of a scene that are not those of the paper's preset for the data with the arm on top.

    Authors' shards and a share of the data have notes of their own, and a share brings its number of test samples.
    """
    found = changed(result)
    noted = {"data_share", "test_limit"} if "data_share" in found else set()
    return [
        f"{key} = {said(value)}"
        for key, value in found.items()
        if key not in noted and (key, value) != ("partition", "shards-reference")
    ]


def changed(result: SceneResult) -> dict[str, Any]:
    """All settings that are not the preset's, with their values; nothing where the data has no preset."""
    job = result.jobs[0]
    arm = next((arm.changes for arm in result.part.arms if arm.label == job.arm), None)
    if arm is None or result.data not in presets():
        return {}
    own, theirs = job.settings.model_dump(), load(result.data, arm).model_dump()
    return {key: own[key] for key in own if key not in NOT_NAMED and own[key] != theirs[key]}


def minutes_table(result: SceneResult) -> ReportTable | None:
    """Seconds per round as multiples of FedRandom's, ours and the paper's; None where there is nothing to compare."""
    base = method_tables.baseline(result.methods, "FedRandom")
    if base is None or base.label != "FedRandom" or result.data != "cifar10" or not result.beside_paper:
        return None

    time = clock(result.methods)

    def seconds(method: MethodRuns) -> float:
        return method_tables.of_runs(method, time.per_round).mean

    rows: list[list[Cell]] = []
    for method in result.methods:
        minutes = paper.MINUTES.get(result.papers.get(method.label, ""))
        rows.append(
            [
                method.label,
                number(seconds(method), 2),
                number(seconds(method) / seconds(base), 2),
                number(minutes),
                number(minutes, scale=1 / paper.MINUTES["FedRandom"]),
            ]
        )
    ours = f"{time.name} per round, ours"
    columns = ("method", ours, "times FedRandom", "minutes per round, paper", "times FedRandom, paper")
    return ReportTable(columns, rows, "Time beside the paper")
