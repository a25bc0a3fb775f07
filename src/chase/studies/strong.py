"""EV against the strong baselines KAFAL and LoGo, without extra losses as the paper ran them, and later methods."""

from chase.studies.study import EV, RANDOM, Arm, Scene, Study, StudyPart

KSAS = Arm("KAFAL (KSAS)", {"strategy": "ksas"})
LOGO = Arm("LoGo", {"strategy": "logo-chase"})

FEAL = Arm("FEAL", {"strategy": "feal"})
FAIRFAL = Arm("FairFAL", {"strategy": "fairfal"})
IFAL = Arm("IFAL", {"strategy": "ifal"})

DATA, SPREAD = ("mnist", "cifar10"), {"partition": "dirichlet", "alpha": 0.1}

STUDY = Study(
    "strong",
    "random and EV against KAFAL's score, LoGo, FEAL, FairFAL and IFAL, no extra losses: accuracy and seconds on "
    "MNIST, CIFAR-10 (ReCo), by classes and by Dirichlet(0.1), 60 rounds",
    (
        StudyPart(
            (
                *(Scene(data, {"behaviour": "ReCo"}, rounds=60) for data in DATA),
                *(Scene(data, {"behaviour": "ReCo", **SPREAD}, rounds=60) for data in DATA),
            ),
            (RANDOM, EV, KSAS, LOGO, FEAL, FAIRFAL, IFAL),
            against="EV",
            figures=("seconds-per-round", "class-balance"),
        ),
    ),
    "The paper has EV, KAFAL and LoGo as a figure; FEAL, FairFAL and IFAL came later. FairFAL was published with "
    "clients by Dirichlet(0.1) on CIFAR-10, FEAL with the four clients of Fed-ISIC, which is not part of this study. "
    "All train by cross-entropy alone: what their authors add to training is left out.",
)
