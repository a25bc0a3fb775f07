"""`python -m benchmarks.privacy [--data digits mnist] [--sites 10] [--rounds 10] [--seeds 2]`: what epsilon costs.

Federations in this process: real sites on disk, the server's own rounds, no network between them. Each line is one
dp_epsilon (0: no differential privacy) with the accuracy on the server's test set after the last round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
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


def accuracy(data: str, sites: int, rounds: int, seed: int, epsilon: float, clip: float, share: float) -> float:
    """Test accuracy after the last round of one federation."""
    changes: dict[str, Any] = {"clients": sites, "rounds": rounds, "seed": seed, "local_epochs": 2}
    changes |= {"strategy": "random", "client_weights": "equal", "align": "none"}
    changes |= {"partition": "iid", "data_share": share, "initial_labels": 0.5}
    rules = Rules(quorum=sites, dp_epsilon=epsilon, dp_clip=clip, norm_clip=0.0, norm_refuse=0.0)
    with tempfile.TemporaryDirectory(prefix="chase-privacy-") as place:
        loopback = Loopback.prepare(Path(place) / "fed", load(data, changes), rules, secure=False)
        transport = Direct({100 + n: home for n, home in enumerate(loopback.homes.values())})
        return float(run_federation(loopback.federation, transport)[-1]["test_accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--share", type=float, default=1.0, help="share of the data set that is used")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.0, 8.0, 64.0, 1000.0])
    chosen = parser.parse_args()
    for data in chosen.data:
        for epsilon in chosen.epsilon:
            began = time.monotonic()
            found = [
                accuracy(data, chosen.sites, chosen.rounds, seed, epsilon, chosen.clip, chosen.share)
                for seed in range(chosen.seeds)
            ]
            line = {
                "data": data,
                "sites": chosen.sites,
                "rounds": chosen.rounds,
                "clip": chosen.clip,
                "share": chosen.share,
            }
            line |= {
                "epsilon": epsilon,
                "accuracy": [round(a, 4) for a in found],
                "mean": round(statistics.mean(found), 4),
            }
            line |= {"seconds": round(time.monotonic() - began), "load": round(os.getloadavg()[0], 1)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
