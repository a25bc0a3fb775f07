"""Next-character prediction by speaking role."""

from chase.studies.study import RANDOM, Arm, Study, StudyPart, scenes

STUDY = Study(
    "shakespeare",
    "random, entropy, and CHASe with mu 0 and 0.3 on Shakespeare by role; classes by role (ReCo)",
    (
        StudyPart(
            scenes("shakespeare", behaviour="ReCo"),
            (
                RANDOM,
                Arm("FedEntropy", {"strategy": "entropy"}),
                Arm("CHASe (mu = 0)", {"strategy": "chase", "mu": 0.0}),
                Arm("CHASe (mu = 0.3)", {"strategy": "chase", "mu": 0.3}),
            ),
            against="FedRandom",
            figures=("roles-by-classes",),
        ),
    ),
    "The paper shows this as a figure without numbers.",
)
