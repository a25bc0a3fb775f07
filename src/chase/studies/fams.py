"""Whether the randomness of subset sampling and awakening costs accuracy."""

from chase.studies.study import CHASE, NO_FREEZE, NO_SUBSET, Arm, Study, StudyPart, scenes

STUDY = Study(
    "fams",
    "CHASe without subset sampling (w/o S), also without freezing (w/o FAm), and complete (FAmS): "
    "MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            scenes("mnist", "cifar10", behaviour="ReCo"),
            (
                NO_SUBSET,
                NO_FREEZE,
                Arm("FAmS", CHASE.changes, CHASE.paper),
                Arm("subset alone", {"strategy": "chase", "freeze": False}),
            ),
            against="FAmS",
            figures=("inference-cost",),
        ),
    ),
    "Subset alone is an arm of ours.",
)
