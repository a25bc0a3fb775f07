"""What a study has found so far: its runs by part, scene and arm, its tables, and its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from chase.core.errors import RunDirectoryError
from chase.report import versus
from chase.report.runs import Method, RunData, clock, is_run, read_run
from chase.report.statistics import accuracy_after
from chase.report.tables import NONE, Table, number
from chase.studies import paper
from chase.studies.catalog import STUDIES
from chase.studies.plan import Job, Plan, plans_in
from chase.studies.study import Part, Study


@dataclass(frozen=True)
class SceneResult:
    """The arms of one part in one scene."""

    study: Study
    part: Part
    scene: str
    jobs: Sequence[Job]
    methods: Sequence[Method]
    """Arms that have a finished round, in the order of the study."""

    @property
    def key(self) -> str:
        """A name for files and links."""
        words = f"{self.study.name} {self.part.title} {self.scene}".lower()
        return "-".join("".join(c if c.isalnum() or c == "." else " " for c in words).split())

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
    """Jobs that have done all their rounds."""
    jobs: int

    @property
    def state(self) -> str:
        """How much of the study is there."""
        rest = "" if self.done == self.jobs else "; the others are left out"
        return f"{self.done} of {self.jobs} jobs are finished{rest}"


def read_study(plan: Plan) -> StudyResult:
    """The runs of a study as they stand."""
    study = STUDIES.get(plan.study)
    if study is None:
        raise RunDirectoryError(f"{plan.path} is of a study '{plan.study}' that this version does not know")
    runs = {job.name: run_of(plan, job) for job in plan.jobs if is_run(plan.directory / job.name)}
    finished = {job.name: job.name in runs and len(runs[job.name].metrics) >= job.settings.rounds for job in plan.jobs}
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
        scenes.append(SceneResult(study, part, scene, jobs, methods))
    return StudyResult(study, scenes, sum(finished.values()), len(finished))


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
    for method in result.methods:
        theirs = paper.accuracy(result.data, result.papers.get(method.label, "")) if result.beside_paper else {}
        known = known or bool(theirs)
        ours = [versus.with_interval(versus.of_runs(method, accuracy_after(r))) for r in paper.ROUNDS]
        rows.append([method.label, "ours", *ours])
        if theirs:
            rows.append([method.label, "paper", *(number(theirs[r], 1) for r in paper.ROUNDS)])
    columns = ("accuracy, %, after round", "whose", *(str(r) for r in paper.ROUNDS))
    return Table(columns, rows, "Beside the paper", text_columns=2) if known else None


def paper_notes(result: SceneResult) -> list[str]:
    """What must be said beside the paper's figures."""
    settings, notes = result.jobs[0].settings, []
    for method in result.methods:
        why = paper.NOT_COMPARABLE.get((result.data, result.papers.get(method.label, "")))
        if why:
            notes.append(f"The paper's figures for {method.label} are not comparable: {why}.")
    if result.data in paper.LESS_DATA:
        notes.append(f"A local copy of {result.data} may hold less: {paper.LESS_DATA[result.data]}.")
    if settings.data_share < 1:
        notes.append(f"Only {100 * settings.data_share:g} % of the data was used here: not comparable with the paper.")
    if settings.partition == "shards-reference":
        notes.append("Shared out as the authors' code does it: clients share samples and some classes may be missing.")
    elif result.data in ("mnist", "cifar10", "emnist"):
        notes.append("Ours: no sample belongs to two clients; the authors' code let clients share samples.")
    return notes


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
        "results": versus.results(result.methods, result.part.against),
        "cost": versus.cost(result.methods, result.part.against),
        "to-reach": versus.to_reach(result.methods, versus.targets(result.methods)),
        "paper": paper_table(result),
        "time-paper": minutes_table(result),
    }
    return {name: table for name, table in found.items() if table is not None and table.rows}


def findings(result: SceneResult) -> list[str]:
    """What was found in a scene, in sentences; it says so where nothing can be said yet."""
    missing = [arm.label for arm in result.part.arms if arm.label not in {m.label for m in result.methods}]
    wanted = [label for label in missing if label in {job.arm for job in result.jobs}]
    said = list(versus.findings(result.methods, result.part.against)) if result.methods else []
    if wanted:
        said.append(f"Not finished yet: {', '.join(wanted)}.")
    return said
