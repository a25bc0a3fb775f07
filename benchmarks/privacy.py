"""`python -m benchmarks.privacy [--data digits mnist] [--sites 10 50 200] [--set lr=0.05] [...]`: cost of epsilon.

Simulated rounds in which every client clips its change of the model and adds its part of the noise, with the functions
that a site uses. Each line is one dp_epsilon (0: no differential privacy, inf: clipped without noise) with the accuracy
on the test set after the last round, by seed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from chase.client.turn import Turn
from chase.core.messages import ClientId, RoundOrder
from chase.core.randomness import rng
from chase.federation.privacy import noise_multiplier, private_weights, site_sigma
from chase.run.checkpoint import Checkpoint
from chase.run.engine import RoundResult
from chase.run.experiment import net_spec
from chase.server.closed_form import make_server
from chase.server.server import new_start
from chase.settings import load, parse_changes
from chase.simulation.inprocess import InProcess
from chase.simulation.world import World, load_data

DELTA = 1e-5


class Private(InProcess):
    """Clients that clip and add noise before their update is used."""

    def __init__(self, world: World, checkpoint: Checkpoint, clip: float, sigma: float) -> None:
        super().__init__(world, checkpoint)
        self._clip, self._sigma = clip, sigma

    def run_round(self, orders: Mapping[ClientId, RoundOrder]) -> RoundResult:
        honest = self._roster.take_turn

        def take_turn(client: ClientId, order: RoundOrder, saved: Any) -> tuple[Turn, Any]:
            turn, kept = honest(client, order, saved)
            noise = rng(order.seed, "privacy", order.round, client)
            weights = private_weights(order.origin, turn.update.weights, self._clip, self._sigma, noise)
            return replace(turn, update=replace(turn.update, weights=weights)), kept

        self._roster.take_turn = take_turn  # type: ignore[method-assign]
        try:
            return super().run_round(orders)
        finally:
            self._roster.take_turn = honest  # type: ignore[method-assign]


@dataclass(frozen=True)
class Case:
    """One row of the study."""

    data: str
    sites: int
    rounds: int
    epsilon: float
    clip: float
    epochs: int
    share: float
    """Share of the data set that is used."""
    changes: dict[str, Any]
    """Settings that differ from those of the data set's preset."""

    def accuracy(self, seed: int) -> float:
        """Test accuracy after the last round."""
        changes: dict[str, Any] = {"clients": self.sites, "rounds": self.rounds, "seed": seed, "engine": "inprocess"}
        changes |= {"local_epochs": self.epochs, "data_share": self.share, "partition": "iid", "initial_labels": 0.5}
        changes |= {"strategy": "random", "client_weights": "equal", "align": "none", "budget": 1}
        settings = load(self.data, changes | self.changes).resolved()
        data = load_data(settings)
        spec = net_spec(settings, data)
        server = make_server("study", settings, new_start(spec, settings), spec)
        noisy = 0.0 < self.epsilon < math.inf
        multiplier = noise_multiplier(self.epsilon, self.rounds, DELTA) if noisy else 0.0
        clip = self.clip if self.epsilon else math.inf
        sigma = site_sigma(multiplier, self.clip, self.sites)
        with tempfile.TemporaryDirectory(prefix="chase-privacy-") as place:
            checkpoint = Checkpoint(Path(place))
            engine = Private(World.of(settings, data), checkpoint, clip, sigma)
            for round in range(1, self.rounds + 1):
                result = engine.run_round(server.orders(round))
                server.aggregate(result.orders, result.updates, result.mean)
                checkpoint.commit(round, server.to_arrays())
            guesses = engine.test_logits(server.weights).argmax(dim=1).numpy()
        return float((guesses == data.test_labels).mean())

    def line(self, seeds: int) -> dict[str, Any]:
        """The row: accuracies of all seeds, their mean and range, and what it took."""
        began = time.process_time()
        found = [round(self.accuracy(seed), 4) for seed in range(seeds)]
        spread = {"mean": round(statistics.mean(found), 4), "lowest": min(found), "highest": max(found)}
        took = {"processor_seconds": round(time.process_time() - began), "load": round(os.getloadavg()[0], 1)}
        return asdict(self) | {"epsilon": str(self.epsilon), "accuracy": found} | spread | took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 50, 200])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=2, help="local epochs")
    parser.add_argument("--share", type=float, default=1.0, help="share of the data set that is used")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.0, math.inf, 128.0, 32.0, 8.0, 2.0])
    chosen = parser.parse_args()
    changes = parse_changes(chosen.set)
    for data, sites, epsilon in product(chosen.data, chosen.sites, chosen.epsilon):
        case = Case(data, sites, chosen.rounds, epsilon, chosen.clip, chosen.epochs, chosen.share, changes)
        print(json.dumps(case.line(chosen.seeds)), flush=True)


if __name__ == "__main__":
    main()
