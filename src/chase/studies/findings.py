"""What was found in a scene, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from chase.report import method_tables
from chase.report.cells import number
from chase.report.client_results import client_accuracies
from chase.report.runs import MethodRuns, RunData, Values, clock
from chase.report.statistics import OfRun, accuracy_after, of_shared_seeds
from chase.studies import paper
from chase.studies.results import SceneResult
from chase.studies.scene_tables import departures, why_not

BY_EV = frozenset({"ev", "chase"})
"""Strategies that ask for the samples of the highest EV."""
NOTHING_FOUND = "Nothing is compared: that needs finished runs of at least two methods."


def comparisons(result: SceneResult) -> tuple[str, list[str]]:
    """A sentence per comparison and, where these are many, one on all of them that comes first (else empty)."""
    if not result.methods:
        return "", []
    methods, against = result.methods, result.part.against
    return method_tables.in_one_sentence(methods, against), method_tables.findings(methods, against)


def findings(result: SceneResult) -> list[str]:
    """What else was found in a scene, in sentences; it says so where nothing can be said yet."""
    said = []
    planned = {job.arm for job in result.jobs}
    against = result.part.against
    if against and against not in planned:
        said.append(f"Nothing is compared: {against}, which the others are to be compared with, was not run.")
    measured = own_classes_findings(result) + settled_findings(result) + cost_findings(result)
    return said + paper_findings(result) + measured + unfinished(result)


def paper_findings(result: SceneResult) -> list[str]:
    """Ours beside the paper's after the last of its rounds that all of ours evaluated; none under other settings."""
    reached = [
        r for r in paper.ROUNDS if all(np.isfinite(accuracy_after(r)(run)) for m in result.methods for run in m.runs)
    ]
    if not reached or not result.methods or not result.beside_paper:
        return []
    if result.jobs[0].settings.data_share < 1 or departures(result):
        return []
    parts = []
    for method in of_shared_seeds(result.methods):
        theirs = paper.accuracy(result.data, result.papers.get(method.label, ""))
        if theirs and not why_not(result, method.label):
            ours = method_tables.of_runs(method, accuracy_after(reached[-1])).mean
            parts.append(f"{method.label}: {ours:.1f} % against {theirs[reached[-1]]:.1f} %")
    return [f"Ours against the paper's after round {reached[-1]}. {'; '.join(parts)}."] if parts else []


def own_classes_findings(result: SceneResult) -> list[str]:
    """How models do on what their clients hold, where some are isolated: the test set asks for all classes."""
    runs = [run for method in result.methods for run in method.runs]
    if not any(run.metrics[-1].get("client_scores") for run in runs):
        return []
    parts = []
    for method in result.methods:
        found = [100 * float(v.mean()) for run in method.runs if (v := client_accuracies(run)) is not None]
        parts += [f"{method.label}: {sum(found) / len(found):.1f} %"] if found else []
    return (
        [f"Accuracy on test sets with each client's own mix of classes, mean over clients. {'; '.join(parts)}."]
        if parts
        else []
    )


def settled_findings(result: SceneResult) -> list[str]:
    """How many of the samples that were asked for had an EV of 0, where it was measured."""
    shares = {
        method.label: [s for run in method.runs if (s := settled_share(run)) is not None] for method in result.methods
    }
    parts = [f"{label}: {100 * sum(some) / len(some):.0f} %" for label, some in shares.items() if some]
    if not parts:
        return []
    return [f"Share of the samples asked for that had an EV of 0, so that chance chose among them. {'; '.join(parts)}."]


def by_ev(run: RunData) -> list[Values]:
    """The questions that a measured EV chose."""
    return [line for line in run.selections if line.get("strategy") in BY_EV and line.get("ev") is not None]


def settled_share(run: RunData, asked_by: Callable[[int], bool] = lambda client: True) -> float | None:
    """The share of a run's questions, of some clients, whose EV was 0; None where none was chosen by a measured EV."""
    measured = [line["ev"] for line in by_ev(run) if asked_by(line["client"])]
    return sum(ev == 0 for ev in measured) / len(measured) if measured else None


def cost_findings(result: SceneResult) -> list[str]:
    """What the arms cost, a sentence a measure, where the part is about that."""
    methods, figures, said = result.methods, set(result.part.figures), []
    if len(methods) < 2:
        return []
    base = method_tables.baseline(methods, result.part.against) or methods[0]
    time = clock(methods)
    if figures & {"accuracy-cost", "seconds-per-round"}:
        said.append(times_of(f"{time.name.capitalize()} per round", methods, base, time.per_round, 2))
    if figures & {"accuracy-cost", "inference-cost"}:
        what = "Samples that a client infers per round"
        said.append(times_of(what, methods, base, lambda run: float(run.series("inferred_samples").mean()), 0))
    return said


def times_of(what: str, methods: Sequence[MethodRuns], base: MethodRuns, of_run: OfRun, digits: int) -> str:
    """``What (times A): A: 2.0; B: 1.0 (0.50)``: means over seeds, and how many times the base's that is."""
    means = {method.label: method_tables.of_runs(method, of_run).mean for method in methods}
    unit = means[base.label]
    parts = [
        f"{label}: {number(mean, digits)}" + (f" ({mean / unit:.2f})" if unit > 0 and label != base.label else "")
        for label, mean in means.items()
    ]
    times = f" (in brackets, times {base.label})" if unit > 0 else ""
    return f"{what}, mean{times}. {'; '.join(parts)}."


def unfinished(result: SceneResult) -> list[str]:
    """Which arms lack seeds, in a sentence; nothing where all is done."""
    parts = []
    for arm in dict.fromkeys(job.arm for job in result.jobs):
        own = [job for job in result.jobs if job.arm == arm]
        done = sum(job.name in result.finished for job in own)
        if done < len(own):
            parts.append(f"{arm} ({done} of {len(own)} seeds done)" if done else arm)
    if not parts:
        return []
    if result.methods and not result.finished:
        return ["Nothing here is finished: what is shown is of runs under way."]
    return [f"Not finished yet: {', '.join(parts)}. What is unfinished is left out."]
