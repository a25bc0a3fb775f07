"""The head of the results page: one table, and what holds, what does not, and what the paper did not control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chase.report.cells import NONE, Cell, number, with_interval
from chase.report.statistics import TEST_FROM, interval, of_shared_seeds
from chase.report.tables import ReportTable
from chase.studies import paper
from chase.studies.hypotheses import ALL_GLOBAL, CHASE, EV, NO_LABELS, RANDOM, Hypothesis
from chase.studies.hypothesis_tests import LAST, Finding, Group, last_rounds
from chase.studies.study import said

ARMS = (RANDOM, EV, CHASE, ALL_GLOBAL, NO_LABELS)
NAMES = ("random", "EV", "CHASe", "CHASe, all-global", "no labels bought")
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "emnist": "EMNIST", "cifar100": "CIFAR-100"}
"""Names as people write them, in the order of the table."""

CENTRAL = ("mnist", "cifar10")
"""Data sets of the paper's main tables that hypotheses are about."""
PUBLISHED = {"emnist": 697_932, "cifar100": 50_000}
"""Training samples of data sets (EMNIST by class) of which less may be at hand than the paper had."""
WEIGHTS = {"labelled": "weights by labels", "equal": "equal weights", "shuffled": "shuffled weights"}
SHORTEST = 10
"""Rounds from which on a run says something about accuracy; shorter ones only show that something runs."""

CAPTION = "Test accuracy in % of federated active learning where clients differ in how much they label, by method:\n"
TABLE_NOTE = f"""Mean of the last {LAST} rounds over the seeds that all methods of a row have, with a 95 % interval.
Random selection, EV (the samples of highest epistemic variation) and CHASe (EV with an alignment loss; all-global: as
its authors' code aligns) have the same budget of labels. Weights: how much a client counts in the average. Unless a row
says otherwise clients are unequal as in the paper (ReCo): two of ten label ten samples every round, six label seven
every third round, two label five every fifth. The paper's figures are of one round. Rows of more rounds continue runs
of fewer where both are there; the sentences test each length by itself.
"""
MOST_NAMED = 5
"""Hypotheses that a sentence names; the others are counted."""
NOT_CONTROLLED = [
    "Who counts how much in the average: its text weighs clients by labels, its code in effect equally.",
    "What labels are worth at all: no arm buys none.",
    "Clients that share samples, the alignment that its code really computes, and the scale of the inputs.",
]


def name_of_data(data: str) -> str:
    """A data set as people write it."""
    return DATA.get(data, data)


def conditions(group: Group) -> str:
    """What distinguishes a scene beside its data set: client weights, and what is not the preset's."""
    words = [WEIGHTS[str(group.settings["client_weights"])]]
    spread = f"clients by Dirichlet({group.settings['alpha']:g})" if group.settings["partition"] == "dirichlet" else ""
    for key, value in group.changed.items():
        if spread and key in ("partition", "alpha"):
            words += [spread] if spread not in words else []
        elif key != "client_weights":
            words.append(in_words(key, value))
    return ", ".join([*words, *part_of_data(group)])


def part_of_data(group: Group) -> list[str]:
    """How much of a data set there was, where it was less than the published one and no setting says so."""
    whole = PUBLISHED.get(str(group.settings["data"]))
    held = next((run.coverage["held"] for run in group.method.runs if run.coverage.get("held")), None)
    if whole is None or held is None or "data_share" in group.changed:
        return []
    if group.settings["partition"] == "shards-reference":  # clients share samples, and leave some to nobody
        return []
    count = int(np.sum(held))
    return [f"{count:,} of {whole:,} training samples"] if count < whole else []


def in_words(key: str, value: Any) -> str:
    """A changed setting for readers who do not know its name."""
    words = {
        "initial_labels": lambda: f"{100 * value:g} % labelled at the start",
        "budget": lambda: f"{value} labels per request",
        "behaviour": lambda: {
            "free": "all clients label equally much",
            "AbCo": "every client labels in every round (AbCo)",
        }.get(value, str(value)),
        "partition": lambda: "shared shards" if value == "shards-reference" else said(key, value),
        "data_share": lambda: f"{100 * value:g} % of the data",
        "test_limit": lambda: f"{value:,} test samples",
    }
    return words[key]() if key in words else said(key, value)


def place_of(group: Group) -> list[Cell]:
    """The first cells of a group's row."""
    return [name_of_data(str(group.settings["data"])), conditions(group), name_of_arm(group.arm)]


def name_of_arm(arm: str) -> str:
    """An arm as texts call it."""
    return dict(zip(ARMS[:1], NAMES[:1], strict=True)).get(arm, arm)


def is_central(group: Group) -> bool:
    """Whether a group is of the setting in question: the paper's on MNIST or CIFAR-10, whatever the weights."""
    return group.settings["data"] in CENTRAL and group.changed.keys() <= {"client_weights"}


def tables_of(groups: Sequence[Group]) -> tuple[ReportTable | None, ReportTable | None]:
    """What is shown at once and what on a click: all at once where nothing is of the setting in question."""
    central = [group for group in groups if is_central(group)]
    others = [group for group in groups if not is_central(group)]
    table = main_table(central)
    return (table, main_table(others, with_paper=False)) if table else (main_table(others), None)


def main_table(groups: Sequence[Group], *, with_paper: bool = True) -> ReportTable | None:
    """A row for each data set, its conditions and rounds, one column per arm, the paper's below; None without."""
    scenes: dict[tuple[str, str, int], list[Group]] = {}
    for group in groups:
        if group.arm in ARMS and group.rounds >= SHORTEST:
            scenes.setdefault((str(group.settings["data"]), conditions(group), group.rounds), []).append(group)
    rows: list[list[Cell]] = []
    order = [*DATA, *sorted({data for data, _, _ in scenes} - DATA.keys())]
    for data in (name for name in order if any(name == data for data, _, _ in scenes)):
        own = {key: some for key, some in scenes.items() if key[0] == data}
        words = sorted(dict.fromkeys(under for _, under, _ in own), key=lambda under: under.count(", "))
        by_length = sorted(own.items(), key=lambda entry: (words.index(entry[0][1]), entry[0][2]))
        rows += [scene_row(*key, some, ARMS) for key, some in by_length]
        rows += paper_rows(data, [rounds for _, _, rounds in own]) if with_paper else []
    columns = ("data", "conditions", "round", "seeds", *NAMES)
    return ReportTable(columns, rows, text_columns=2) if rows else None


def scene_row(data: str, words: str, rounds: int, groups: Sequence[Group], arms: Sequence[str]) -> list[Cell]:
    """Means of one scene over the seeds that all its arms have; over each arm's own where they share none."""
    by_arm = {group.arm: group for group in groups}
    shared = set.intersection(*(set(group.method.seeds) for group in groups))
    methods = {method.label: method for method in of_shared_seeds([group.method for group in groups])}
    cells: list[Cell] = []
    for arm in arms:
        runs = methods[arm].runs if arm in methods else []
        values = np.array([last_rounds(run, rounds) for run in runs])
        cells.append(with_interval(interval(values).within(0, 100)) if runs else NONE)
    wanted = min(group.planned for group in by_arm.values())
    seeds = f"{len(shared)} of {wanted}" if len(shared) < wanted else str(wanted)
    return [name_of_data(data), words, str(rounds), seeds if shared else "differ", *cells]


def paper_rows(data: str, lengths: Sequence[int]) -> list[list[Cell]]:
    """The paper's figures at its last rounds that ours reached; nothing where there are none."""
    rows = {arm: paper.accuracy(data, arm) for arm in ARMS[:3]}
    if not any(rows.values()):
        return []
    reached = sorted({max(at) for length in lengths if (at := [r for r in paper.ROUNDS if r <= length])})
    words = "*the paper* (weights by labels in its text, another order in its code)"
    return [
        [
            name_of_data(data),
            words,
            str(at),
            "3",
            *(number(rows[arm].get(at), 1) if rows.get(arm) else NONE for arm in ARMS),
        ]
        for at in reached
    ]


def what_holds(found: Sequence[Finding]) -> str:
    """What holds, what does not, and what the paper did not control, each a list."""
    early = list_of([f for f in found if f.provisional])
    undecided = list_of([f for f in found if f.open])
    parts = {
        "What holds": list_of([f for f in found if f.holds]) or ["Nothing is settled by the runs so far."],
        f"Provisional, fewer than {TEST_FROM} seeds": early,
        "What does not hold": list_of([f for f in found if f.fails])
        or ["None of the hypotheses is contradicted so far."],
        "Not decided": undecided,
        "What the paper did not control": NOT_CONTROLLED,
    }
    texts = ["\n".join([f"**{title}**\n", *(f"- {line}" for line in lines)]) for title, lines in parts.items() if lines]
    return "\n\n".join(texts) + "\n"


def list_of(found: Sequence[Finding]) -> list[str]:
    """``Labels do harm (MNIST +6.2 points, 6 seeds).``: a hypothesis once, its data sets in brackets."""
    groups: dict[str, list[Finding]] = {}
    for finding in found:
        groups.setdefault(finding.hypothesis.brief, []).append(finding)
    named = [
        f"{brief[0].upper()}{brief[1:]} ({evidence_of(some)})." for brief, some in list(groups.items())[:MOST_NAMED]
    ]
    more = len(groups) - len(named)
    return [*named, *([f"And {more} more in [why.md](why.md)."] if more else [])]


def evidence_of(found: Sequence[Finding]) -> str:
    """``EV minus random: MNIST +6.2 points, 3 seeds; CIFAR-10 ...``: of one hypothesis."""
    what = compared(found[0].hypothesis)
    return (f"{what}: " if what else "") + "; ".join(map(evidence, found))


def evidence(finding: Finding) -> str:
    """``MNIST +6.2 points, 3 seeds``, with the round where there are several."""
    seeds = "1 seed" if finding.seeds == 1 else f"{finding.seeds} seeds"
    at = f" at round {finding.rounds}" if finding.several else ""
    return f"{name_of_data(finding.data)} {points_of(finding)} points{at}, {seeds}"


def points_of(finding: Finding) -> str:
    """The mean difference with its sign; none where it is 0.0."""
    return signed(finding.difference.interval.mean)


def signed(points: float) -> str:
    """With its sign; none where it is 0.0."""
    return f"{points:+.1f}" if round(points, 1) else "0.0"


def compared(hypothesis: Hypothesis) -> str:
    """What is subtracted from what, so that a sign can be read; nothing where one arm is measured by itself."""
    more, less = hypothesis.more.arm, hypothesis.less.arm
    if hypothesis.difference or more == less:
        return hypothesis.difference
    names = dict(zip(ARMS, NAMES, strict=True)) | {NO_LABELS: "no labels"}
    return f"{names[more]} minus {names[less]}"
