"""An estimate of the accuracy where nothing is there to measure it on: each label against a model that has not seen it.

The closed-form learner scores a labelled sample as if it had been left out without solving again
(``closed_form.leave_one_out``). The samples are those that were labelled, most of them because the model was unsure of
them: the share that comes out right is no measurement of the accuracy on all samples, and is named so everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chase.client.contribute import sent_to
from chase.client.state import ClientState
from chase.closed_form.calibration import left_out
from chase.closed_form.feature_map import decode
from chase.closed_form.model import ClosedFormNet
from chase.core.messages import ClientId
from chase.core.pools import SampleIds
from chase.core.weights import Weights
from chase.data.resident import Samples
from chase.learning.inference import logits
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.metrics import ESTIMATE, ESTIMATED_ON, Metrics
from chase.server.closed_form import ClosedFormServer

NO_ESTIMATE: Metrics = {ESTIMATE: None, ESTIMATED_ON: 0}


@dataclass(frozen=True)
class LeaveOneOut:
    """Estimates from the labels that the server has of the clients of a simulation."""

    server: ClosedFormServer
    checkpoint: Checkpoint
    net: ClosedFormNet
    samples: Samples
    clients: int

    def __call__(self, weights: Weights) -> Metrics:
        """The estimate for the last model; None before labels of two classes are known."""
        found = [self._labels_of(client) for client in range(self.clients)]
        ids, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        if not ids.size or not self.server.temperature:
            return NO_ESTIMATE
        set_weights(self.net, weights)
        rows = self.samples.rows(ids)
        scores = logits(self.net, self.samples, rows).double().numpy() * self.server.temperature
        features = decode(self.net.codes(self.samples, rows)).astype(np.float64)
        right = left_out(scores, labels, self.server.leverage(features)).argmax(axis=1) == labels
        return {ESTIMATE: float(right.mean()), ESTIMATED_ON: int(ids.size)}

    def _labels_of(self, client: ClientId) -> tuple[SampleIds, NDArray[np.int64]]:
        """The labels of a client that are in the server's sums."""
        saved = self.checkpoint.where(client)
        if saved is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        return sent_to(ClientState.from_arrays(self.checkpoint.read_client(saved)), self.server.received, client)
