"""A site's own samples: image files in folders, or a CSV or parquet file, each with the name people know it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chase.client.state import ClientState
from chase.core.errors import DataError
from chase.core.randomness import rng
from chase.core.weights import Array
from chase.data import folders, tables
from chase.data.assemble import agree_classes, duplicates, hold_out, number_labels
from chase.data.images import channel_statistics, decode
from chase.data.options import DataOptions
from chase.data.pictures import BYTE, Scale
from chase.data.resident import Kind, Samples
from chase.data.user_data import TABLE_SUFFIXES, fill_columns
from chase.site.agreement import Agreement
from chase.site.arrays import ORIGINALS, Holdout
from chase.site.create import create
from chase.site.place import Site, SiteCard


@dataclass(frozen=True)
class Found:
    """Samples as they were read: a row, a name and perhaps a label each."""

    kind: Kind
    inputs: Array
    names: tuple[str, ...]
    labels: tuple[str | None, ...]
    texts: tuple[str, ...] = ()
    """For texts: as people read them."""
    vocabulary: int = 0
    problems: tuple[str, ...] = ()
    scale: Scale = BYTE


def read(paths: Sequence[Path], options: DataOptions) -> Found:
    """The samples of one table, or of image files and folders of them; unreadable images are left out and named."""
    missing = [p for p in paths if not p.exists()]
    if missing:
        raise DataError(f"{missing[0]} does not exist: give a folder of images, image files, a CSV or a parquet file")
    if len(paths) == 1 and paths[0].suffix in TABLE_SUFFIXES:
        return _read_table(paths[0], options)
    files = [(root, file) for root in paths for file in _images(root)]
    if not files:
        raise DataError(f"{paths[0]} holds no images ({', '.join(sorted(folders.SUFFIXES))})")
    names = [str(file.relative_to(root)) if root.is_dir() else file.name for root, file in files]
    labels = [_label(name, options.classes) for name in names]
    images = decode([file for _, file in files], names, replace(options, bad_images="skip"))
    kept = images.kept.tolist()
    named, labeled = tuple(names[row] for row in kept), tuple(labels[row] for row in kept)
    return Found("image", images.pixels, named, labeled, problems=images.problems, scale=images.scale)


def _images(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found = sorted(p for p in root.rglob("*") if p.is_file() and p.suffix.lower() in folders.SUFFIXES)
    return [p for p in found if not any(part.startswith(".") for part in p.relative_to(root).parts)]


def _label(name: str, classes: tuple[str, ...]) -> str | None:
    """The class that an image's folder is called like; with no classes given, every folder is one."""
    parts = Path(name).parts
    if len(parts) < 2 or parts[0] in folders.UNLABELED:
        return None
    if classes and parts[0] not in classes:
        shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
        raise DataError(
            f"folder '{parts[0]}' is none of the {len(classes)} classes {shown}: "
            f"call it like its class, or {folders.UNLABELED[0]} if nobody has labelled what is in it"
        )
    return parts[0]


def _read_table(path: Path, options: DataOptions) -> Found:
    table = tables.read_table(path)
    options = replace(fill_columns(table, options), bad_images="skip")
    labels = tables.labels_as_text(table, options.label_column)
    if options.image_column:
        raws, called = tables.image_cells(table, options.image_column)
        images = decode(raws, called, options)
        kept = images.kept.tolist()
        names = tuple(f"{path.stem}-{row}" if called[row].startswith("in row") else called[row] for row in kept)
        labeled = tuple(labels[r] for r in kept)
        return Found("image", images.pixels, names, labeled, problems=images.problems, scale=images.scale)
    raw = tables.read_texts(path, options)
    cells = table.column(options.text_column, "text").to_pylist()
    texts = tuple("" if cell is None else str(cell) for cell in cells)
    names = tuple(f"{path.stem}-{row}.txt" for row in range(len(texts)))
    return Found("text", raw.inputs, names, tuple(raw.labels), texts, raw.vocabulary, raw.problems)


def options_for(agreement: Agreement | None, options: DataOptions) -> DataOptions:
    """The options under which samples come out as agreed."""
    if agreement is None:
        return options
    options = replace(options, classes=agreement.classes)
    if agreement.kind == "text":
        return replace(options, text_length=agreement.shape[0])
    channels, height, width = agreement.shape  # as many as ``Agreement`` lets through
    if height != width:
        raise DataError(f"the agreement is on images of {width}x{height}; own images are made square")
    return replace(options, channels=channels, image_size=height, scale=agreement.scale)


def init(
    path: Path,
    card: SiteCard,
    paths: Sequence[Path],
    options: DataOptions,
    agreement: Agreement | None = None,
    held_out: float = 0.0,
) -> tuple[Site, tuple[str, ...]]:
    """A new site from its own data; returns it and what its people should know of the data."""
    options = options_for(agreement, options)
    found = read(paths, options)
    classes = agree_classes(found.labels, options.classes)
    numbers = number_labels(found.labels, classes, str(paths[0]))
    _refuse_twins(found.names)
    testing = hold_out(numbers, held_out) if held_out > 0 else np.zeros(numbers.size, dtype=bool)
    rest = np.flatnonzero(~testing)
    kept, set_apart = ([found.names[row] for row in rows.tolist()] for rows in (rest, np.flatnonzero(testing)))
    mean, std = _normalisation(found, rest, agreement)
    labeled = np.flatnonzero(numbers[rest] >= 0)
    simulated = card.annotator == "simulated"
    if simulated:  # a simulated annotator knows all labels; as in a simulation it begins with a few of them
        labeled = np.sort(rng(0, "site-start", card.name).permutation(labeled)[: max(1, labeled.size // 20)])
    start = ClientState.start(np.arange(rest.size, dtype=np.int64), labeled, numbers[rest][labeled])
    source: dict[str, Any] = {"paths": [str(p.resolve()) for p in paths], "options": asdict(options)}
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
    return site, found.problems + _leaks(found.inputs[rest], found.inputs[testing])


def _leaks(trained: Array, held: Array) -> tuple[str, ...]:
    twice = duplicates(trained, held) if held.shape[0] else 0
    return (f"{twice} of {held.shape[0]} held-out samples equal one that may be trained on",) if twice else ()


def _normalisation(
    found: Found, rows: NDArray[np.int64], agreement: Agreement | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if agreement is not None:
        return agreement.mean, agreement.std
    return channel_statistics(found.inputs[rows]) if found.kind == "image" else ((0.0,), (1.0,))


def _refuse_twins(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"two samples are called {name}: give one folder, so that their names tell them apart")
        seen.add(name)


def read_more(site: Site, paths: Sequence[Path]) -> tuple[Found, NDArray[np.int64]]:
    """New samples of a site, read as its first were, and their class numbers (-1 unknown)."""
    kept = dict(site.card.source.get("options", {}))
    if not kept:
        raise DataError(f"{site.path} was cut from a data set; only a site with data of its own takes new files")
    options = DataOptions(**(kept | {"classes": tuple(kept.get("classes", ()))}))
    shape = site.samples().shape
    options = replace(options, classes=site.classes)
    if site.home.card.kind == "image":
        options = replace(options, channels=shape[0], image_size=shape[1] if shape[1] == shape[2] else 0)
    found = read(paths, options)
    numbers = number_labels(found.labels, site.classes, str(paths[0]))
    return found, numbers
