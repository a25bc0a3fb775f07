"""What crosses between server and client, and nothing else does.

One message each way a round. A ``ClientUpdate`` carries no sample, no id of a sample and no label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chase.core.weights import Arrays, Weights

ClientId = int
"""Clients are numbered; averaging and every table go in this order."""

FORMAT = 1
"""Version of the messages and of everything that is read back."""


@dataclass(frozen=True)
class RoundOrder:
    """All that goes down to a client."""

    run: str
    """Which run this is: repeated orders of one run are answered from what was committed."""
    round: int
    """Rounds count from 1."""
    seed: int
    weights: Weights
    """The global model."""
    phase: str = "turn"
    """What the client does besides training: "turn" (ask when its calendar says so), "train" (only train)
    or "select" (ask now, whatever the calendar says)."""
    fresh: bool = False
    """The model starts anew (first round, or a reset): alignment has no previous model to hold on to."""
    extras: Arrays = field(default_factory=dict)
    """Arrays that a method declares, such as the state of a loss-prediction module."""


@dataclass(frozen=True)
class ClientUpdate:
    """All that comes up from a client."""

    client: ClientId
    round: int
    weights: Weights
    num_labeled: int
    metrics: Mapping[str, float]
    extras: Arrays = field(default_factory=dict)
