"""`python -m benchmarks.privacy [--data digits mnist] [--sites 10 50] [--rounds 10] [--seeds 3]`: what epsilon costs.

Federations in this process: real sites on disk, the server's own rounds, no network between them. Each line is one
dp_epsilon (0: no differential privacy) with the accuracy on the server's test set after the last round, by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from chase.federation.ops.setup import Loopback
from chase.federation.rules import Rules
from chase.federation.run import run_federation
from chase.federation.transport import Node, NodeId, Reply, SiteMessage, Ticket
from chase.flower import client_app, codec
from chase.settings import load


@dataclass
class Direct:
    """A transport that has each site answer at once, in this process."""

    homes: Mapping[NodeId, Path]
    answers: dict[Ticket, Reply] = field(default_factory=dict)

    def nodes(self) -> Mapping[NodeId, Node]:
        return dict.fromkeys(self.homes, Node())

    def send(self, letters: Sequence[SiteMessage]) -> list[Ticket | None]:
        return [self._answer(letter) for letter in letters]

    def _answer(self, letter: SiteMessage) -> Ticket:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        ticket = str(len(self.answers))
        kind = codec.KINDS[letter.kind]
        down = Message(codec.pack_letter(letter), dst_node_id=letter.node, message_type=kind)
        body = codec.unpack(client_app.answer(down, self.homes[letter.node]).content)
        if isinstance(body, codec.Failure):
            raise SystemExit(f"node {letter.node}: {body.reason}")
        self.answers[ticket] = Reply(ticket, body)
        return ticket

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        return [self.answers[t] for t in tickets if t in self.answers]


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

    def accuracy(self, seed: int) -> float:
        """Test accuracy after the last round of one federation."""
        changes: dict[str, Any] = {"clients": self.sites, "rounds": self.rounds, "seed": seed}
        changes |= {"local_epochs": self.epochs, "eval_every": self.rounds, "data_share": self.share}
        changes |= {"strategy": "random", "client_weights": "equal", "align": "none"}
        changes |= {"partition": "iid", "initial_labels": 0.5, "budget": 1}
        rules = Rules(quorum=self.sites, dp_epsilon=self.epsilon, dp_clip=self.clip, norm_clip=0.0, norm_refuse=0.0)
        with tempfile.TemporaryDirectory(prefix="chase-privacy-") as place:
            loopback = Loopback.prepare(Path(place) / "fed", load(self.data, changes), rules, secure=False)
            transport = Direct({100 + n: home for n, home in enumerate(loopback.homes.values())})
            return float(run_federation(loopback.federation, transport)[-1]["test_accuracy"])

    def line(self, seeds: int) -> dict[str, Any]:
        """The row: accuracies of all seeds, their mean and range, and what it took."""
        began = time.monotonic()
        found = [round(self.accuracy(seed), 4) for seed in range(seeds)]
        spread = {"mean": round(statistics.mean(found), 4), "lowest": min(found), "highest": max(found)}
        took = {"seconds": round(time.monotonic() - began), "load": round(os.getloadavg()[0], 1)}
        return asdict(self) | {"accuracy": found} | spread | took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=2, help="local epochs")
    parser.add_argument("--share", type=float, default=1.0, help="share of the data set that is used")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.0, 2.0, 8.0, 32.0, 128.0])
    chosen = parser.parse_args()
    for data, sites, epsilon in product(chosen.data, chosen.sites, chosen.epsilon):
        case = Case(data, sites, chosen.rounds, epsilon, chosen.clip, chosen.epochs, chosen.share)
        print(json.dumps(case.line(chosen.seeds)), flush=True)


if __name__ == "__main__":
    main()
