"""What a study is: what varies, on what data, and what of the paper stands beside it.

A study has parts; a part runs every arm (a method or a variant) in every scene (a data set and its
circumstances) with every seed. Each such run is a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chase.settings import presets

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """One method or variant: settings on top of a preset's."""

    label: str
    changes: Changes
    paper: str = ""
    """The name of the paper's row that stands beside it, if there is one."""


@dataclass(frozen=True)
class Scene:
    """A preset under some circumstances."""

    preset: str
    changes: Changes = field(default_factory=dict)
    rounds: int = 0
    """Rounds at full length where the preset's do not fit (0 = the preset's)."""
    name: str = ""
    """A short name, where what is changed would make too long a one."""

    @property
    def in_cycles(self) -> bool:
        """Whether its runs are in cycles, so that their rounds follow the length of a cycle."""
        return bool(self.changes.get("form") == "cycles")

    @property
    def label(self) -> str:
        """Its name, or the preset, a file by its bare name, and what is changed in it."""
        if self.name:
            return self.name
        name = self.preset if self.preset in presets() else Path(self.preset).stem
        return ", ".join([name, *(said(key, value) for key, value in self.changes.items())])


def said(key: str, value: Any) -> str:
    """A changed setting in words."""
    if key in ("behaviour", "partition"):
        return "IID" if value == "iid" else str(value)
    words = {"augment": "augmentation" if value else "no augmentation", "form": f"{value}"}
    words |= {"client_weights": f"{value} client weights", "normalisation": f"normalisation {value}"}
    words |= {"image_size": f"{value}x{value} pixels"}
    words |= {"cycle_rounds": f"{value} rounds per cycle", "cycle_budget": f"{value} budget"}
    return words.get(key, f"{key} {value}")


@dataclass(frozen=True)
class StudyPart:
    """Arms that are compared with each other, scene by scene."""

    scenes: tuple[Scene, ...]
    arms: tuple[Arm, ...]
    title: str = ""
    against: str = ""
    """The label of the arm that the others are compared with; empty compares with none."""
    figures: tuple[str, ...] = ()
    """Figures beyond those that every report has, by name."""

    def on(self, presets: tuple[str, ...]) -> StudyPart:
        """The same part on other data, under the circumstances that it knows for that data or else in general."""
        chosen: dict[str, Scene] = {}
        for preset in presets:
            own = [scene for scene in self.scenes if scene.preset == preset]
            for scene in own or [Scene(preset, scene.changes, scene.rounds) for scene in self.scenes]:
                chosen.setdefault(scene.label, scene)
        return replace(self, scenes=tuple(chosen.values()))

    def with_no_labels(self) -> StudyPart:
        """The same part with an arm that buys no labels, unless it has that arm."""
        return self if NO_LABELS in self.arms else replace(self, arms=(*self.arms, NO_LABELS))


@dataclass(frozen=True)
class Study:
    """One experiment of the paper."""

    name: str
    about: str
    parts: tuple[StudyPart, ...]
    note: str = ""
    """What a reader of the results must know."""
    across: bool = False
    """Whether the parts are steps of one quantity, so that a figure shows the accuracy over it."""


def scenes(*presets: str, **changes: Any) -> tuple[Scene, ...]:
    """Several presets under the same circumstances."""
    return tuple(Scene(preset, changes) for preset in presets)


RANDOM = Arm("FedRandom", {"strategy": "random"}, "FedRandom")
EV = Arm("EV", {"strategy": "ev"}, "EV")
CHASE = Arm("CHASe", {"strategy": "chase"}, "CHASe")
NO_LABELS = Arm("no labels", {"strategy": "random", "budget": 0})
"""Nobody is asked: what the initial labels alone are worth. Any study has it on request (``--no-labels``)."""
NO_SUBSET = Arm("w/o S", {"strategy": "chase", "subset": False}, "w/o S")
NO_FREEZE = Arm("w/o FAm", {"strategy": "chase", "freeze": False, "subset": False}, "w/o FAm")
BASELINES = (
    RANDOM,
    Arm("FedEntropy", {"strategy": "entropy"}, "FedEntropy"),
    Arm("FAL(Entropy)", {"strategy": "entropy", "model": "global"}, "FAL(Entropy)"),
    Arm("FedCoreset", {"strategy": "coreset"}, "FedCoreset"),
    Arm("FAL(Coreset)", {"strategy": "coreset", "model": "global"}, "FAL(Coreset)"),
    Arm("FedLL4AL", {"strategy": "ll4al"}, "FedLL4AL"),
    Arm("FAL(LL4AL)", {"strategy": "ll4al", "model": "global"}, "FAL(LL4AL)"),
)
"""The paper's rivals, as it names them."""
METHODS = (*BASELINES, EV, CHASE)
IMAGES = ("mnist", "emnist", "cifar10", "cifar100")
