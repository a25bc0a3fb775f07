"""The weight of the alignment loss."""

from chase.studies.study import Arm, Study, StudyPart, scenes

VALUES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
IN_TABLES = (0.0, 0.1, 1.0)
"""Values that other tables of the paper give numbers for, on one data set or on both."""

STUDY = Study(
    "mu",
    "CHASe with mu from 0 to 1 on MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            scenes("mnist", "cifar10", behaviour="ReCo"),
            tuple(
                Arm(f"mu = {mu:g}", {"strategy": "chase", "mu": mu}, f"mu = {mu:g}" if mu in IN_TABLES else "")
                for mu in VALUES
            ),
            against="mu = 0",
            figures=("final-accuracy",),
        ),
    ),
    "The paper shows this as a figure without numbers; next to mu = 0 and the paper's mu are its "
    "rows for EV and CHASe.",
)
