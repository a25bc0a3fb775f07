"""Sums that a site should not have sent: refused, named by site, and the run continues with the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from federation.test_private_rounds import federation, run, told, wire_of
from federation.test_private_sums import CLOSED, arrays
from federation.wire import Wire

from chase.client.contribute import SUM
from chase.core.messages import ClientUpdate
from chase.federation.diary import events, state
from chase.federation.ops.setup import Loopback, admit, site_name
from chase.federation.status_view import snapshot
from chase.federation.transport import Reply, Ticket
from chase.report.federated import federation_section
from chase.report.runs import MethodRuns, read_run
from chase.run.checkpoint import Checkpoint

BAD = 101
"""The node of site-b."""


@dataclass
class Tampered(Wire):
    """One site's answers are changed on their way."""

    change: Callable[[ClientUpdate], ClientUpdate] = field(default=lambda update: update)

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        found = super().collect(tickets)
        return [self._changed(reply) if f"-{BAD}-" in reply.ticket else reply for reply in found]

    def _changed(self, reply: Reply) -> Reply:
        body = reply.body
        return replace(reply, body=self.change(body)) if isinstance(body, ClientUpdate) else reply


def tampered(fed: Loopback, rounds: tuple[int, ...], change: Callable[[ClientUpdate], ClientUpdate]) -> Tampered:
    wire = Tampered(wire_of(fed).homes)
    wire.change = lambda update: change(update) if update.round in rounds and update.extras else update
    return wire


def removing(update: ClientUpdate) -> ClientUpdate:
    """Sums that remove 500 labels of every class: a site may change its mind, but not about what nobody sent."""
    counts = np.full_like(update.extras[f"{SUM}counts"], -500.0)
    return replace(update, extras={**update.extras, f"{SUM}counts": counts})


def test_labels_that_the_server_does_not_have_cannot_be_removed_and_the_site_is_named(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", CLOSED)
    metrics = run(fed, tampered(fed, (2,), removing))
    assert [line["took_part"] for line in metrics] == [5, 4, 5]
    assert list(metrics[1]["sites"]["refused"]) == ["site-b"]
    refused = [(e["round"], e["site"]) for e in events(fed.federation.run) if e["what"] == "refused"]
    assert refused == [(2, "site-b")]
    assert "removes labels that the server does not have" in told(fed, "refused")[0]
    assert told(fed, "note") == []
    assert arrays(fed)["server/received"].tolist() == [3] * 5  # what was refused was sent again
    assert arrays(fed)["sums/counts"].min() >= 0
    assert any(e["site"] == "site-b" for e in snapshot(fed.federation)["events"])
    section = federation_section([MethodRuns("one", [read_run(fed.federation.run)])])
    assert section is not None
    assert "site-b" in str(section)


def test_the_state_says_who_was_refused_until_the_next_round(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", CLOSED | {"rounds": 2})
    run(fed, tampered(fed, (2,), removing))
    assert state(fed.federation.run)["sites"]["site-b"] == "refused"


def larger(update: ClientUpdate) -> ClientUpdate:
    return replace(update, extras={name: array * 1000 for name, array in update.extras.items()})


def uncounted(update: ClientUpdate) -> ClientUpdate:
    """A thousand times the patches, of the right number of images."""
    kept = {name: array for name, array in update.extras.items() if name.endswith(("count", "images"))}
    return replace(update, extras=dict(larger(update).extras) | kept)


def other(update: ClientUpdate) -> ClientUpdate:
    return replace(update, extras={f"{SUM}anything": np.zeros(3)})


def nothing(update: ClientUpdate) -> ClientUpdate:
    return replace(update, extras={})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (larger, "samples cannot give"),
        (uncounted, "its sums for fitting features are, per sample, .* times the median"),
        (other, "arrays do not match"),
        (nothing, "arrays do not match"),
    ],
)
def test_nobody_spoils_the_features(tmp_path: Path, change: Callable[[ClientUpdate], ClientUpdate], why: str) -> None:
    fed = federation(tmp_path / "fed", CLOSED | {"rounds": 1})
    (line,) = run(fed, tampered(fed, (-2, -1, 0), change))
    assert line["test_accuracy"] > 0.5
    said = [(e["site"], e["why"]) for e in events(fed.federation.run) if e["what"] == "refused"]
    assert said
    assert {site for site, _ in said} == {"site-b"}
    assert any(re.search(why, text) for _, text in said)


def test_a_site_that_is_admitted_beyond_the_planned_number_takes_part(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", CLOSED | {"clients": 4}, evaluate="sites")
    other = federation(tmp_path / "other", CLOSED | {"seed": 0}, evaluate="sites")
    home = other.homes[site_name(4)]
    admit(fed.federation, site_name(4), None)
    wire = wire_of(fed)
    wire.homes = {**wire.homes, 104: home}
    metrics = run(fed, wire)
    assert [line["took_part"] for line in metrics] == [5, 5, 5]
    assert told(fed, "failed") == []
    checkpoint = Checkpoint(fed.federation.run / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    assert checkpoint.read_arrays(manifest.server)["server/received"].tolist() == [3] * 5
