"""What settings may name besides things of one's own, and names with a meaning of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from chase.acquisition.catalog import METHODS
from chase.server.aggregation import SERVERS

LOGGERS = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}
"""What ``log_to`` may name, and the module that each is imported from."""

RECOMMENDED = "recommended"
"""A strategy's name that stands for ``RECOMMENDATION``."""
RECOMMENDATION: dict[str, Any] = {"learner": "closed-form", "strategy": "margin"}
"""What the study ``recommend`` found best; docs/decisions/0062 says how."""
FEATURES = ("patches", "hashed-text", "table", "given", "net")
"""Feature maps of the closed-form learner."""

ALL_CLIENTS = -1
"""``page_client`` for a page on which people label every client."""

AlignMode = Literal["none", "local", "global", "both", "all-global"]


PARTITIONS = {
    "classes": "classes_per_client classes per client",
    "dirichlet": "shares of each class drawn from Dirichlet(alpha)",
    "iid": "every client alike",
    "natural": "by the owners that the data names",
    "shards-reference": "shards as in the authors' code; clients share samples",
}
LOSSES = {"cross-entropy": "mean cross-entropy", "kcfu": "KAFAL's knowledge-compensatory loss"}
ANNOTATORS = {
    "oracle": "simulated: the true labels, with wrong_labels and answer_delay",
    "team": "simulated: several people per client, with skill, confusion and fatigue",
    "page": "a person labels one client on the labelling page",
}
"""What these settings may name besides things of one's own."""

NAMED: dict[str, Mapping[str, Any]] = {
    "strategy": {RECOMMENDED: None, **METHODS},
    "server": SERVERS,
    "partition": PARTITIONS,
    "loss": LOSSES,
    "annotator": ANNOTATORS,
}
"""Settings that name a thing, and what is built in; ``net`` and ``data`` are checked where they are used."""
