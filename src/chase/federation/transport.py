"""What the rounds need of whatever carries their messages.

A node is a way to reach a site. Sending gives a ticket; an answer comes back under the ticket it answers, or not
at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.weights import Weights

AHEAD = "ahead of the server"
"""How the error of a site begins that has done a later round than it is asked for, or this one otherwise."""
ANOTHER_ORDER = "for another order"
"""How it ends if that is the same round, which the site has done for another model."""
OUT_OF_STEP = "out of step with the server"
"""How the error of a site begins of which the server has other sums than the site remembers."""
BAD_SHARES = "shares that cannot be opened, of sites"
"""How the error of a site begins that names, by number, others whose shares of a secure sum are bad."""
CONTACT = "logs/contact"
"""In a site's home: its time is when the server last answered the site's node."""
Ticket = str
NodeId = int


@dataclass(frozen=True)
class Node:
    """A node that can be reached."""

    name: str = ""
    """Of the site whose key it proved to have."""
    session: str = ""
    """Another one after each start of the node: what it was sent before that is lost."""


@dataclass(frozen=True)
class SiteMessage:
    """A message to a node."""

    node: NodeId
    kind: str
    """"hello", "turn" or "tally"."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """Plain values; ``number`` is the client's number."""
    order: RoundOrder | None = None
    weights: Weights | None = None


@dataclass(frozen=True)
class Hello:
    """A site's answer to the handshake."""

    site: str
    objections: tuple[str, ...] = ()
    samples: int = 0
    """Samples that it may ask for or train on: bounds what it can say of its labels."""
    held_out: int = 0
    """Samples that it scores models with."""
    turn: int = 0
    """Turns that it has taken: fewer than before means that it was restored from an older copy."""


@dataclass(frozen=True)
class Tally:
    """A site's held-out part under a model."""

    correct: int
    count: int


@dataclass(frozen=True)
class Reply:
    """What came back for a ticket: a body, or what went wrong."""

    ticket: Ticket
    body: Hello | ClientUpdate | Tally | None
    error: str = ""
    unfit: bool = False
    """There was an answer, but not one that can be read: asking again would bring the same."""


class Transport(Protocol):
    """Carries messages and brings answers."""

    def nodes(self) -> Mapping[NodeId, Node]:
        """Nodes that can be reached now."""
        ...

    def send(self, messages: Sequence[SiteMessage]) -> list[Ticket | None]:
        """Send messages; None for one that could not be sent."""
        ...

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        """The answers that have come for these tickets."""
        ...
