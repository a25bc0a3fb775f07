"""What crosses between server and client, and nothing else does.

One message each way a round. A ``ClientUpdate`` carries no sample, no id of a sample and no label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from chase.core.weights import Arrays, Weights, digest

ClientId = int
"""Clients are numbered; averaging and every table go in this order."""

FORMAT = 1
"""Version of the messages and of everything that is read back."""

JUDGED_BY = "judged_by_"
"""Prefix of an update's metrics that count the requests which each model decided; a federation's sites send none."""


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
    start: Weights | None = None
    """Where training begins, if not at the global model: a fresh start, which selection does not see."""
    track: bool = True
    """Whether this round is tracked: in cycles only the last round of each is."""
    extras: Arrays = field(default_factory=dict)
    """Arrays that a method declares, such as a loss-prediction module; ``start.``: where those begin again."""
    allowances: Mapping[ClientId, int] | None = None
    """How many samples each client may ask for in this round, where a total budget limits it."""

    def allowance(self, client: ClientId, usual: int) -> int:
        """How many samples a client may ask for that would usually ask for ``usual``."""
        return usual if self.allowances is None else min(usual, self.allowances.get(client, 0))

    def fingerprint(self) -> str:
        """What the order asks for, as a digest: an order is repeated only if it has run, round and this in common.

        Allowances are not part of it: they are reckoned anew by a server that was restarted, and questions that were
        asked cannot be taken back.
        """
        asked = f"{self.run} {self.round} {self.seed} {self.phase} {self.fresh} {self.track}"
        parts = (self.weights, {} if self.start is None else self.start, self.extras)
        return hashlib.sha256(" ".join([asked, *map(digest, parts)]).encode()).hexdigest()

    @property
    def fresh(self) -> bool:
        """The model starts again: losses have no previous model to hold on to."""
        return self.start is not None

    @property
    def origin(self) -> Weights:
        """The weights that training starts from."""
        return self.weights if self.start is None else self.start


@dataclass(frozen=True)
class ClientUpdate:
    """All that comes up from a client."""

    client: ClientId
    round: int
    weights: Weights
    num_labeled: int
    metrics: Mapping[str, float]
    extras: Arrays = field(default_factory=dict)
    joint: tuple[ClientId, ...] = ()
    """Of a secure sum, which stands for several clients: all of them. It never travels."""
