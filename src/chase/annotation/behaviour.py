"""How willing clients are: AbCo, ReCo and free behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from chase.core.randomness import rng

RECO = ((5, 5), (7, 3), (10, 1))
"""Passive, ordinary, aggressive: (labels per request, turns between requests)."""
RECO_SHARES = (2, 6, 2)
CYCLE_SHARE_A_ROUND = 0.0005
"""Adaptive budget of a cycle: 1.25 / 2.5 / 3.75 / 5 % of the original pool for 25 / 50 / 75 / 100 rounds."""
CYCLE_SHARE_FIXED = 0.025


@dataclass(frozen=True)
class Behaviour:
    """A client's budget per request and the turns between its requests."""

    budget: int
    period: int

    def asks(self, turn: int) -> bool:
        """Whether a client asks in its own turn t = 0, 1, ...: t >= 1 and (t - 1) mod period = 0."""
        return turn >= 1 and (turn - 1) % self.period == 0


def reco(clients: int, seed: int) -> list[Behaviour]:
    """Passive, ordinary and aggressive clients in the exact ratio 2:6:2, seeded.

    Where the number of clients does not divide, the largest remainders get the odd clients.
    """
    exact = [share * clients / sum(RECO_SHARES) for share in RECO_SHARES]
    counts = [int(e) for e in exact]
    by_remainder = sorted(range(3), key=lambda g: (counts[g] - exact[g], g != 1))
    for group in by_remainder[: clients - sum(counts)]:
        counts[group] += 1
    kinds = [Behaviour(*kind) for kind in RECO]
    groups = [kinds[g] for g, count in enumerate(counts) for _ in range(count)]
    order = rng(seed, "reco").permutation(clients)
    return [groups[place] for place in order.tolist()]


def behaviours(kind: str, clients: int, seed: int, budget: int, period: int) -> list[Behaviour]:
    """One behaviour per client; a budget of 0 means that nobody asks, whatever the kind."""
    if budget == 0:
        return [Behaviour(0, 1)] * clients
    if kind == "ReCo":
        return reco(clients, seed)
    return [Behaviour(budget, 1 if kind == "AbCo" else period)] * clients


def per_cycle(pool: int, rounds: int, kind: str) -> Behaviour:
    """Labels per cycle of ``rounds`` for a client whose original unlabelled pool has ``pool`` samples, at least one."""
    share = CYCLE_SHARE_FIXED if kind == "fixed" else CYCLE_SHARE_A_ROUND * rounds
    return Behaviour(max(1, round(share * pool)), 1)
