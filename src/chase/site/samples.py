"""A site's own samples: image files in folders, or a CSV or parquet file, each with the name people know it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.client.state import ClientState
from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.data import folders
from chase.data.assemble import Raw, agree_classes, duplicates, hold_out, number_labels, statistics
from chase.data.decoded import DataPart
from chase.data.options import DataOptions
from chase.data.readers import PartFiles, read_part
from chase.data.resident import Column, Samples
from chase.data.tabular_files import is_table_name
from chase.data.texts import tokens_of, words_of
from chase.data.user_data import as_read
from chase.home.originals import ORIGINALS
from chase.site.arrays import Holdout
from chase.site.contract import Contract
from chase.site.create import create
from chase.site.place import Site, SiteCard


def read(paths: Sequence[Path], options: DataOptions, known: tuple[Column, ...] = ()) -> Raw:
    """The samples of one table, or of image files and folders of them; unreadable images are left out and named."""
    missing = [p for p in paths if not p.exists()]
    if missing:
        raise DataError(f"{missing[0]} does not exist: give a folder of images, image files, a CSV or a parquet file")
    options = replace(options, bad_images="skip")
    if len(paths) == 1 and is_table_name(paths[0]):
        return read_part(PartFiles(paths[0].parent, (paths[0],)), options, known)
    if len(paths) == 1 and paths[0].is_dir():
        raw = read_part(PartFiles(paths[0]), options)
    else:
        raw = _read_several(paths, options)
    for label in raw.labels:
        _check_folder(label, options.classes)
    return raw


def _read_several(paths: Sequence[Path], options: DataOptions) -> Raw:
    """Files and folders of images; a file goes by its name, one in a folder by its path there."""
    roots = [(p, file) for p in paths for file in (folders.image_files(p)[0] if p.is_dir() else [p])]
    named = [str(f.relative_to(root)) if root.is_dir() else f.name for root, f in roots]
    labels = [folders.label_of(f, root) if root.is_dir() else None for root, f in roots]
    raw = read_part(PartFiles(paths[0].parent, images=tuple(f for _, f in roots)), options)
    rows = {str(file): row for row, (_, file) in enumerate(roots)}
    kept = [rows[place] for place in raw.where]
    return replace(raw, names=[named[row] for row in kept], labels=[labels[row] for row in kept])


def _check_folder(label: str | None, classes: tuple[str, ...]) -> None:
    """Refuse a folder that is called like no class; with no classes given, every folder is one."""
    if classes and label is not None and label not in classes:
        shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        raise DataError(
            f"folder '{label}' is not one of the {len(classes)} classes {shown}: "
            f"rename it to its class, or to {folders.UNLABELED[0]} if its content is not labelled"
        )


def options_for(contract: Contract | None, options: DataOptions) -> DataOptions:
    """The options under which samples come out as agreed."""
    if contract is None:
        return options
    options = replace(options, classes=contract.classes)
    if contract.kind == "text":
        kept = tokens_of(contract.vocabulary)
        return replace(options, tokens=kept, text_length=words_of(contract.vocabulary, contract.shape))
    if contract.kind != "image":
        return replace(options, columns=tuple(column.name for column in contract.table) or options.columns)
    channels, height, width = contract.shape  # as many as ``Contract`` lets through
    if height != width:
        raise DataError(f"the contract is on images of {width}x{height}; own images are made square")
    return replace(options, channels=channels, image_size=height, scale=contract.scale)


def init(
    path: Path,
    card: SiteCard,
    paths: Sequence[Path],
    options: DataOptions,
    contract: Contract | None = None,
    held_out: float = 0.0,
) -> tuple[Site, tuple[str, ...]]:
    """A new site from its own data; returns it and what its people should know of the data."""
    options = options_for(contract, options)
    found = read(paths, options, () if contract is None else contract.table)
    classes = agree_classes(found.labels, options.classes)
    numbers = number_labels(found.labels, classes, str(paths[0]), found.where)
    _refuse_twins(found.names)
    testing = hold_out(numbers, held_out) if held_out > 0 else np.zeros(numbers.size, dtype=bool)
    rest = np.flatnonzero(~testing)
    kept, set_apart = ([found.names[row] for row in rows.tolist()] for rows in (rest, np.flatnonzero(testing)))
    mean, std = _normalisation(found, rest, contract)
    labeled = np.flatnonzero(numbers[rest] >= 0)
    simulated = card.annotator == "simulated"
    if simulated:  # a simulated annotator knows all labels; as in a simulation it begins with a few of them
        labeled = np.sort(rng(0, "site-start", card.name).permutation(labeled)[: max(1, labeled.size // 20)])
    start = ClientState.start(np.arange(rest.size, dtype=np.int64), labeled, numbers[rest][labeled])
    source: dict[str, Any] = {"paths": [str(p.resolve()) for p in paths], "options": asdict(as_read(found, options))}
    images_in = paths[0].resolve() if len(paths) == 1 and paths[0].is_dir() and found.kind == "image" else None
    site = create(
        path,
        replace(card, source=source),
        Samples(
            torch.from_numpy(found.inputs[rest]),
            found.kind,
            mean,
            std,
            vocabulary=found.vocabulary,
            columns=found.columns,
            scale=found.scale,
        ),
        start,
        classes,
        names=kept,
        texts=[found.texts[row] for row in rest.tolist()] if found.texts else (),
        truth=numbers[rest] if simulated else None,
        holdout=Holdout.new(found.inputs[testing], numbers[testing], set_apart) if testing.any() else None,
        originals=str(images_in or (path / ORIGINALS).resolve() if found.texts else images_in or ""),
    )
    whole = found.part(numbers, None)
    return site, found.problems + _leaks(whole.take(rest), whole.take(np.flatnonzero(testing)))


def _leaks(trained: DataPart, held: DataPart) -> tuple[str, ...]:
    twice = len(duplicates(trained, held)) if held.labels.size else 0
    return (f"{twice} of {held.labels.size} held-out samples equal one that may be trained on",) if twice else ()


def _normalisation(
    found: Raw, rows: NDArray[np.int64], contract: Contract | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if contract is not None:
        return contract.mean, contract.std
    return statistics(found.kind, found.inputs[rows], found.columns)


def _refuse_twins(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"two samples are called {name}: give one folder, so that their names tell them apart")
        seen.add(name)


def read_more(site: Site, paths: Sequence[Path]) -> tuple[Raw, NDArray[np.int64]]:
    """New samples of a site, read as its first were, and their class numbers (-1 unknown)."""
    kept = dict(site.card.source.get("options", {}))
    if not kept:
        raise DataError(
            f"{site.path} was made from a part of a data set; only a site made from its own data accepts new files"
        )
    read_as: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in kept.items()}
    options = DataOptions(**read_as)
    shape = site.samples().shape
    options = replace(options, classes=site.classes)
    if site.home.card.kind == "image":
        options = replace(options, channels=shape[0], image_size=shape[1] if shape[1] == shape[2] else 0)
    found = read(paths, options, site.samples().columns)
    numbers = number_labels(found.labels, site.classes, str(paths[0]), found.where)
    return found, numbers
