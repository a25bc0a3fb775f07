"""Federation against every client alone."""

from chase.studies.study import Arm, Study, StudyPart, scenes

STUDY = Study(
    "isolated",
    "CHASe in a federation against CHASe in every client alone, MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            scenes("mnist", "cifar10", behaviour="ReCo"),
            (
                Arm("federation", {"strategy": "chase"}, "CHASe"),
                Arm("isolated", {"strategy": "chase", "form": "isolated"}, "isolated"),
            ),
            against="federation",
        ),
    ),
    "Isolated: the unweighted mean of the clients' accuracies on the full test set. With two classes per client it "
    "cannot exceed 20 %, so the paper's 35 % on MNIST is not comparable with ours.",
)
