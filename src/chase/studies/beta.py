"""The share of dormant samples that is awakened."""

from chase.studies.study import Arm, Study, StudyPart, scenes

VALUES = (0.2, 0.4, 0.6, 0.8, 1.0)

STUDY = Study(
    "beta",
    "CHASe with beta from 0.2 to 1 on CIFAR-10, with its inference cost (ReCo)",
    (
        StudyPart(
            scenes("cifar10", behaviour="ReCo"),
            tuple(
                Arm(f"beta = {beta:g}", {"strategy": "chase", "beta": beta}, "CHASe" if beta == 0.4 else "")
                for beta in VALUES
            ),
            against="beta = 0.4",
            figures=("inference-cost", "final-accuracy"),
        ),
    ),
    "The paper shows this as a figure without numbers; next to beta = 0.4, the paper's value, is its row for CHASe.",
)
