"""What accuracy costs: seconds and inferences of every method, and what freezing and subset sampling save."""

from chase.studies.study import CHASE, IMAGES, METHODS, NO_FREEZE, NO_SUBSET, Arm, Study, StudyPart, scenes

STUDY = Study(
    "cost",
    "accuracy against seconds and inferences (CIFAR-10); inference cost without FAm, with FAm, with FAmS",
    (
        StudyPart(scenes("cifar10", behaviour="ReCo"), METHODS, "Accuracy and cost", "FedRandom", ("accuracy-cost",)),
        StudyPart(
            scenes(*IMAGES, behaviour="ReCo"),
            (
                Arm("no FAm", NO_FREEZE.changes, NO_FREEZE.paper),
                Arm("FAm", NO_SUBSET.changes, NO_SUBSET.paper),
                Arm("FAmS", CHASE.changes, CHASE.paper),
            ),
            "Inference cost of freezing, awakening and subset sampling",
            "no FAm",
            ("inference-cost",),
        ),
    ),
)
