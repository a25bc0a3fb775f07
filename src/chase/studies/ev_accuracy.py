"""Mean EV against accuracy, for every method."""

from chase.studies.study import METHODS, Arm, Study, StudyPart, scenes

STUDY = Study(
    "ev-accuracy",
    "mean EV against accuracy for all methods, CIFAR-10 (AbCo)",
    (
        StudyPart(
            scenes("cifar10", behaviour="AbCo"),
            tuple(Arm(arm.label, {**arm.changes, "track_ev": True}) for arm in METHODS),
            against="FedRandom",
            figures=("ev-accuracy",),
        ),
    ),
    "EV is tracked for all methods; the seconds of these runs include that, their inferences do not.",
)
