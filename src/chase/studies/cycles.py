"""Traditional federated active learning: a fresh start per cycle, one request per cycle."""

from chase.studies.strong import KSAS, LOGO
from chase.studies.study import EV, Scene, Study, StudyPart

LENGTHS = (25, 50, 75, 100)
CYCLES = 8
"""Cycles of every length, so that each makes as many requests: seven."""

STUDY = Study(
    "cycles",
    "EV, KAFAL's score and LoGo in cycles of 25, 50, 75, 100 rounds with a fresh start, adaptive and fixed budget",
    (
        StudyPart(
            tuple(
                Scene("cifar10", {"form": "cycles", "cycle_rounds": length, "cycle_budget": budget}, CYCLES * length)
                for budget in ("adaptive", "fixed")
                for length in LENGTHS
            ),
            (EV, KSAS, LOGO),
            against="EV",
            figures=("labelled-share",),
        ),
    ),
    "Every length has eight cycles, so seven requests; --rounds is that of the shortest and grows with the length. "
    "Curves over the labelled share are taken at the end of each cycle and smoothed over three cycles.",
)
