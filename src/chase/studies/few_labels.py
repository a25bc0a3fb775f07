"""Whether EV pays where labels count: few initial labels against many, on small data with many seeds."""

from chase.studies.study import EV, NO_LABELS, RANDOM, Scene, Study, StudyPart

SMALL = {"behaviour": "free", "budget": 2}
FEW, MANY = 0.014, 0.3

STUDY = Study(
    "few-labels",
    "random, EV and no bought labels where clients begin with few labels (1.4 %) and with many (30 %), digits, two "
    "labels per client and round, 20 rounds",
    (
        StudyPart(
            (
                Scene("digits", {**SMALL, "initial_labels": FEW}, rounds=20),
                Scene("digits", {**SMALL, "initial_labels": MANY}, rounds=20),
            ),
            (RANDOM, EV, NO_LABELS),
            against="FedRandom",
            figures=("zero-ev-picks",),
        ),
    ),
    "All clients label equally much, so that selection alone differs. 1.4 % are two labels per client.",
)
