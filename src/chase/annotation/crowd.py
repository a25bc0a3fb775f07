"""Simulated people: they differ in skill, take some classes for others, and get tired.

What a person says of a sample depends on the seed, the person, the sample and how many they have answered since their
last rest, and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import SettingsError
from chase.core.randomness import rng


@dataclass(frozen=True)
class SimulatedPerson:
    """Somebody who labels."""

    name: str
    skill: float = 0.9
    """Chance of a right answer when rested."""
    confusion: float = 0.0
    """Share of the wrong answers that go to the one class which this person takes the right one for."""
    fatigue: float = 0.0
    """Skill lost after ``stamina`` answers without a rest; it falls in a straight line and no further."""
    stamina: int = 100

    def __post_init__(self) -> None:
        for name in ("skill", "confusion", "fatigue"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} of a simulated person must be from 0 to 1, not {getattr(self, name)}")
        if self.stamina < 1:
            raise SettingsError(f"stamina of a simulated person must be at least 1, not {self.stamina}")

    def skill_after(self, answered: int) -> float:
        """Chance of a right answer after so many without a rest."""
        return max(0.0, self.skill - self.fatigue * min(1.0, answered / self.stamina))

    def mistaken_for(self, num_classes: int, seed: int) -> NDArray[np.int64]:
        """The class that each class is taken for, never itself."""
        shift = rng(seed, "confusion", self.name).integers(1, num_classes, size=num_classes)
        return (np.arange(num_classes) + shift) % num_classes

    def says(self, sample: int, truth: int, num_classes: int, seed: int, answered: int = 0) -> int:
        """The answer to a sample."""
        draw = rng(seed, "person", self.name, sample)
        if num_classes < 2 or draw.random() < self.skill_after(answered):
            return truth
        if draw.random() < self.confusion:
            return int(self.mistaken_for(num_classes, seed)[truth])
        return (truth + int(draw.integers(1, num_classes))) % num_classes
