"""The hypotheses of why.md: which arm is claimed to have the higher accuracy than which, and on which data.

``family`` says which of them are tested together: those of one question on one data set, at each length of runs by
itself. It counts all of them, run or not, so that no p rises because other comparisons finish (docs/decisions/0135).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chase.report.runs import RunData
from chase.studies.few_labels import FEW, MANY, SMALL
from chase.studies.observations import above_even, above_half, pull, woken_change

Changed = Mapping[str, Any]


@dataclass(frozen=True)
class Where:
    """An arm under settings of its scene."""

    arm: str
    settings: Changed = field(default_factory=dict)


@dataclass(frozen=True)
class Hypothesis:
    """``more`` is claimed to have the higher accuracy than ``less``, on each of the data sets."""

    key: str
    text: str
    brief: str
    """The same in a few words, for a sentence that names several."""
    more: Where
    less: Where
    data: tuple[str, ...] = ("mnist", "cifar10")
    measure: Callable[[RunData], float] | None = None
    """What is compared where it is not accuracies; claimed to be above 0 where ``less`` is ``more``."""
    beyond: tuple[Where, Where] | None = None
    """A second pair: the difference is claimed to be larger than that one."""
    difference: str = ""
    """What is subtracted from what, where the arms alone do not say it."""
    question: str = ""
    """What it helps to answer: the comparisons of one question on one data set are tested together."""


DEFAULTS: Changed = {
    "partition": "classes",
    "image_size": 0,
    "behaviour": "ReCo",
    "data_share": 1.0,
    "normalisation": "authors",
    "client_weights": "labelled",
}
"""What a hypothesis means where it does not say otherwise: the paper's setting."""

EQUAL: Changed = {"client_weights": "equal"}
SHUFFLED: Changed = {"client_weights": "shuffled"}
THEIR_CODE: Changed = {"partition": "shards-reference", "image_size": 64, **SHUFFLED}
STATISTICS: Changed = {"normalisation": "statistics"}
ON_DIGITS: Changed = {**SMALL, **STATISTICS}
FEW_LABELS: Changed = {**ON_DIGITS, "initial_labels": FEW}
MANY_LABELS: Changed = {**ON_DIGITS, "initial_labels": MANY}
NONE_CHANGED: Changed = {}

BOTH = ("mnist", "cifar10")
RANDOM, EV, CHASE, ALL_GLOBAL, NO_LABELS = "FedRandom", "EV", "CHASe", "CHASe, all-global", "no labels"


def _hypothesis(
    key: str,
    text: str,
    brief: str,
    arms: tuple[str, str],
    settings: tuple[Changed, Changed],
    data: tuple[str, ...],
    difference: str = "",
) -> Hypothesis:
    more, less = (Where(*where) for where in zip(arms, settings, strict=True))
    return Hypothesis(key, text, brief, more, less, data, difference=difference)


def _same(key: str, text: str, brief: str, arms: tuple[str, str], settings: Changed, *data: str) -> Hypothesis:
    """Two arms under the same settings."""
    return _hypothesis(key, text, brief, arms, (settings, settings), data)


LABELS = "What bought labels are worth"
SELECTION = "Whether EV beats random selection"
ALIGNMENT = "What alignment adds"
CODE = "What the authors' code does differently"
INPUTS = "What the scale of the inputs does"
SIGHT = "What EV can see"
PULL = "To whose classes the model is pulled"
WAKING = "What happens when frozen samples awaken"


def _on(question: str, *hypotheses: Hypothesis) -> tuple[Hypothesis, ...]:
    return tuple(replace(hypothesis, question=question) for hypothesis in hypotheses)


_LABELS = _on(
    LABELS,
    _same(
        "H1",
        "With clients weighted by labels, as in the paper, bought labels do harm: no labels beat random selection",
        "bought labels do harm where clients are weighted by labels",
        (NO_LABELS, RANDOM),
        NONE_CHANGED,
        *BOTH,
    ),
    _hypothesis(
        "H2",
        "The weights are the reason: random selection is better with equal weights than with weights by labels",
        "equal weights are better than weights by labels",
        (RANDOM, RANDOM),
        (EQUAL, NONE_CHANGED),
        BOTH,
        "equal weights minus weights by labels",
    ),
    _same(
        "H3",
        "With equal weights, bought labels help: random selection beats no labels",
        "bought labels help with equal weights",
        (RANDOM, NO_LABELS),
        EQUAL,
        *BOTH,
    ),
    _hypothesis(
        "H20",
        "On digits too, random selection is better with equal weights than with weights by labels",
        "equal weights are better on digits too",
        (RANDOM, RANDOM),
        ({**EQUAL, **STATISTICS}, STATISTICS),
        ("digits",),
        "equal weights minus weights by labels",
    ),
)
_SELECTION = _on(
    SELECTION,
    _same(
        "H4",
        "With weights by labels, EV beats random selection",
        "EV beats random selection with weights by labels",
        (EV, RANDOM),
        NONE_CHANGED,
        *BOTH,
    ),
    _same(
        "H5",
        "With equal weights, EV beats random selection",
        "EV beats random selection with equal weights",
        (EV, RANDOM),
        EQUAL,
        *BOTH,
    ),
    _same(
        "H6",
        "Where labels count (digits, two initial labels per client), EV beats random selection",
        "EV beats random selection where clients begin with few labels",
        (EV, RANDOM),
        FEW_LABELS,
        "digits",
    ),
    _same(
        "H7",
        "Where clients begin with many labels (digits, 30 %), EV beats random selection",
        "EV beats random selection where clients begin with many labels",
        (EV, RANDOM),
        MANY_LABELS,
        "digits",
    ),
    Hypothesis(
        "H21",
        "EV gains more where clients begin with few labels than where they begin with many (digits)",
        "EV gains more where clients begin with few labels than with many",
        Where(EV, FEW_LABELS),
        Where(RANDOM, FEW_LABELS),
        ("digits",),
        difference="EV minus random with few labels, minus the same with many",
        beyond=(Where(EV, MANY_LABELS), Where(RANDOM, MANY_LABELS)),
    ),
)
_ALIGNMENT = _on(
    ALIGNMENT,
    _same(
        "H8",
        "Alignment at mu = 1 costs accuracy: EV beats CHASe, weights by labels",
        "alignment at mu = 1 costs accuracy",
        (EV, CHASE),
        NONE_CHANGED,
        "cifar10",
    ),
    _same(
        "H9",
        "Alignment at mu = 0.1 adds to EV: CHASe beats EV, weights by labels",
        "alignment at mu = 0.1 adds to EV with weights by labels",
        (CHASE, EV),
        NONE_CHANGED,
        "mnist",
    ),
    _same(
        "H10",
        "With equal weights, alignment adds to EV: CHASe beats EV",
        "alignment adds to EV with equal weights",
        (CHASE, EV),
        EQUAL,
        *BOTH,
    ),
    _same(
        "H11",
        "Aligning every sample to the global model (the authors' code) beats the paper's easy and hard split, weights "
        "by labels",
        "aligning every sample to the global model beats the paper's split with weights by labels",
        (ALL_GLOBAL, CHASE),
        NONE_CHANGED,
        *BOTH,
    ),
    _same(
        "H12",
        "With equal weights, aligning every sample to the global model beats the paper's easy and hard split",
        "aligning every sample to the global model beats the paper's split with equal weights",
        (ALL_GLOBAL, CHASE),
        EQUAL,
        *BOTH,
    ),
)
_CODE = _on(
    CODE,
    _hypothesis(
        "H13",
        "Shuffled weights (the authors' code) are better than weights by labels, for random selection",
        "shuffled weights, as in the authors' code, beat weights by labels",
        (RANDOM, RANDOM),
        (SHUFFLED, NONE_CHANGED),
        ("mnist",),
        "shuffled weights minus weights by labels",
    ),
    _same(
        "H14",
        "With shuffled weights, EV beats random selection",
        "EV beats random selection with shuffled weights",
        (EV, RANDOM),
        SHUFFLED,
        "mnist",
    ),
    _same(
        "H15",
        "With 64x64 pixels, shared shards and shuffled weights, as in the authors' code, EV beats random selection",
        "EV beats random selection with pixels, shards and weights of the authors' code",
        (EV, RANDOM),
        THEIR_CODE,
        "mnist",
    ),
    _same(
        "H16",
        "With pixels, shards, weights and alignment of the authors' code, CHASe beats EV",
        "CHASe beats EV with pixels, shards, weights and alignment of the authors' code",
        (ALL_GLOBAL, EV),
        THEIR_CODE,
        "mnist",
    ),
)
_INPUTS = _on(
    INPUTS,
    _hypothesis(
        "H17",
        "Normalising by the data set's own mean and deviation gives a higher accuracy than the authors' 0.5 and 0.5",
        "normalising CIFAR-10 by its own mean and deviation raises accuracy",
        (RANDOM, RANDOM),
        (STATISTICS, NONE_CHANGED),
        ("cifar10",),
        "own values minus the authors'",
    ),
)
_SIGHT = _on(
    SIGHT,
    Hypothesis(
        "H18",
        "EV has little to go by at clients of two classes: more than half of what the most willing clients ask for has "
        "an EV of 0 (points above one half)",
        "EV is 0 for more than half of what the most willing clients ask for",
        Where(EV),
        Where(EV),
        ("mnist",),
        above_half,
        difference="points above one half of the picks",
    ),
    Hypothesis(
        "H19",
        "What is left to learn lies between clients: errors between classes that no client holds together are more "
        "frequent than such pairs (points)",
        "the errors left lie between classes that no client holds together",
        Where(EV),
        Where(EV),
        ("mnist",),
        above_even,
        difference="share of the errors minus share of the pairs",
    ),
)
_PULL = _on(
    PULL,
    Hypothesis(
        "H22",
        "Weights by labels pull the model to the classes of the most willing clients: with random selection it takes "
        "more samples for these classes than belong to them (points)",
        "weights by labels pull the model to the classes of the most willing clients",
        Where(RANDOM),
        Where(RANDOM),
        ("mnist",),
        pull,
        difference="taken for these classes minus belonging to them",
    ),
    Hypothesis(
        "H23",
        "EV pulls harder than random selection, weights by labels (points)",
        "EV pulls the model harder to these classes than random selection",
        Where(EV),
        Where(RANDOM),
        ("mnist",),
        pull,
        difference="pull of EV minus pull of random",
    ),
    Hypothesis(
        "H24",
        "With random selection, weights by labels pull harder than equal weights (points)",
        "weights by labels pull harder than equal weights",
        Where(RANDOM),
        Where(RANDOM, EQUAL),
        ("mnist",),
        pull,
        difference="pull with weights by labels minus pull with equal weights",
    ),
)


def _waking(key: str, better: str, name: str, weights: str, settings: Changed) -> Hypothesis:
    """Where mu is 1: the paper's split against an arm that freezes and awakens as much."""
    return Hypothesis(
        key,
        f"When frozen samples awaken, CHASe with the paper's easy and hard split at mu = 1 loses accuracy against "
        f"{name}, {weights}",
        f"awakened samples cost CHASe accuracy against {name} with {weights}",
        Where(better, settings),
        Where(CHASE, settings),
        ("cifar10",),
        woken_change,
        difference=f"change of {name} minus change of CHASe",
    )


_WAKING = _on(
    WAKING,
    _waking("H25", EV, "EV", "weights by labels", NONE_CHANGED),
    _waking("H26", ALL_GLOBAL, "all-global alignment", "weights by labels", NONE_CHANGED),
    _waking("H27", EV, "EV", "equal weights", EQUAL),
    _waking("H28", ALL_GLOBAL, "all-global alignment", "equal weights", EQUAL),
)
HYPOTHESES = (*_LABELS, *_SELECTION, *_ALIGNMENT, *_CODE, *_INPUTS, *_SIGHT, *_PULL, *_WAKING)
"""In the order of the page."""


def family(hypothesis: Hypothesis, data: str) -> tuple[str, str]:
    """What is tested together: the comparisons of a question on a data set."""
    return hypothesis.question, data


def family_size(key: tuple[str, str]) -> int:
    """How many comparisons a family has, run or not."""
    return sum(family(hypothesis, data) == key for hypothesis in HYPOTHESES for data in hypothesis.data)
