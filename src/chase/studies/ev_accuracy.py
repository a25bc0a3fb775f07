"""Mean EV against accuracy, for every method."""

from chase.studies.study import METHODS, Arm, Study, StudyPart, scenes

OBSERVED = 200
"""Samples of each client on which EV is observed: the same for all methods of a seed."""

STUDY = Study(
    "ev-accuracy",
    "mean EV against accuracy for all methods, CIFAR-10 (AbCo)",
    (
        StudyPart(
            scenes("cifar10", behaviour="AbCo"),
            tuple(Arm(arm.label, {**arm.changes, "observe_ev": OBSERVED}) for arm in METHODS),
            against="FedRandom",
            figures=("ev-accuracy",),
        ),
    ),
    "EV is the mean over the same samples for all methods: 200 of each client's own, drawn once and kept, "
    "labelled or not. The seconds of these runs include that, their inferences do not.",
)
