"""What a client's turn works with, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import nn

from chase.annotation.behaviour import Behaviour
from chase.client.spec import net_spec
from chase.client.state import ClientState
from chase.core.messages import JUDGED_BY, ClientId
from chase.core.pools import SampleIds
from chase.core.timing import Stopwatch
from chase.data.resident import Samples
from chase.models.catalog import NetSpec
from chase.settings import Settings


@dataclass
class Costs:
    """Counts forward passes outside training, and which samples they saw; and how what was asked for was picked."""

    inferences: int = 0
    picks: int = 0
    """Samples asked for in this turn."""
    ranked_picks: int = 0
    """Those of them that a score ranked."""
    chance_picks: int = 0
    """Those of the ranked that the tie-break decided."""
    judges: dict[str, int] = field(default_factory=dict)
    """Requests that each model decided, of strategies that choose between two."""
    split: int = 0
    """Watched samples that alignment told apart into easy and hard ones."""
    easy: int = 0
    """The easy ones of them."""
    inferred: list[SampleIds] = field(default_factory=list)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def distinct(self) -> int:
        """Distinct unlabelled samples inferred."""
        return int(np.unique(np.concatenate(self.inferred)).size) if self.inferred else 0


@dataclass(frozen=True)
class ClientContext:
    """What a turn works with: settings, samples and a network to fill with weights."""

    client: ClientId
    settings: Settings
    samples: Samples
    net: nn.Module
    num_classes: int
    behaviour: Behaviour
    for_people: bool = False
    """A person answers: questions then carry the model's prediction, at the cost of a pass over each."""

    @property
    def spec(self) -> NetSpec:
        """How the network is built."""
        return net_spec(self.settings, self.samples, self.num_classes)


def turn_metrics(state: ClientState, costs: Costs) -> dict[str, float]:
    """What every turn reports: labels (second opinions among them), costs, pools and seconds."""
    metrics = {
        "labels": float(state.labels_spent + state.opinions),
        "inferences": float(costs.inferences),
        "inferred_samples": float(costs.distinct),
        "picks": float(costs.picks),
        "ranked_picks": float(costs.ranked_picks),
        "chance_picks": float(costs.chance_picks),
    }
    if state.opinions or state.opinions_waiting:
        metrics |= {
            "second_opinions": float(state.opinions),
            "second_opinions_waiting": float(state.opinions_waiting),
        }
    if costs.split:
        metrics |= {"easy_sum": float(costs.easy), "easy_count": float(costs.split)}
    metrics |= {f"{JUDGED_BY}{model}": float(count) for model, count in costs.judges.items()}
    metrics |= {f"pool_{name}": float(size) for name, size in state.pools.sizes().items()}
    return metrics | {f"seconds_{phase}": seconds for phase, seconds in costs.stopwatch.seconds.items()}
