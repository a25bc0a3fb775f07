"""What EV and the alignment loss each add: random selection, EV, the whole of CHASe."""

from chase.studies.study import CHASE, EV, IMAGES, RANDOM, Study, StudyPart, scenes

STUDY = Study(
    "ablation",
    "random selection, EV, and EV with the alignment loss, on the four image sets (ReCo)",
    (StudyPart(scenes(*IMAGES, behaviour="ReCo"), (RANDOM, EV, CHASE), against="FedRandom"),),
)
