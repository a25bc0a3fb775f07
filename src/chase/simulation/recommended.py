"""Settings for a user's own data that has none: ``chase run items.csv``.

Decided by what the data is: sites where the data names them, else an even division; a network, optimiser and number of
rounds that end within two minutes for some thousand samples. The learner and the strategy are the recommended ones;
network and optimiser count when the user chooses a method that trains a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from chase import settings
from chase.core.errors import DataError
from chase.data import sources, user_data
from chase.data.options import DataOptions
from chase.data.pictures import PictureError, read_header
from chase.data.resident import DataSet
from chase.settings import RECOMMENDED, Settings, from_mapping, presets

LARGEST = 64
"""Images are not made larger than this by default."""
TEXT_LENGTH = 400
"""Words kept of a text."""
MOST_CLIENTS = 10
LEAST = 40
"""Labelled samples per client, where clients are not given by the data."""
ROUNDS = 20
MOST_INITIAL = 0.5
"""Share of the samples that is labelled at the start at most: with many classes nothing would be left to ask for."""

NETWORKS: dict[str, dict[str, Any]] = {
    "image": {"net": "mnist-cnn", "optimizer": "adam", "lr": 0.001},
    "text": {"net": "text-bag", "optimizer": "adam", "lr": 0.005, "temperature": "leave-one-out"},
    "table": {"net": "mlp", "optimizer": "adam", "lr": 0.003},
    "vectors": {"net": "mlp", "optimizer": "adam", "lr": 0.003},
}
"""What a network of each kind of data is trained with; texts have many classes, too many for one rule of sharpness."""


def values_of(name: str, changes: Mapping[str, Any], methods: str | None = None) -> dict[str, Any]:
    """The values of a preset or a TOML file, or those recommended for the data at a path (and ``methods`` on it)."""
    if name in presets() or name.endswith(".toml") or not sources.looks_like_path(name):
        return settings.values_of(name)
    return own_values(name, changes, methods)


def own_values(path: str, changes: Mapping[str, Any], methods: str | None = None) -> dict[str, Any]:
    """Values for the data at a path; ``changes`` are what the user said of it."""
    values = reading_values(path, changes)
    chosen = from_mapping(values | _known(changes))
    data = sources.load(path, chosen.data_dir, chosen.data_options)
    values |= for_people(data) if chosen.annotator == "page" else for_data(data)
    closed = changes.get("learner") == "closed-form" or (methods or changes.get("strategy", RECOMMENDED)) == RECOMMENDED
    if not closed or changes.get("learner") == "network" or changes.get("form") == "isolated":
        values.pop("temperature", None)  # it is for the closed-form learner with one global model
    return values


def reading_values(path: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """How the data at a path is read where the user does not say: a length of texts, a size of pictures."""
    values: dict[str, Any] = {"data": path, "text_length": TEXT_LENGTH}
    if "image_size" in changes:
        return values
    return values | _image_size(Path(path), from_mapping(values | _known(changes)).data_options)


def _known(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if key in Settings.model_fields}


def for_data(data: DataSet) -> dict[str, Any]:
    """Division, learner and rounds for a data set."""
    labeled = int((data.train_labels >= 0).sum())
    values: dict[str, Any] = {**NETWORKS[data.train.kind], **_clients(data, labeled)}
    values |= {
        "strategy": RECOMMENDED,
        "behaviour": "AbCo",
        "rounds": ROUNDS,
        "local_epochs": 5,
        "initial_per_class": 1,
    }
    if data.train.kind == "image" and min(data.train.shape[1:]) < 16:
        values["net"] = "tiny-cnn"
    share = min(MOST_INITIAL, max(0.02, 2 * data.num_classes * values["clients"] / max(1, labeled)))
    values["initial_labels"] = round(share, 3)
    return values


def for_people(data: DataSet) -> dict[str, Any]:
    """The same where people label: what has no label is for them, and no known label is kept from training."""
    values = for_data(data)
    if (data.train_labels >= 0).all():
        return values  # a rehearsal: one client is theirs, the others are simulated
    values |= {"page_client": "all", "initial_labels": 1.0}
    return values | ({} if values["partition"] == "natural" else {"clients": 1})


def _clients(data: DataSet, labeled: int) -> dict[str, Any]:
    if data.groups is not None:
        sizes = np.bincount(data.groups, minlength=len(data.group_names))
        fit = int((sizes >= 2).sum())
        if fit:
            return {"partition": "natural", "clients": min(fit, 100), "min_owned": 1}
    return {"partition": "iid", "clients": max(1, min(MOST_CLIENTS, labeled // LEAST))}


def _image_size(path: Path, options: DataOptions) -> dict[str, Any]:
    """A size for pictures of a folder or a table that differ in size or are large; nothing otherwise."""
    try:
        pictures = user_data.pictures_of(path, options)
    except DataError:
        return {}  # said when the data is loaded
    sizes: set[tuple[int, int]] = set()
    for picture in pictures:
        try:
            header = read_header(picture)
        except PictureError:
            continue
        if header.width:
            sizes.add((header.width, header.height))
    smallest = min((min(size) for size in sizes), default=0)
    odd = len(sizes) > 1 or any(width != height or width > LARGEST for width, height in sizes)
    return {"image_size": min(LARGEST, max(16, smallest))} if odd else {}
