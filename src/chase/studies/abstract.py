"""The abstract of ``why.md``: the question, and the answer in a few points.

Each sentence names its hypotheses and stands only where the runs decide them as the sentence says; its figures are
theirs. A point whose first sentence does not stand is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chase.studies.field import compared_with, rows_of
from chase.studies.hypotheses import EV, RANDOM
from chase.studies.hypothesis_tests import Finding
from chase.studies.overview import name_of_data
from chase.studies.results import StudyResult

QUESTION = """With the same number of labels the paper finds EV (epistemic variation: clients ask for the samples whose
predicted class changes most often during training) above random selection, and CHASe (EV with an alignment loss) above
EV. Do the methods come in that order here, and what decides it?
"""
HOLDS, FAILS, OPEN = "holds", "fails", "is open"


@dataclass(frozen=True)
class Sentence:
    """Words with the sizes of differences by hypothesis; ``{at}`` is the data set at ``{round}``."""

    text: str
    data: str
    when: Mapping[str, str]
    """What the runs must say to each hypothesis, all at the same round."""


LABELS = (
    Sentence(
        "**Who counts how much in the average decides whether bought labels help.** Where clients are weighted by "
        "labels, as in the paper's text, labels that they buy cost {H1:.1f} points ({at}; H1); with equal weights as "
        "many labels bring {H3:.1f} points (H3), and random selection gains {H2:.1f} (H2).",
        "mnist",
        {"H1": HOLDS, "H2": HOLDS, "H3": HOLDS},
    ),
    Sentence("With equal weights they bring {H3:.1f} points on {at} (H3).", "cifar10", {"H3": HOLDS}),
)
PULL = (
    Sentence(
        "**Weights by labels pull the model to the classes of the clients that label most.** With random selection it "
        "takes {H22:.1f} points more of the test samples for these classes than belong to them ({at}; H22); with equal "
        "weights it takes {H24:.1f} points fewer (H24).",
        "mnist",
        {"H22": HOLDS, "H24": HOLDS},
    ),
    Sentence(
        "EV pulls harder by {H23:.1f} points (H23) and has {H4:.1f} points less accuracy than random selection (H4). "
        "The pull was found in the runs that it is tested on.",
        "mnist",
        {"H23": HOLDS, "H4": FAILS},
    ),
)
SIGHT = (
    Sentence(
        "**With equal weights EV is ahead of random selection on CIFAR-10**, by {H5:.1f} points at round {round} (five "
        "classes per client; H5).",
        "cifar10",
        {"H5": HOLDS},
    ),
    Sentence("With weights by labels no difference is decided there (H4).", "cifar10", {"H5": HOLDS, "H4": OPEN}),
    Sentence(
        "On {at}, with two classes per client, no difference is decided with equal weights (H5).", "mnist", {"H5": OPEN}
    ),
    Sentence(
        "More than half of what the clients that label most ask for has an EV of 0 there, so that chance decides (H18, "
        "measured with weights by labels).",
        "mnist",
        {"H5": OPEN, "H18": HOLDS},
    ),
    Sentence(
        "On digits with two initial labels per client EV has {H6:.1f} points more than random selection (H6).",
        "digits",
        {"H6": HOLDS},
    ),
    Sentence("That it gains less where clients begin with many labels is not shown (H21).", "digits", {"H21": OPEN}),
)
ALIGNMENT = (
    Sentence(
        "**CHASe loses accuracy on CIFAR-10 when frozen samples awaken**: in the rounds just after, {H25:.1f} points "
        "more than EV (H25) and {H26:.1f} more than where every sample is aligned to the global model, as the authors' "
        "code does (H26; runs of {round} rounds, weights by labels). This too was found in the runs that it is tested "
        "on.",
        "cifar10",
        {"H25": HOLDS, "H26": HOLDS},
    ),
    Sentence("At their end no difference between CHASe and EV is decided (H8).", "cifar10", {"H25": HOLDS, "H8": OPEN}),
    Sentence(
        "On {at}, where EV has less than random selection with weights by labels, CHASe has {H9:.1f} points more than "
        "EV (H9).",
        "mnist",
        {"H9": HOLDS, "H4": FAILS},
    ),
    Sentence("With equal weights no gain over EV is decided on {at} (H10).", "cifar10", {"H10": OPEN}),
)
ORDER = (
    Sentence(
        "**The paper's order is not decided in the setting of its authors' code** ({at}, {seeds} seeds; a test "
        "needs six): EV is {H15:.1f} points from random selection (H15), CHASe {H16:.1f} from EV (H16).",
        "mnist",
        {"H15": OPEN, "H16": OPEN},
    ),
)
BOLD = re.compile(r"\*\*(.+?)\.?\*\*")
POINTS = (LABELS, PULL, SIGHT, ALIGNMENT, ORDER)


def abstract(found: Sequence[Finding], results: Sequence[StudyResult]) -> list[str]:
    """The parts of the page; nothing where no point stands."""
    answers = [" ".join(said) for point in POINTS if (said := [of_runs(sentence, found) for sentence in point])[0]]
    answers = [" ".join(text.split()) for text in answers] + later_methods(results)
    if not answers:
        return []
    return ["## Question and answer\n", QUESTION, "\n".join(f"{n}. {text}" for n, text in enumerate(answers, 1)) + "\n"]


def headlines(answers: Sequence[str]) -> str:
    """The first words of each answer, which stand in bold type, as a list; nothing without answers."""
    return "\n".join(f"{n}. {text}." for n, text in enumerate(BOLD.findall("\n".join(answers)), 1))


def of_runs(sentence: Sentence, found: Sequence[Finding]) -> str:
    """The sentence with its figures at the first round where all its hypotheses are as it says; nothing elsewhere."""
    own = [f for f in found if f.data == sentence.data and f.hypothesis.key in sentence.when]
    for rounds in sorted({f.rounds for f in own}):
        here = {f.hypothesis.key: f for f in own if f.rounds == rounds and state(f) == sentence.when[f.hypothesis.key]}
        if here.keys() == sentence.when.keys():
            sizes = {key: abs(f.difference.interval.mean) for key, f in here.items()}
            at = f"{name_of_data(sentence.data)} at round {rounds}"
            seeds = min(f.seeds for f in here.values())
            return sentence.text.format(at=at, round=rounds, seeds=seeds, **sizes)
    return ""


def state(finding: Finding) -> str:
    """What the runs say, in one of three words; not one of them where nothing ran."""
    if finding.holds or finding.fails:
        return HOLDS if finding.holds else FAILS
    return OPEN if finding.open or finding.provisional else ""


def later_methods(results: Sequence[StudyResult]) -> list[str]:
    """What study ``strong`` says of the other published methods: against random selection, and EV against them."""
    rows = rows_of(results)
    said = compared_with(RANDOM, rows)
    if not any(said.values()):
        return []
    better = list(dict.fromkeys(f.difference.label for f in said["above"] if f.difference.label != EV))
    data = " and ".join(dict.fromkeys(name_of_data(row[0]) for row in rows))
    which = "some beat random selection" if better else "none is shown to beat random selection"
    text = f"**Of the other published methods {which}** ({data}, weights by labels)"
    text += f": {', '.join(better)}." if better else "."
    beaten = [f"{f.difference.label} ({f.where})" for f in compared_with(EV, rows)["below"]]
    return [text + (f" EV beats {', '.join(beaten)}." if beaten else "") + " The results page has them in a table."]
