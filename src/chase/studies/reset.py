"""Whether the learned model matters: EV with the learned against a random model each round."""

from chase.studies.study import Arm, Study, StudyPart, scenes

STUDY = Study(
    "reset",
    "EV with the learned model against a freshly drawn one each round, MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            scenes("mnist", "cifar10", behaviour="ReCo"),
            (Arm("learned", {"strategy": "ev"}, "EV"), Arm("random each round", {"strategy": "ev", "form": "reset"})),
            against="learned",
        ),
    ),
)
