"""Why strategies win or lose in the paper's setting: what labels are worth, and who decides the average."""

from chase.studies.study import CHASE, EV, NO_LABELS, RANDOM, Arm, Scene, Study, StudyPart

ALL_GLOBAL = Arm("CHASe, all-global", {"strategy": "chase", "align": "all-global"})
ARMS = (RANDOM, EV, CHASE, ALL_GLOBAL, NO_LABELS)

STUDY = Study(
    "why",
    "random, EV, CHASe (alignment as in the paper and as in the authors' code) and no bought labels, clients weighted "
    "by labels and equally, MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            tuple(
                Scene(preset, {"behaviour": "ReCo", "client_weights": weights})
                for preset in ("mnist", "cifar10")
                for weights in ("labelled", "equal")
            ),
            ARMS,
            against="FedRandom",
            figures=("final-accuracy", "chance-picks", "zero-ev-picks", "largest-share", "class-balance"),
        ),
    ),
    "No labels: the initial labels only; nobody is asked. All-global aligns every watched sample to the global model, "
    "which is what the authors' code does.",
)
