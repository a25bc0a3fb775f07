"""What a study has found so far: its runs by part, scene and arm, its tables, and its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chase.core.errors import RunDirectoryError
from chase.experiment import stop_reason
from chase.record import MAY_CHANGE
from chase.report import versus
from chase.report.clients import client_accuracies
from chase.report.files import comparison_tables
from chase.report.runs import Method, RunData, clock, is_run, read_run
from chase.report.statistics import OfRun, accuracy_after, interval, last_shared_round, paired
from chase.report.tables import NONE, Table, number
from chase.settings import Settings, load, presets
from chase.studies import paper
from chase.studies.catalog import STUDIES
from chase.studies.plan import Job, Plan, plans_in
from chase.studies.study import Part, Study

BY_EV = frozenset({"ev", "chase"})
"""Strategies that ask for the samples of the highest EV."""


def key_of(*words: str) -> str:
    """Words as a name for files and links."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in " ".join(words).lower()).split())


@dataclass(frozen=True)
class SceneResult:
    """The arms of one part in one scene."""

    study: Study
    part: Part
    scene: str
    jobs: Sequence[Job]
    methods: Sequence[Method]
    """Arms that have a finished round, in the order of the study."""
    finished: frozenset[str] = frozenset()
    """The names of the jobs that have nothing left to do."""

    @property
    def key(self) -> str:
        """A name for files and links."""
        return key_of(self.study.name, self.part.title, self.scene)

    @property
    def title(self) -> str:
        """The scene, and the part where a study has several."""
        return f"{self.scene}: {self.part.title}" if self.part.title else self.scene

    @property
    def data(self) -> str:
        """The data set."""
        return self.jobs[0].settings.data

    @property
    def papers(self) -> dict[str, str]:
        """The paper's row by arm."""
        return {arm.label: arm.paper for arm in self.part.arms if arm.paper}

    @property
    def beside_paper(self) -> bool:
        """Whether the paper's tables are of this scene: ReCo, the paper's way of sharing out data or its authors'."""
        settings = self.jobs[0].settings
        return settings.behaviour == "ReCo" and settings.partition != "iid" and settings.form != "cycles"


@dataclass(frozen=True)
class StudyResult:
    """One study in a directory."""

    study: Study
    scenes: Sequence[SceneResult]
    done: int
    """Jobs that have nothing left to do."""
    jobs: int

    @property
    def state(self) -> str:
        """How much of the study is there."""
        return f"{self.done} of {self.jobs} jobs are finished"


def read_study(plan: Plan) -> StudyResult:
    """The runs of a study as they stand."""
    study = STUDIES.get(plan.study)
    if study is None:
        raise RunDirectoryError(f"{plan.path} is of a study '{plan.study}' that this version does not know")
    runs = {job.name: run_of(plan, job) for job in plan.jobs if is_run(plan.directory / job.name)}
    finished = {job.name: job.name in runs and has_ended(runs[job.name], job.settings) for job in plan.jobs}
    groups: dict[tuple[int, str], list[Job]] = {}
    for job in plan.jobs:
        groups.setdefault((job.part, job.scene), []).append(job)
    scenes = []
    for (number_of_part, scene), jobs in groups.items():
        part = study.parts[number_of_part]
        # a run under way would drag the last shared round down for all
        whole = any(finished[job.name] for job in jobs)
        methods = []
        for arm in part.arms:
            own = [runs[j.name] for j in jobs if j.arm == arm.label and j.name in runs and finished[j.name] >= whole]
            own = [run for run in own if run.metrics]
            if own:
                methods.append(Method(arm.label, sorted(own, key=lambda run: run.seed)))
        names = frozenset(job.name for job in jobs if finished[job.name])
        scenes.append(SceneResult(study, part, scene, jobs, methods, names))
    return StudyResult(study, scenes, sum(finished.values()), len(finished))


def has_ended(run: RunData, settings: Settings) -> bool:
    """Whether a run has done its rounds, or stopped before by a target or a budget of its settings."""
    return bool(stop_reason(settings, [dict(line) for line in run.metrics[-1:]]))


def run_of(plan: Plan, job: Job) -> RunData:
    """A job's run up to the rounds that the study wants: another study may have run it for longer."""
    run, rounds = read_run(plan.directory / job.name), job.settings.rounds
    if len(run.metrics) <= rounds:
        return run
    asked = [line for line in run.selections if line["round"] <= rounds]
    return replace(run, metrics=run.metrics[:rounds], selections=asked, confusion={})


def read_studies(directory: Path) -> list[StudyResult]:
    """All studies of a directory."""
    return [read_study(plan) for plan in plans_in(directory)]


def is_study(directory: Path) -> bool:
    """Whether a directory holds studies."""
    return bool(list(directory.glob("*.study.json")))


def paper_table(result: SceneResult) -> Table | None:
    """Our accuracies and, below each, the paper's, at the paper's rounds; None where the paper has none."""
    rows, known = [], False
    if last_shared_round(result.methods) < paper.ROUNDS[0]:
        return None
    for method in result.methods:
        theirs = paper.accuracy(result.data, result.papers.get(method.label, "")) if result.beside_paper else {}
        known = known or bool(theirs)
        ours = [versus.with_interval(versus.of_runs(method, accuracy_after(r)).within(0, 100)) for r in paper.ROUNDS]
        rows.append([method.label, "ours", *ours])
        if theirs:
            whose = "paper, not comparable" if why_not(result, method.label) else "paper"
            rows.append([method.label, whose, *(number(theirs[r], 1) for r in paper.ROUNDS)])
    columns = ("accuracy, %, after round", "whose", *(str(r) for r in paper.ROUNDS))
    return Table(columns, rows, "Accuracy beside the paper", text_columns=2) if known else None


def why_not(result: SceneResult, label: str) -> str:
    """Why the paper's row beside an arm cannot be set against ours; empty where it can."""
    return paper.NOT_COMPARABLE.get((result.data, result.papers.get(label, "")), "")


def variant_table(result: SceneResult) -> Table | None:
    """Number-class minus EV, ours paired by seed and the paper's; None where either is missing."""
    by_label = {method.label: method for method in result.methods}
    theirs = paper.NUMBER_CLASS_MINUS_EV.get(result.data)
    if theirs is None or not result.beside_paper or not {"EV", "number-class"} <= by_label.keys():
        return None
    own = {r: interval(paired(by_label["number-class"], by_label["EV"], accuracy_after(r))) for r in theirs}
    rows = [
        ["ours", *(versus.with_interval(own[r], 2, signed=True) for r in theirs)],
        ["paper", *(f"{value:+.1f}" if value else "0.0" for value in theirs.values())],
    ]
    return Table(("number-class minus EV, points, after round", *map(str, theirs)), rows, "Number-class beside EV")


def paper_notes(result: SceneResult) -> list[str]:
    """What must be said beside the paper's figures."""
    settings, notes = result.jobs[0].settings, []
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
        notes.append(f"Set otherwise than in the paper: {', '.join(departed)}.")
    if settings.partition == "shards-reference":
        notes.append("Shared out as the authors' code does it: clients share samples and some classes may be missing.")
    elif result.data in ("mnist", "cifar10", "emnist"):
        notes.append("Ours: no sample belongs to two clients; the authors' code let clients share samples.")
    return notes


NOT_NAMED = MAY_CHANGE | {"seed", "data_share", "test_limit"}
"""Settings that have notes of their own or decide no result."""


def departures(result: SceneResult) -> list[str]:
    """Settings of a scene that are not those of the paper's preset for the data with the arm on top."""
    job = result.jobs[0]
    arm = next((arm.changes for arm in result.part.arms if arm.label == job.arm), None)
    if arm is None or result.data not in presets():
        return []
    own, theirs = job.settings.model_dump(), load(result.data, arm).model_dump()
    return [
        f"{key} = {own[key]}"
        for key in own
        if key not in NOT_NAMED and own[key] != theirs[key] and (key, own[key]) != ("partition", "shards-reference")
    ]


def minutes_table(result: SceneResult) -> Table | None:
    """Seconds a round as multiples of FedRandom's, ours and the paper's; None where there is nothing to compare."""
    base = versus.baseline(result.methods, "FedRandom")
    if base is None or base.label != "FedRandom" or result.data != "cifar10" or not result.beside_paper:
        return None

    time = clock(result.methods)

    def seconds(method: Method) -> float:
        return versus.of_runs(method, time.a_round).mean

    rows = []
    for method in result.methods:
        minutes = paper.MINUTES.get(result.papers.get(method.label, ""))
        rows.append(
            [
                method.label,
                number(seconds(method), 2),
                number(seconds(method) / seconds(base), 2),
                NONE if minutes is None else number(minutes, 2),
                NONE if minutes is None else number(minutes / paper.MINUTES["FedRandom"], 2),
            ]
        )
    ours = f"{time.name} a round, ours"
    columns = ("method", ours, "times FedRandom", "minutes a round, paper", "times FedRandom, paper")
    return Table(columns, rows, "Time beside the paper")


def tables_of(result: SceneResult) -> dict[str, Table]:
    """The tables of a scene by a name for their files."""
    found: dict[str, Table | None] = {
        **comparison_tables(result.methods, result.part.against),
        "paper": paper_table(result),
        "variants-paper": variant_table(result),
        "time-paper": minutes_table(result),
    }
    return {name: table for name, table in found.items() if table is not None and table.rows}


def findings(result: SceneResult) -> list[str]:
    """What was found in a scene, in sentences; it says so where nothing can be said yet."""
    said = list(versus.findings(result.methods, result.part.against)) if result.methods else []
    planned = {job.arm for job in result.jobs}
    against = result.part.against
    if against and against not in planned:
        said.append(f"Nothing is compared: {against}, which the others are to be compared with, was not run.")
    measured = own_classes_findings(result) + settled_findings(result) + cost_findings(result)
    return said + paper_findings(result) + measured + unfinished(result)


def paper_findings(result: SceneResult) -> list[str]:
    """Ours beside the paper's after the last of its rounds that ours have reached, in a sentence."""
    reached = [r for r in paper.ROUNDS if result.methods and r <= last_shared_round(result.methods)]
    if not reached or not result.beside_paper:
        return []
    parts = []
    for method in result.methods:
        theirs = paper.accuracy(result.data, result.papers.get(method.label, ""))
        if theirs and not why_not(result, method.label):
            ours = versus.of_runs(method, accuracy_after(reached[-1])).mean
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
        [f"On test sets with each client's own mix of classes, mean over clients. {'; '.join(parts)}."] if parts else []
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


def settled_share(run: RunData) -> float | None:
    """The share of a run's questions whose EV was 0; None where none was chosen by a measured EV."""
    measured = [line["ev"] for line in run.selections if line.get("strategy") in BY_EV and line.get("ev") is not None]
    return sum(ev == 0 for ev in measured) / len(measured) if measured else None


def cost_findings(result: SceneResult) -> list[str]:
    """What the arms cost, a sentence a measure, where the part is about that."""
    methods, figures, said = result.methods, set(result.part.figures), []
    if len(methods) < 2:
        return []
    base = versus.baseline(methods, result.part.against) or methods[0]
    time = clock(methods)
    if figures & {"accuracy-cost", "seconds-a-round"}:
        said.append(times_of(f"{time.name.capitalize()} a round", methods, base, time.a_round, 2))
    if figures & {"accuracy-cost", "inference-cost"}:
        what = "Samples that a client infers a round"
        said.append(times_of(what, methods, base, lambda run: float(run.series("inferred_samples").mean()), 0))
    return said


def times_of(what: str, methods: Sequence[Method], base: Method, of_run: OfRun, digits: int) -> str:
    """``What (times A): A: 2.0; B: 1.0 (0.50)``: means over seeds, and how many times the base's that is."""
    means = {method.label: versus.of_runs(method, of_run).mean for method in methods}
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
