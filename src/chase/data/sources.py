"""Where data sets come from: a name, ``hub:owner/set``, or a path.

A name is looked for as ``NAME/train.parquet`` in the data directories: the setting ``data_dir``, then
``CHASE_DATA``, then where ``chase data get`` puts its files. What is in none of them is fetched.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from chase.core import plugins
from chase.core.errors import DataError, SettingsError, unknown
from chase.core.randomness import rng
from chase.data import hub, readers, tabular_files
from chase.data.assemble import assemble
from chase.data.cache import cache_root, cached, content_key, entry_path, read_entry
from chase.data.decoded import Decoded
from chase.data.known import KNOWN
from chase.data.options import DataOptions, Normalisation
from chase.data.resident import DataSet, Samples
from chase.data.roles import read_roles
from chase.data.user_data import load_own

DIGITS_TEST = 0.2


SENT: dict[str, str] = {}
"""Data sets that another machine sent to this one: the setting ``data`` -> entry of the cache."""


def digits_table() -> NDArray[np.float64]:
    """The digits (1797, 64 pixels and the class), read from their file: importing scikit-learn takes over a second."""
    package = find_spec("sklearn")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])


def digits() -> DataSet:
    """scikit-learn's 8x8 digits, a fixed fifth of each class held out for testing."""
    table = digits_table()
    images = np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255.0 / 16.0)).astype(np.uint8)
    labels = table[:, -1].astype(np.int64)
    order = rng(0, "digits-split").permutation(labels.size)
    test = np.concatenate([order[labels[order] == c][: round(DIGITS_TEST * (labels == c).sum())] for c in range(10)])
    held_out = np.zeros(labels.size, dtype=bool)
    held_out[test] = True
    return DataSet(
        name="digits",
        train=Samples(torch.from_numpy(images[~held_out]), mean=(0.305,), std=(0.376,)),
        train_labels=labels[~held_out],
        test=Samples(torch.from_numpy(images[held_out]), mean=(0.305,), std=(0.376,)),
        test_labels=labels[held_out],
        classes=tuple("0123456789"),
    )


SOURCES: dict[str, str] = {
    "digits": "scikit-learn's 8x8 digits, 10 classes, a fifth held out for testing",
    **{name: known.about for name, known in KNOWN.items()},
}
"""What each name stands for."""


def data_dirs(data_dir: str = "") -> list[Path]:
    """Where NAME/train.parquet is looked for, best first."""
    places = [data_dir, os.environ.get("CHASE_DATA", ""), str(cache_root() / "data")]
    return [Path(place) for place in places if place]


def find_local(name: str, data_dir: str = "") -> Path | None:
    """The directory that holds a local copy of a named data set."""
    local = hub.local_name(name)
    return next((d / local for d in data_dirs(data_dir) if (d / local / "train.parquet").is_file()), None)


def load(name: str, data_dir: str = "", options: DataOptions | None = None) -> DataSet:
    """A data set by name, by ``hub:owner/set`` or by path."""
    options = options or DataOptions()
    return normalised(read(name, data_dir, options), name, options.normalisation)


def normalised(data: DataSet, name: str, kind: Normalisation) -> DataSet:
    """The data set with the mean and deviation that ``kind`` says; texts have none."""
    if kind == "statistics" or data.train.kind != "image":
        return data
    mean: tuple[float, ...] = (0.5,)
    std = mean
    if kind == "authors":
        known = KNOWN[name].authors if name in KNOWN else None
        if known is None:
            fit = ", ".join(other for other, entry in KNOWN.items() if entry.authors)
            raise SettingsError(
                f"normalisation = 'authors', but the authors' code has no values for '{name}' (only for {fit}): "
                "set normalisation=statistics"
            )
        mean, std = known
    train, test = (replace(part, mean=mean, std=std) for part in (data.train, data.test))
    return replace(data, train=train, test=test)


def read(name: str, data_dir: str, options: DataOptions) -> DataSet:
    """The data set as it is kept, normalised by its own statistics."""
    if name == "digits":
        return digits()
    if name in SENT:
        return sent_data(name)
    found = decoded(name, data_dir, options)
    if found is None:
        return own_data(name)
    own = found.data_set()
    if name in KNOWN or name.startswith(hub.PREFIX) or own.train.kind != "image":
        return own
    folder = Path(name) if own.train_files is None or Path(name).is_dir() else Path(name).parent
    return replace(own, originals=str(folder.resolve()))


def sent_data(name: str) -> DataSet:
    """A data set that was sent to this machine."""
    found = read_entry(SENT[name])
    if found is None:
        raise DataError(f"'{name}' was sent to this machine, but {entry_path(SENT[name])} is missing or damaged")
    return found.data_set()


def decoded(name: str, data_dir: str = "", options: DataOptions | None = None) -> Decoded | None:
    """What is kept of a data set in the cache; None where nothing is (digits, objects, other packages)."""
    options = options or DataOptions()
    if name == "digits" or name.startswith(plugins.OBJECT) or (name not in SOURCES and name in plugins.offered("data")):
        return None
    if name not in KNOWN and not name.startswith(hub.PREFIX) and looks_like_path(name):
        return load_own(Path(name), options)
    check_name(name)
    place = find_local(name, data_dir) or hub.get(name, data_dirs(data_dir)[0])
    return load_known(name, place, options) if name in KNOWN else load_own(place, options)


def own_data(name: str) -> DataSet:
    """A data set that was passed as an object, or that another package makes."""
    found = plugins.find("data", name)
    made = found() if callable(found) else found
    if not isinstance(made, DataSet):
        raise DataError(f"data '{name}' is a {type(made).__name__}, not a DataSet: make one with chase.make_data")
    return made


def check_name(name: str) -> None:
    """Refuse a name that is neither known nor on the hub."""
    if name not in SOURCES and not name.startswith(hub.PREFIX):
        raise DataError(
            unknown("data set", name, plugins.known_names("data", SOURCES)) + "; or a path, or hub:owner/set"
        )


def looks_like_path(name: str) -> bool:
    """Whether a name that is not known is meant as a path."""
    path = Path(name)
    if name in SOURCES:
        return False
    return path.exists() or len(path.parts) > 1 or tabular_files.is_table_name(path)


def load_known(name: str, place: Path, wanted: DataOptions) -> Decoded:
    """A named data set from its parquet files, through the cache."""
    known = KNOWN[name]
    options = replace(known.options, image_size=wanted.image_size)
    files = [f for f in (place / "train.parquet", place / "test.parquet") if f.is_file()]
    key = content_key(files, name, options.key(), repr((known.mean, known.std)))

    def make() -> Decoded:
        if known.by_role:
            return read_roles(name, files[0], options.text_column, options.label_column, options.site_column)
        found = [tabular_files.read_table(file) for file in files]
        parts = [replace(readers.read_images(table, options), names=(), files=()) for table in found]
        names = tabular_files.class_names(found[0], options.label_column)
        test = parts[1] if len(parts) > 1 else None
        return assemble(name, parts[0], test, classes=names, mean=known.mean, std=known.std)

    return cached(name, key, make)
