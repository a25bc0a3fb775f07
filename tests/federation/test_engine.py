"""A federation as an engine, over sites on disk, without Flower in between."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from federation.real import federation_settings, simulated
from federation.transports import AtOnce, Clock
from support import as_sites_tell, final_weights, timeless

from chase.core.errors import CheckpointError, FederationError
from chase.federation.diary import events, state
from chase.federation.ops.setup import Loopback, found, site_name
from chase.federation.rules import Rules
from chase.federation.run import run_federation
from chase.federation.transport import Hello, Reply, SiteMessage, Tally, Ticket
from chase.run.checkpoint import Checkpoint
from chase.run.metrics import Metrics
from chase.run.record import Record, RunHeld
from chase.settings import from_mapping
from chase.site import turn
from chase.site.contract import HEADER, Contract
from chase.site.place import Site


@dataclass
class LocalTransport(AtOnce):
    """Does at once what a letter asks of a site."""

    stop_after: int = 1_000_000

    def do(self, letter: SiteMessage) -> Ticket:
        if letter.order is not None and letter.order.round > self.stop_after:
            raise KeyboardInterrupt
        site, ticket = Site(self.homes[letter.node]), f"{len(self.answers)}"
        settings = from_mapping(dict(letter.header["settings"]))
        if letter.kind == "hello":
            offered = Contract.from_json(str(letter.header[HEADER]))
            body = Hello(site.card.name, tuple(turn.objections(site, settings, offered)), *turn.sizes(site))
        elif letter.kind == "tally":
            body = Tally(*turn.tally(site, settings, letter.weights))
        else:
            body = turn.take_turn(site, settings, int(letter.header["number"]), letter.order)
        site.close()
        self.answers[ticket] = Reply(ticket, body)
        return ticket


def transport_of(loopback: Loopback) -> LocalTransport:
    return LocalTransport({100 + n: home for n, home in enumerate(loopback.homes.values())})


def run(loopback: Loopback, transport: LocalTransport) -> list[Metrics]:
    clock = Clock()
    return run_federation(loopback.federation, transport, clock, clock.sleep)


@pytest.mark.parametrize("changes", [{}, {"strategy": "ev", "form": "reset"}, {"server": "fedadam", "take_part": 0.7}])
def test_the_loop_gives_the_weights_of_a_simulation_also_when_it_is_cut_short(tmp_path: Path, changes: dict) -> None:
    settings = federation_settings(**changes)
    loopback = Loopback.prepare(tmp_path / "fed", settings, Rules(quorum=3), secure=False)
    transport = transport_of(loopback)
    transport.stop_after = 1
    with pytest.raises(KeyboardInterrupt):
        run(loopback, transport)
    metrics = run(loopback, transport_of(loopback))
    simulation = simulated(tmp_path / "sim", settings)
    assert final_weights(loopback.federation.run) == final_weights(simulation)
    ours = [{k: v for k, v in line.items() if k != "sites"} for line in timeless(metrics)]
    theirs = as_sites_tell(Record.open(simulation).metrics)
    assert ours == theirs
    assert [e["what"] for e in events(loopback.federation.run) if not e["site"]] == ["begun", "resumed", "finished"]
    assert state(loopback.federation.run)["phase"] == "finished"


def test_the_model_is_scored_at_the_server_and_at_the_sites(tmp_path: Path) -> None:
    settings = federation_settings(rounds=1)
    loopback = Loopback.prepare(tmp_path / "both", settings, Rules(evaluate="both"), secure=False)
    line = run(loopback, transport_of(loopback))[-1]
    assert line["site_count"] == 359  # the test part, divided among the sites
    assert line["site_accuracy"] == pytest.approx(line["test_accuracy"])
    loopback = Loopback.prepare(tmp_path / "sites", settings, Rules(evaluate="sites"), secure=False)
    line = run(loopback, transport_of(loopback))[-1]
    assert line["test_accuracy"] == line["site_accuracy"]
    assert line["test_loss"] is None


def test_a_site_that_differs_is_refused_with_the_difference_and_the_report_says_so(tmp_path: Path) -> None:
    settings = federation_settings(rounds=1)
    loopback = Loopback.prepare(tmp_path / "fed", settings, Rules(quorum=2, join=5.0), secure=False)
    card = loopback.homes["site-b"] / "client.json"
    card.write_text(card.read_text().replace("0.305", "0.5"))
    line = run(loopback, transport_of(loopback))[-1]
    assert line["took_part"] == 2
    assert line["sites"]["absent"] == ["site-b"]
    refused = [e for e in events(loopback.federation.run) if e["what"] == "refused"]
    assert [e["why"] for e in refused] == ["normalisation mean: the server has (0.305), the site (0.5)"]
    page = (loopback.federation.run / "report.html").read_text()
    assert "What happened to the sites" in page
    assert "normalisation mean" in page


def test_a_federation_logs_and_leaves_all_that_a_simulation_leaves(tmp_path: Path) -> None:
    settings = federation_settings(rounds=2, log_to=["tensorboard"])
    loopback = Loopback.prepare(tmp_path / "fed", settings, Rules(), secure=False)
    metrics = run(loopback, transport_of(loopback))
    path, simulation = loopback.federation.run, simulated(tmp_path / "sim", federation_settings(rounds=2))
    assert all(line["seconds_processor"] > 0 for line in metrics)
    assert {"train", "clients", "aggregate", "evaluate"} <= metrics[0]["seconds_by_phase"].keys()
    assert json.loads((path / "logged.json").read_text()) == {"tensorboard": 2}
    assert list((path / "tensorboard").glob("events.*"))
    assert (path / "confusion.json").read_text() == (simulation / "confusion.json").read_text()


def test_the_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    loopback = Loopback.prepare(tmp_path / "fed", federation_settings(rounds=2), Rules(), secure=False)
    checkpoint = Checkpoint(loopback.federation.run / "checkpoint")
    checkpoint.commit(1, {"weight": np.zeros(3, dtype=np.float32)})
    with pytest.raises(CheckpointError, match="weights of another network"):
        run(loopback, transport_of(loopback))


def test_a_live_server_keeps_everybody_else_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chase.federation.run.PATIENCE", 0.1)
    loopback = Loopback.prepare(tmp_path / "fed", federation_settings(rounds=2), Rules(), secure=False)
    record = Record.open(loopback.federation.run)
    with record.held(), pytest.raises(RunHeld, match="another process"):
        run(loopback, transport_of(loopback))
    assert record.metrics == []


def test_isolation_is_no_federation(tmp_path: Path) -> None:
    with pytest.raises(FederationError, match="needs no federation"):
        found(tmp_path / "fed", federation_settings(form="isolated"), Rules())
    assert not (tmp_path / "fed").exists()


def test_names_of_sites_are_never_the_same() -> None:
    assert len({site_name(n) for n in range(60)}) == 60
