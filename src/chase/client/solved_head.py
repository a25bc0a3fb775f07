"""A client's part in ``head = "closed-form"``: sums over its labelled samples, under the features it received.

The pass runs before training, on the averaged network of the order. A head of sums over local features, measured after
training, was much worse (docs/decisions/0063). Features change every round, so sums are of all labels, every time.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from chase.client.context import ClientContext, Costs
from chase.client.state import ClientState
from chase.closed_form.feature_map import GRID
from chase.closed_form.sums import Sums
from chase.core.errors import SettingsError
from chase.core.messages import RoundOrder
from chase.core.weights import Array, Weights, part_of, prefixed
from chase.learning.inference import features
from chase.models.net import Net, set_weights

SOLVED = "solved."
"""In an order: prefix of the last layer that was solved from sums."""
HEAD_SUM = "head_sum."
"""In an update: prefix of the sums for the next one."""
HEAD_SITES = "head_sites"
"""Among the metrics of a sum over sites: how many of them sent sums."""


def with_linear_head(net: nn.Module) -> Net:
    """The network, if its last layer can be solved."""
    if not isinstance(net, Net) or not isinstance(net.head, nn.Linear) or net.head.bias is None:
        raise SettingsError(
            "head = 'closed-form' solves a network's last layer, so the network must be a chase.models.net.Net whose "
            "`head` is a Linear layer with a bias: change the network, or leave `head` out"
        )
    return net


def received_model(order: RoundOrder) -> Weights:
    """The global model as selection and people see it: the averaged network, with the solved head if there is one."""
    return {**order.weights, **part_of(order.extras, SOLVED)}


def measure_features(context: ClientContext, state: ClientState, order: RoundOrder, costs: Costs) -> dict[str, Array]:
    """Sums of the labelled samples under the received features; none without a closed-form head or enough labels."""
    settings, labeled = context.settings, state.pools.labeled
    if settings.head != "closed-form" or labeled.size < max(1, settings.min_labels):
        return {}
    with costs.stopwatch.phase("sums"):
        set_weights(context.net, order.weights)
        values = features(with_linear_head(context.net), context.samples, context.samples.rows(labeled))
        wide = values.numpy().astype(np.float64) / GRID
        costs.inferences += int(labeled.size)
        return prefixed(HEAD_SUM, Sums.of(wide, state.labels_of(labeled), context.num_classes).to_arrays())
