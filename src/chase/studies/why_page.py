"""``why.md``: a short page on why strategies win or lose here, made from raw metrics alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chase.report import charts
from chase.report.cells import NONE, Cell, number, with_interval
from chase.report.export import to_markdown
from chase.report.requests_section import chance_share, evenness
from chase.report.runs import RunData
from chase.report.statistics import interval
from chase.report.tables import ReportTable
from chase.studies.abstract import abstract
from chase.studies.awakened import AWAKENED_FOUND, AWAKENED_NOTE, awakened_table, easy_then
from chase.studies.beside_paper import beside_note, beside_paper
from chase.studies.campaign import CAMPAIGN, left
from chase.studies.clients_alone import ALONE_NOTE, clients_alone
from chase.studies.figures import Drawing, chance_picks, class_balance, largest_share, zero_ev_picks
from chase.studies.findings import by_ev, settled_share, unfinished
from chase.studies.hypotheses import EV, FEW_LABELS, Where
from chase.studies.hypothesis_tests import (
    LAST,
    STUDIES_READ,
    Finding,
    Group,
    candidates,
    findings_of,
    groups_of,
    last_rounds,
)
from chase.studies.observations import most_willing, never_together, pulled, zero_share
from chase.studies.overview import CENTRAL, SHORTEST, WEIGHTS, name_of_data, place_of
from chase.studies.results import SceneResult, StudyResult, key_of_run
from chase.studies.study_page import folded
from chase.studies.verdict_grid import in_short
from chase.studies.verdict_table import LENGTHS_NOTE, VERDICTS_NOTE, if_all_were_one_family, verdicts

TITLE = "# Why strategies win or lose here\n"
HEAD = """## How it was found

Made from the raw metrics in this directory by `chase study publish .`; it fills as runs finish. Accuracy is the mean of
the last five rounds; differences are paired by seed, with 95 % intervals (Student's t). From six seeds on a paired
t-test decides, Holm-corrected over the comparisons of one question on one data set at one length of runs, those that
have not run counted too; with fewer seeds nothing is decided, and what is said is provisional. Seeds 0 to 2 of MNIST
and CIFAR-10 are those that most of these hypotheses came from; the others are new. ReCo are clients of unequal
willingness: two of ten label ten samples every round, six label seven every third round, two label five every fifth.
Random: random selection of as many samples. All-global: CHASe with every sample aligned to the global model. No labels:
clients buy none and train on their initial labels.
"""
NOT_CONTROLLED = """## What the paper did not control

- **Who counts how much.** The text weighs a client by its labels. Under ReCo the two most willing clients then come to
  hold about half of the average on MNIST, although each knows two classes only. The authors' code averages models in
  shuffled order with label counts in client order, which is equal weights on average. What that does to the order of
  methods: H14 to H16.
- **What a label is worth.** No table has an arm that buys no labels, so it cannot show whether labels helped at all.
- **Shared samples.** The authors' shards are drawn with replacement: clients share images, and a class may be missing.
- **The alignment that was run.** In the authors' code the easy and hard split is read from an array of zeros, so every
  sample is aligned to the global model (`all-global` here).
- **Input scale.** With a learning rate of 0.001 and no normalisation layers, dividing CIFAR-10 by 0.25 instead of 0.5
  makes inputs, and so the first gradients, twice as large (H17).
"""


def why_page(studies: Sequence[tuple[Path, StudyResult]], root: Path) -> tuple[str, dict[Path, Drawing]]:
    """The page and its figures by file; empty where none of its studies has a finished run of some length."""
    read = [result for _, result in studies if result.study.name in STUDIES_READ]
    groups = [group for group in groups_of(read) if group.rounds >= SHORTEST]
    if not groups:
        return "", {}
    found = findings_of(groups)
    figures = {root / "figures" / f"why-page-{name}.svg": drawn for name, drawn in drawings(groups, read).items()}
    shown = {
        file: f"![{drawn.title}]({file.relative_to(root).as_posix()})\n\n{drawn.caption}\n"
        for file, drawn in figures.items()
    }
    first = [text for file, text in shown.items() if file.stem.startswith(CENTRAL_FIGURES)]
    more = [text for text in shown.values() if text not in first] if first else []
    results = [result for _, result in studies]
    parts = [
        TITLE,
        *abstract(found, results),
        in_short(found),
        HEAD + if_all_were_one_family(found),
        *ev_sections(found, groups, results),
        *pull_section(found, groups),
    ]
    parts += awakened_section(found, groups)
    parts += [NOT_CONTROLLED, *section("Beside the paper's figures", beside_paper(groups), beside_note(groups))]
    parts += ["## Accuracy\n", *(first or shown.values()), "## In detail\n"]
    lengths = LENGTHS_NOTE if any(f.several for f in found) else ""
    tables = {
        "Hypotheses and verdicts in detail": (verdicts(found), VERDICTS_NOTE + lengths + "\n"),
        "Accuracy by arm and seed": (accuracies(groups), ""),
        "What decided the picks": (picks_table(groups), PICKS_NOTE),
    }
    for title, (table, note) in tables.items():
        parts += folded(title, f"{to_markdown(table)}\n{note}")
    parts += folded("More figures", "\n".join(more)) if more else []
    return "\n".join(part for part in [*parts, missing(results)] if part), figures


CENTRAL_FIGURES = tuple(f"why-page-{data}-accuracy-" for data in CENTRAL)
LONGEST = 32
"""Rows of a table that is shown at once."""


def section(title: str, table: ReportTable | None, note: str) -> list[str]:
    """A heading, its table and what it means; nothing without rows. A long table opens on a click."""
    if table is None or not table.rows:
        return []
    text = to_markdown(table)
    return [
        f"## {title}\n",
        *([text, note] if len(table.rows) <= LONGEST else [note, *folded(f"{title}: the table", text)]),
    ]


def ev_sections(found: Sequence[Finding], groups: Sequence[Group], results: Sequence[StudyResult]) -> list[str]:
    """What EV can tell apart in federations, and what is left of it where clients are alone."""
    note = note_of(found, SEEN_NOTE + something_to_go_by(found, groups) + ERRORS_NOTE, SEEN_FOUND, {"H18", "H19"})
    parts = section("What EV can see", seen_by_ev(groups), note)
    return [*parts, *section("What clients can do alone", clients_alone(results), ALONE_NOTE)]


def pull_section(found: Sequence[Finding], groups: Sequence[Group]) -> list[str]:
    """To whose classes the model is pulled."""
    note = note_of(found, PULLED_NOTE, PULLED_FOUND, {"H22", "H23", "H24"})
    return section("To whose classes the model is pulled", pulled_table(groups), note)


def awakened_section(found: Sequence[Finding], groups: Sequence[Group]) -> list[str]:
    """What happens when frozen samples awaken."""
    note = note_of(found, AWAKENED_NOTE, AWAKENED_FOUND + easy_then(groups), {"H25", "H26"}, "cifar10")
    return section("What happens when frozen samples awaken", awakened_table(groups), note)


PICKS_NOTE = """By chance: the score of what was asked for was tied with samples that were not. EV of 0: the prediction
had not changed once. Evenness: entropy of the classes asked for as a share of the largest possible. Largest share: of
one client in the average of the last round.
"""


def of_last_rounds(group: Group) -> list[float]:
    """The accuracy of each run of an arm, in order of the seeds."""
    return [last_rounds(run, group.rounds) for run in group.method.runs]


def mean_of(values: Sequence[float | None]) -> Cell:
    """The mean of what was measured, a dash for none."""
    known = [v for v in values if v is not None and np.isfinite(v)]
    return number(float(np.mean(known)), 0) if known else NONE


SEEN: dict[str, Callable[[RunData], float]] = {
    "picks of EV 0 at the most willing clients, %": lambda run: zero_share(run, willing=True),
    "at the others, %": lambda run: zero_share(run, willing=False),
    "errors between classes that no client holds together, %": lambda run: never_together(run)[0],
    "such pairs among all pairs, %": lambda run: never_together(run)[1],
}
SEEN_NOTE = """EV counts how often the prediction for a sample changes while a client trains. The most willing clients
are those that asked for most samples. Where the EV of a pick is 0, chance decided among all samples of EV 0."""
ERRORS_NOTE = """ An error between classes that no client holds together is one that no client can find by its own
classes alone."""
SEEN_FOUND = """ At {at} such errors are about as frequent in the rows without EV, so the split into classes makes them,
not the selection. Ties and such errors can make EV as good as chance, not worse; what can make it worse is the pull
below."""


def holding(found: Sequence[Finding], keys: set[str], data: str) -> str:
    """``rounds 60 and 200``: where all these hypotheses hold on a data set; nothing where one fails at some round."""
    own = [f for f in found if f.hypothesis.key in keys and f.data == data]
    rounds = sorted({f.rounds for f in own})
    held = [str(r) for r in rounds if keys == {f.hypothesis.key for f in own if f.holds and f.rounds == r}]
    if not held or any(f.fails for f in own):
        return ""
    return f"round {held[0]}" if len(held) == 1 else f"rounds {', '.join(held[:-1])} and {held[-1]}"


def note_of(found: Sequence[Finding], text: str, said: str, keys: set[str], data: str = "mnist") -> str:
    """What a table means, and what was found in it on a data set, at which rounds, where all these hypotheses hold."""
    at = holding(found, keys, data)
    return (text + said.format(at=at) if at else text) + "\n"


NEVER_ZERO = """ On CIFAR-10, where clients hold five classes each, hardly any pick has an EV of 0, and with equal
weights EV beats random selection (H5, {at})."""
NOT_NEEDED = """ EV can win without that: on digits with two initial labels per client it beats random selection, and
{share:.0f} % of its picks have an EV of 0 (H6)."""


def something_to_go_by(found: Sequence[Finding], groups: Sequence[Group]) -> str:
    """Where EV tells samples apart and beats random selection; nothing where the runs do not show both."""
    runs = [run for group in groups for run in group.method.runs if group.settings["data"] == "cifar10"]
    shares = [zero_share(run, willing=True) for run in runs]
    known = [share for share in shares if np.isfinite(share)]
    at = holding(found, {"H5"}, "cifar10")
    if not at or not known or max(known) >= 5:
        return ""
    few = [run for g in candidates(groups, "digits", Where(EV, FEW_LABELS)) for run in g.method.runs]
    share = float(np.mean([zero_share(run, willing=True) for run in few])) if few else 0.0
    exception = NOT_NEEDED.format(share=share) if share >= 5 and holding(found, {"H6"}, "digits") else ""
    return NEVER_ZERO.format(at=at) + exception


def seen_by_ev(groups: Sequence[Group]) -> ReportTable:
    """A row for every arm of a scene in which one selects by EV."""
    rows: list[list[Cell]] = []
    scenes = {tuple(place_of(g)[:2]) for g in groups if any(by_ev(run) for run in g.method.runs)}
    for group in groups:
        if tuple(place_of(group)[:2]) in scenes:
            runs = group.method.runs
            seen = [mean_of([of(run) for run in runs]) for of in SEEN.values()]
            rows.append([*place_of(group), number(group.rounds, 0), len(runs), *seen])
    return ReportTable(("data", "conditions", "arm", "round", "seeds", *SEEN), rows, text_columns=3)


PULLED = (
    "taken for their classes, %",
    "belong to their classes, %",
    "recall of their classes, %",
    "recall of the others, %",
)
PULLED_NOTE = """Theirs: the classes that the most willing clients hold, where that is not all."""
PULLED_FOUND = """ On MNIST at {at}, where clients are weighted by labels and labels are bought, the global model takes
too many samples for one of their classes, and the recall of all other classes is lower; with EV more so than with
random selection, and hardly without bought labels or with equal weights. A likely reason, not measured: what EV asks
for lies between the two classes of a client, and learning these samples moves the client's model further. **The pull
was found in these very runs**: the tests of H22 to H24 say that it is no accident of the seeds, not that it was
predicted."""


def pulled_table(groups: Sequence[Group]) -> ReportTable:
    """To whose classes the models of each arm are pulled; who is willing is the same in all arms of a seed."""
    own = [g for g in groups if g.changed.keys() <= {"client_weights"} and g.settings["behaviour"] == "ReCo"]
    willing: dict[tuple[Any, int], set[int]] = {}
    for group in own:
        for run in group.method.runs:
            if run.selections:
                willing.setdefault((group.settings["data"], run.seed), most_willing(run))
    rows: list[list[Cell]] = []
    for group in own:
        found = [pulled(run, willing.get((group.settings["data"], run.seed), set())) for run in group.method.runs]
        known = [values for values in found if np.isfinite(values).all()]
        if known:
            means = [mean_of(list(column)) for column in zip(*known, strict=True)]
            rows.append([*place_of(group), number(group.rounds, 0), len(known), *means])
    return ReportTable(("data", "conditions", "arm", "round", "seeds", *PULLED), rows, text_columns=3)


def accuracies(groups: Sequence[Group]) -> ReportTable:
    """Means with intervals and every seed's value."""
    rows: list[list[Cell]] = []
    for group in groups:
        values = of_last_rounds(group)
        labels = number(float(np.mean([run.last("labels") for run in group.method.runs])), 0)
        each = " / ".join(str(number(value, 1)) for value in values)
        seeds = ", ".join(str(run.seed) for run in group.method.runs)
        shown = with_interval(interval(np.array(values)).within(0, 100))
        rows.append([*place_of(group), number(group.rounds, 0), labels, shown, seeds, each])
    columns = (
        "data",
        "conditions",
        "arm",
        "round",
        "labels",
        f"accuracy, mean of {LAST} rounds, %",
        "seeds",
        "by seed",
    )
    return ReportTable(columns, rows, text_columns=3, words=frozenset({6, 7}))


def picks_table(groups: Sequence[Group]) -> ReportTable:
    """What ties, EV of 0, class balance and weights came to in the end."""
    rows: list[list[Cell]] = []
    for group in groups:
        runs = group.method.runs
        zero = [None if (share := settled_share(run)) is None else 100 * share for run in runs]
        chance, even = ([float(of(run)[-1]) for run in runs] for of in (chance_share, evenness))
        largest = [100 * run.last("largest_share") for run in runs]
        means = [mean_of(values) for values in (chance, zero, even, largest)]
        rows.append([*place_of(group), number(group.rounds, 0), *means])
    columns = ("data", "conditions", "arm", "round", "by chance, %", "EV of 0, %", "evenness, %", "largest share, %")
    return ReportTable(columns, rows, text_columns=3)


def drawings(groups: Sequence[Group], read: Sequence[StudyResult]) -> dict[str, Drawing]:
    """Accuracy by arm and weights of every data set and length, and what decided the picks in the paper's weighting."""
    found: dict[str, Drawing] = {}
    for data in dict.fromkeys(str(group.settings["data"]) for group in groups):
        alike = [g for g in groups if g.settings["data"] == data and g.changed.keys() <= {"client_weights"}]
        for rounds in sorted({g.rounds for g in alike}):
            own = [g for g in alike if g.rounds == rounds]
            if len(own) > 1:
                found[f"{data}-accuracy-{rounds}"] = by_weights(data, own)
    for result in read:
        for scene in result.scenes:
            if result.study.name == "why" and scene.finished and scene.jobs[0].settings.client_weights == "labelled":
                found |= {f"{scene.data}-{name}": drawn for name, drawn in of_scene(scene).items()}
    return found


def by_weights(data: str, groups: Sequence[Group]) -> Drawing:
    """Accuracy at arms, a series for each weighting."""
    arms = list(dict.fromkeys(group.arm for group in groups))
    lines = []
    for weights in (w for w in WEIGHTS if any(g.settings["client_weights"] == w for g in groups)):  # one colour each
        own = [g for g in groups if g.settings["client_weights"] == weights]
        at = [float(arms.index(g.arm)) for g in own]
        lines.append(charts.Series(WEIGHTS[weights], at, [interval(np.array(of_last_rounds(g))) for g in own]))
    title = f"Accuracy by client weights, {name_of_data(data)}, round {groups[0].rounds}"
    svg = charts.values(title, "accuracy (%)", "", arms, [float(n) for n in range(len(arms))], lines)
    counted = f"mean of the last {LAST} rounds up to it"
    return Drawing(title, svg, f"{title}: {counted}; bars are 95 % intervals over seeds.")


def of_scene(scene: SceneResult) -> dict[str, Drawing]:
    """Weights, chance and balance over rounds."""
    drawn = {
        "largest-share": largest_share(scene.methods),
        "chance": chance_picks(scene.methods),
        "zero-ev": zero_ev_picks(scene.methods),
        "balance": class_balance(scene.methods),
    }
    return {
        name: Drawing(f"{d.title}, {scene.scene}", d.svg, f"{d.title}, {scene.scene}. {d.caption}")
        for name, d in drawn.items()
        if d is not None
    }


CONTINUE_NOTE = """Run a command in a copy of this directory: `--out` names where the runs that it shares are, or a new
directory.
"""


def missing(studies: Sequence[StudyResult]) -> str:
    """Which runs are still to come: of the campaign, where it has begun, command by command, else scene by scene."""
    campaign = left(studies)
    named = {key_of_run(job) for planned in CAMPAIGN for job in planned.jobs} if campaign else set()
    lines = [
        f"- `{planned.command} --out {planned.directory}`: {done} of {total} runs are finished"
        for planned, done, total in campaign
    ]
    for scene in (scene for result in studies for scene in result.scenes):
        others = [job for job in scene.jobs if job.name not in scene.finished and key_of_run(job) not in named]
        lines += [f"- {scene.title}: {text}" for text in unfinished(scene)] if others else []
    note = f"\n{CONTINUE_NOTE}" if campaign else ""
    return "## What is missing\n\n" + "\n".join(lines) + "\n" + note if lines else ""
