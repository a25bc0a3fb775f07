"""Which samples the alignment loss aligns, and to which model."""

from chase.studies.study import Arm, Study, StudyPart, scenes

NAMES = {"local": "CDB-Local", "global": "CDB-Global", "both": "CDB"}
VALUES = (0.2, 0.4, 0.6, 0.8)


def part(mu: float) -> StudyPart:
    """The four alignments at one weight; without alignment the weight has no effect, so that run is shared."""
    arms = (
        Arm("w/o CDB", {"strategy": "ev", "track_ev": True}, "EV"),
        *(Arm(name, {"strategy": "chase", "align": align, "mu": mu}) for align, name in NAMES.items()),
    )
    figures = ("minimum-ev",) if mu == 0.4 else ()
    return StudyPart(scenes("cifar10", behaviour="ReCo", augment=False), arms, f"mu = {mu:g}", "w/o CDB", figures)


STUDY = Study(
    "cdb",
    "alignment none, local, global and both at mu 0.2, 0.4, 0.6, 0.8 on CIFAR-10, no augmentation; lowest mean EV",
    tuple(part(mu) for mu in VALUES),
    "The paper shows this as a figure without numbers; next to w/o CDB is its row for EV.",
    across=True,
)
