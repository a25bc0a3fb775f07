"""Our accuracies at the paper's rounds, beside its own: a table of ``why.md``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.report.cells import NONE, Cell, number
from chase.report.runs import RunData, accuracy
from chase.report.tables import ReportTable
from chase.studies import paper
from chase.studies.hypothesis_tests import LAST, Group, last_rounds
from chase.studies.overview import ARMS, WEIGHTS, name_of_arm, name_of_data, place_of

ALIKE = {"client_weights", "image_size", "partition", "normalisation"}
"""What may differ from the paper's text: its authors' code does, in each of these."""
RUN_BY_AUTHORS = {"CHASe, all-global": "CHASe"}
"""Our arms that do what the authors' code did for an arm of the paper."""
STEADY = 20
"""Last rounds over which jumps are taken."""
BESIDE_NOTE = f"""Accuracy in % by round: ours is the mean of the {LAST} rounds up to it, the paper's of one round. Its
text weighs clients by labels, its code takes label counts in another order than the models. Marked \\*: passes the
paper's figure of round {paper.ROUNDS[-1]} for the same arm. Jump: by how many points the accuracy changes from one
round to the next, mean of the last {STEADY} rounds."""
UNSTEADY = """ On {data} that is {shuffled:.1f} points with shuffled weights and {equal:.1f} with equal weights, which
shuffled weights are on average (arms and rounds that both have). So a figure of a single round under the weighting of
the authors' code depends much on the round; the paper's are means of three seeds of it."""


def beside_paper(groups: Sequence[Group]) -> ReportTable:
    """For each data set the paper's rows, then ours under each condition, at its rounds and where ours end."""
    own = longest([g for g in groups if comparable(g)])
    ends = {g.rounds for g in own if paper.ROUNDS[0] < g.rounds < paper.ROUNDS[-1]}
    at = sorted({*paper.ROUNDS, *ends})
    rows: list[list[Cell]] = []
    for data in dict.fromkeys(str(g.settings["data"]) for g in own):
        some = [g for g in own if g.settings["data"] == data]
        for arm in dict.fromkeys(of_paper(g.arm) for g in some):
            theirs = paper.accuracy(data, arm)
            rows.append(
                [
                    name_of_data(data),
                    "*the paper*",
                    name_of_arm(arm),
                    "3",
                    *(number(theirs.get(r), 1) for r in at),
                    NONE,
                ]
            )
        for group in sorted(some, key=order):
            jumps = number(jump(group.method.runs), 1)
            rows.append([*place_of(group), len(group.method.runs), *(ours(group, r) for r in at), jumps])
    return ReportTable(("data", "conditions", "arm", "seeds", *(str(r) for r in at), "jump"), rows, text_columns=3)


def jump(runs: Sequence[RunData]) -> float:
    """By how many points the accuracy changes from one round to the next, mean over the last rounds of all runs."""
    return float(np.mean([np.abs(np.diff(accuracy(run)[-STEADY - 1 :])).mean() for run in runs]))


def beside_note(groups: Sequence[Group]) -> str:
    """What the table means, and how unsteady the weighting of the authors' code is where it was run."""
    own = [g for g in groups if comparable(g) and g.changed.keys() <= {"client_weights"}]
    places = {w: {seen_as(g): g for g in own if g.settings["client_weights"] == w} for w in ("shuffled", "equal")}
    for data in dict.fromkeys(str(g.settings["data"]) for g in places["shuffled"].values()):
        both = [key for key in places["shuffled"] if key in places["equal"] and key[0] == data]
        shuffled, equal = ([run for key in both for run in some[key].method.runs] for some in places.values())
        if both and (jumps := jump(shuffled)) > 2 * jump(equal):
            said = UNSTEADY.format(data=name_of_data(data), shuffled=jumps, equal=jump(equal))
            return f"{BESIDE_NOTE}{said}\n"
    return f"{BESIDE_NOTE}\n"


def seen_as(group: Group) -> tuple[str, str, int]:
    """What must be the same where weightings are compared: data, arm and rounds."""
    return str(group.settings["data"]), group.arm, group.rounds


def order(group: Group) -> tuple[int, int, int, int]:
    """Conditions of the preset first, by weights, then by length, then the arms as everywhere."""
    others = len(group.changed.keys() - {"client_weights"})
    weights = list(WEIGHTS).index(str(group.settings["client_weights"]))
    return others, weights, group.rounds, ARMS.index(group.arm)


def of_paper(arm: str) -> str:
    """The paper's name of an arm."""
    return RUN_BY_AUTHORS.get(arm, arm)


def comparable(group: Group) -> bool:
    """Whether an arm is one of the paper's and ran long enough under conditions that its text or code may have had."""
    known = paper.accuracy(str(group.settings["data"]), of_paper(group.arm))
    under = group.arm in ARMS and group.changed.keys() <= ALIKE and group.settings["behaviour"] == "ReCo"
    return bool(known) and under and group.rounds >= paper.ROUNDS[0]


def longest(groups: Sequence[Group]) -> list[Group]:
    """Without runs that others of the same place continue, for at least as many seeds."""

    def continued(group: Group) -> bool:
        others = [g for g in groups if place_of(g) == place_of(group) and g.rounds > group.rounds]
        return any(len(other.method.runs) >= len(group.method.runs) for other in others)

    return [group for group in groups if not continued(group)]


def ours(group: Group, end: int) -> Cell:
    """Mean over the seeds of an arm's accuracy up to a round; a dash where it did not get there."""
    if end > group.rounds:
        return NONE
    mean = float(np.mean([last_rounds(run, end) for run in group.method.runs]))
    last = paper.accuracy(str(group.settings["data"]), of_paper(group.arm))[paper.ROUNDS[-1]]
    return f"{mean:.1f}{chr(92) + '*' if mean > last else ''}"
