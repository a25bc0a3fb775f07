"""Other ways to score with EV."""

from chase.studies.study import Arm, Part, Study, scenes

STUDY = Study(
    "ev-variants",
    "EV, EV with distinct classes (number-class), EV with global variation (+gev), CIFAR-10, CIFAR-100 (ReCo)",
    (
        Part(
            scenes("cifar10", "cifar100", behaviour="ReCo"),
            (
                Arm("EV", {"strategy": "ev"}, "EV (gev table)"),
                Arm("number-class", {"strategy": "number-class"}),
                Arm("EV + GEV", {"strategy": "+gev"}, "EV + GEV"),
            ),
            against="EV",
        ),
    ),
    "Number-class minus EV in the paper, CIFAR-10, rounds 125, 150, 175, 200: -0.2, 0.0, 0.2, -0.1 points.",
)
