"""The weight of the alignment loss."""

from chase.studies.study import Arm, Part, Study, scenes

VALUES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)

STUDY = Study(
    "mu",
    "CHASe with mu from 0 to 1 on MNIST, CIFAR-10 (ReCo)",
    (
        Part(
            scenes("mnist", "cifar10", behaviour="ReCo"),
            tuple(Arm(f"mu = {mu:g}", {"strategy": "chase", "mu": mu}) for mu in VALUES),
            against="mu = 0",
            figures=("final-accuracy",),
        ),
    ),
    "The paper shows this as a figure without numbers.",
)
