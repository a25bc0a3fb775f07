"""Small sites for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from support import blobs, small_settings

from chase.client.build import build_net
from chase.client.state import ClientState
from chase.core.messages import RoundOrder
from chase.data.resident import DataSet, Samples
from chase.home.store import ClientStore
from chase.models.net import get_weights
from chase.settings import Settings
from chase.simulation.world import World
from chase.site import change
from chase.site.create import cut
from chase.site.place import Site, SiteCard
from chase.site.turn import take_turn

SETTINGS = {"clients": 2, "rounds": 3, "local_epochs": 2, "classes_per_client": 2, "initial_labels": 0.2, "budget": 3}


def tiny_data() -> DataSet:
    """Eighty 8x8 images of two classes, forty to test on."""
    train, labels = blobs(80)
    test, test_labels = blobs(40, seed=1)
    return DataSet("tiny", train, labels.astype(np.int64), test, test_labels.astype(np.int64), ("dark", "bright"))


def tiny_settings(**changes: object) -> Settings:
    return small_settings(**{**SETTINGS, **changes})


def tiny_site(path: Path, number: int = 0, annotator: str = "simulated", name: str = "", held_out: bool = True) -> Site:
    card = SiteCard(name or f"site-{number}", annotator)
    data = tiny_data()
    return cut(path, World.of(tiny_settings(), data), data, number, card, held_out)


def first_order(site: Site, settings: Settings, round: int = 1) -> RoundOrder:
    weights = get_weights(build_net(settings, site.samples(), len(site.classes)))
    return RoundOrder("run", round, settings.seed, weights)


def some(count: int, value: int = 9) -> np.ndarray:
    """Images of one shade each, no two alike."""
    shades = np.arange(value, value + count, dtype=np.uint8)
    return np.broadcast_to(shades[:, None, None, None], (count, 1, 8, 8)).copy()


def put(site: Site, inputs: np.ndarray, names: list[str], labels: list[int] | None = None) -> np.ndarray:
    """Add samples, unlabelled unless told otherwise; returns the ids of those that entered."""
    numbers = np.array([-1] * len(names) if labels is None else labels)
    return change.add(site, change.New(inputs, names, numbers)).ids


def now(site: Site) -> ClientState:
    return ClientStore(site.home, site.start()).load()


def play(site: Site, *rounds: int) -> None:
    settings = tiny_settings()
    weights = first_order(site, settings).weights
    for round in rounds:
        take_turn(site, settings, 0, RoundOrder("run", round, 0, weights))


def all_bytes(path: Path) -> bytes:
    return b"".join(f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file())


def images(count: int, value: int = 7) -> Samples:
    return Samples(torch.full((count, 1, 8, 8), value, dtype=torch.uint8))
