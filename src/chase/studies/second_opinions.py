"""When second opinions pay: simulated teams of different skill, with class confusion and with fatigue."""

from chase.studies.study import Arm, Scene, Study, StudyPart

TEAM = {
    "learner": "closed-form",
    "filters": 40,
    "fit_passes": 2,
    "strategy": "balanced-margin",
    "annotator": "team",
    "clients": 5,
    "partition": "iid",
    "initial_labels": 0.014,
    "behaviour": "free",
    "budget": 5,
    "eval_every": 3,
}


def scene(name: str, **changes: float) -> Scene:
    """A team that labels digits."""
    return Scene("digits", {**TEAM, **changes}, rounds=10, name=f"digits, {name}")


STUDY = Study(
    "second-opinions",
    "every answer on a new sample, against an ActiveLab score that decides between a new sample and a second opinion, "
    "with simulated teams of five people per client, or two who get tired; digits, 225 answers",
    (
        StudyPart(
            (
                scene("skill 0.95", skill=0.95, skill_spread=0.05),
                scene("skill 0.8", skill=0.8),
                scene("skill 0.65", skill=0.65),
                scene("skill 0.5", skill=0.5),
                scene("unequal skill 0.4 to 1", skill=0.7, skill_spread=0.3),
                scene("skill 0.7, class confusion", skill=0.7, confusion=0.9),
                scene("two people, skill 0.9, fatigue 0.6", skill=0.9, skill_spread=0.05, people=2, fatigue=0.6),
                scene("two people, skill 0.64, rested", skill=0.64, skill_spread=0.05, people=2),
            ),
            (
                Arm("new samples only", {"second_opinions": 0}),
                Arm("ActiveLab decides", {"second_opinions": 5}),
            ),
            against="new samples only",
        ),
    ),
    "Labels are all answers, second opinions among them. Closed-form learner; five clients that hold all classes. "
    "People rest after 20 answers. Five share 45 answers, so each gives 9 and is hardly tired; two give 22 each and go "
    "through all of it: from skill 0.9 down to 0.3, 0.64 on average. The last scene has that average without fatigue.",
)
