"""Real federations on loopback for tests: everything that is started is taken down, also when a test fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support import as_sites_tell, final_weights, timeless

from chase.client.state import ClientState
from chase.core.files import held_by
from chase.core.processes import group_lives
from chase.federation.diary import events, state
from chase.federation.ops.launch import Watch
from chase.federation.ops.setup import Loopback
from chase.federation.ops.supervisor import Supervisor
from chase.federation.rules import Rules
from chase.home.store import ClientStore
from chase.run.checkpoint import Checkpoint
from chase.run.experiment import Experiment
from chase.run.record import LOCK, Record
from chase.settings import Settings, load
from chase.site.place import Site

SETTINGS = {"clients": 3, "rounds": 3, "local_epochs": 2, "behaviour": "AbCo", "budget": 5, "classes_per_client": 4}
RULES = {"quorum": 3, "deadline": 240.0, "poll": 0.5}


def federation_settings(**changes: Any) -> Settings:
    return load("digits", {**SETTINGS, **changes})


@dataclass
class Real:
    """A federation that runs."""

    loopback: Loopback
    supervisor: Supervisor
    watch: Watch
    limit: float

    @property
    def run(self) -> Path:
        return self.loopback.federation.run

    def until(self, what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Look after everything until the state is as wanted."""
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            self.supervisor.tend()
            phase, found = self.watch.look(), state(self.run)
            if what(found):
                return found
            assert phase != "failed", found
            time.sleep(0.1)
        raise AssertionError(f"not within {self.limit} s; it stands at {state(self.run)}, {events(self.run)}")

    def finish(self) -> list[dict[str, Any]]:
        self.until(lambda s: s.get("phase") == "finished")
        return Record.open(self.run).metrics

    def training(self, round: int, site: str) -> None:
        self.until(lambda s: s.get("round") == round and s.get("sites", {}).get(site) == "training")

    def told(self, what: str) -> list[tuple[int, str]]:
        return [(e["round"], e["site"]) for e in events(self.run) if e["what"] == what]

    def kill_server(self) -> None:
        os.kill(held_by(self.run / LOCK).pid, signal.SIGKILL)

    def start_changed(self, site: str, code: str, where: Path) -> None:
        """Connect a site whose processes first run a piece of code (as ``sitecustomize``)."""
        where.mkdir()
        (where / "sitecustomize.py").write_text(code)
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{where}{os.pathsep}{before}"
        try:
            self.loopback.start_site(self.supervisor, site)
        finally:
            os.environ["PYTHONPATH"] = before

    def site(self, name: str) -> Site:
        return Site(self.loopback.homes[name])


@contextmanager
def running(
    path: Path,
    settings: Settings,
    limit: float = 280.0,
    absent: tuple[str, ...] = (),
    person: bool = False,
    **rules: Any,
) -> Iterator[Real]:
    """A federation with its run submitted; absent sites are not connected, the first may be labelled by a person."""
    loopback = Loopback.prepare(path, settings, Rules(**{**RULES, **rules}), person=person)
    with Supervisor(loopback.registry) as supervisor:
        loopback.start_server(supervisor)
        for name in loopback.homes:
            if name not in absent:
                loopback.start_site(supervisor, name)
        loopback.start_pages(supervisor)
        watch = Watch(loopback.federation)
        watch.begin()
        yield Real(loopback, supervisor, watch, limit)
        groups = [supervisor.pid(name) for name in list(supervisor._running)]
    assert [g for g in groups if group_lives(g)] == [], "orphans"


def saved_state(home: Path) -> ClientState:
    site = Site(home)
    try:
        return ClientStore(site.home, site.start()).load()
    finally:
        site.close()


def simulated(path: Path, settings: Settings) -> Path:
    """The same run in process."""
    Experiment.begin(settings.model_copy(update={"engine": "inprocess"}), path).run()
    return path


def assert_same(real: Real, simulation: Path) -> None:
    """Weights, metrics and every site's own state are those of the simulation, bit for bit."""
    assert final_weights(real.run) == final_weights(simulation)
    ours = [{k: v for k, v in line.items() if k != "sites"} for line in timeless(Record.open(real.run).metrics)]
    theirs = as_sites_tell(Record.open(simulation).metrics)
    assert ours == theirs
    checkpoint = Checkpoint(simulation / "checkpoint")
    manifest, _ = checkpoint.latest()
    assert manifest is not None
    for number, home in enumerate(real.loopback.homes.values()):
        there = saved_state(home).to_arrays()
        here = ClientState.from_arrays(checkpoint.read_client(checkpoint.where(number))).to_arrays()
        assert there.keys() == here.keys()
        assert all(np.array_equal(there[name], here[name]) for name in here)


def assert_sound(real: Real, asked_at_most: int) -> None:
    """No sample is in two pools or in none, none was labelled twice, and every label is still there."""
    for home in real.loopback.homes.values():
        now = saved_state(home)
        site = Site(home)
        began = site.start()
        site.close()
        now.pools.check()
        assert np.array_equal(now.pools.all_ids(), began.ids)
        assert np.isin(began.pools.labeled, now.pools.labeled).all()
        assert now.pools.labeled.size == began.pools.labeled.size + now.labels_spent
        assert (now.labels_of(now.pools.labeled) >= 0).all()
        assert now.labels_spent <= asked_at_most
