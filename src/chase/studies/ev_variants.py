"""Other ways to score with EV."""

from chase.studies.study import RANDOM, Arm, Study, StudyPart, scenes

STUDY = Study(
    "ev-variants",
    "random, EV, EV with distinct classes (number-class), EV with global variation (+gev), CIFAR-10, CIFAR-100 (ReCo)",
    (
        StudyPart(
            scenes("cifar10", "cifar100", behaviour="ReCo"),
            (
                RANDOM,
                Arm("EV", {"strategy": "ev"}, "EV (gev table)"),
                Arm("number-class", {"strategy": "number-class"}),
                Arm("EV + GEV", {"strategy": "+gev"}, "EV + GEV"),
            ),
            against="EV",
        ),
    ),
    "Of number-class the paper gives only the difference from EV.",
)
