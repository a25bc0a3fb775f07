"""EV against the strong baselines KAFAL and LoGo, all without extra losses, as the paper ran them."""

from chase.studies.study import EV, Arm, Study, StudyPart, scenes

KSAS = Arm("KAFAL (KSAS)", {"strategy": "ksas"})
LOGO = Arm("LoGo", {"strategy": "logo-chase"})

STUDY = Study(
    "strong",
    "EV against KAFAL's score and LoGo, no extra losses: accuracy and seconds on MNIST, CIFAR-10 (ReCo)",
    (
        StudyPart(
            scenes("mnist", "cifar10", behaviour="ReCo"), (EV, KSAS, LOGO), against="EV", figures=("seconds-a-round",)
        ),
    ),
)
