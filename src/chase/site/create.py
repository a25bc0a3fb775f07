"""Making sites: from a site's own data, or cut from a data set to try things out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chase.client.state import ClientState
from chase.core.errors import LabelError
from chase.core.messages import ClientId
from chase.data.resident import DataSet, Samples
from chase.home.home import Home, HomeCard
from chase.home.originals import ORIGINALS, keep_texts
from chase.simulation.world import World
from chase.site.arrays import Holdout, write_arrays, write_start
from chase.site.place import MAKING, Site, SiteCard, check_name, write_card

Labels = NDArray[np.int64]


def create(
    path: Path,
    card: SiteCard,
    samples: Samples,
    start: ClientState,
    classes: tuple[str, ...],
    *,
    names: list[str] | None = None,
    texts: Sequence[str] = (),
    truth: Labels | None = None,
    holdout: Holdout | None = None,
    originals: str = "",
    number: ClientId = -1,
) -> Site:
    """A new site; ``samples`` holds the rows of ``start.ids`` in that order, ``texts`` what people read of them.

    A site whose making was cut short is made again: the file ``making`` is in it until it is complete.
    """
    check_name(card.name)
    begin(path)
    labeled = start.pools.labeled
    initial = dict(zip(labeled.tolist(), start.labels_of(labeled).tolist(), strict=True))
    home_card = HomeCard(
        client=number,
        name=card.name,
        classes=classes,
        kind=samples.kind,
        mean=samples.mean,
        std=samples.std,
        vocabulary=samples.vocabulary,
        scale=samples.scale,
        columns=tuple(column.to_json() for column in samples.columns),
        data=dict(card.source),
        originals=originals,
    )
    Home.create(path, home_card, start.ids, samples.inputs.numpy(), names, initial).close()
    if texts and names is not None:
        keep_texts(path, names, texts)
    write_start(path, start)
    if truth is not None:
        write_arrays(path, "truth", {"ids": start.ids, "labels": truth})
    if holdout is not None:
        holdout.write(path)
    next_id = max(card.next_id, int(start.ids.max()) + 1 if start.ids.size else 0)
    write_card(path, replace(card, next_id=next_id))
    (path / MAKING).unlink()
    return Site(path)


def begin(path: Path) -> None:
    """Mark a directory as being made into a site, and clear away what an earlier try has left there."""
    if (path / MAKING).exists() and not (path / "site.json").exists():
        for name in ("client.json", "truth.safetensors", "holdout.safetensors"):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / ORIGINALS, ignore_errors=True)
    if (path / "client.json").exists():
        raise LabelError(f"{path} is a client's home already: open it, or choose another directory")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / MAKING).touch()
    except OSError as error:
        raise LabelError(f"cannot write {path}: {error.strerror or error}") from error


def cut(path: Path, world: World, data: DataSet, number: ClientId, card: SiteCard, held_out: bool) -> Site:
    """A site that is exactly client ``number`` of a simulated world over this data.

    With ``held_out`` it also gets its share of the test part: the training part stays as in the simulation.
    """
    part = world.parts[number]
    rows = np.arange(number, data.test_labels.size, world.settings.clients)
    return create(
        path,
        card,
        replace(data.train, inputs=data.train.inputs[part], ids=None),
        world.start(number),
        data.classes,
        truth=data.train_labels[part] if card.annotator == "simulated" else None,
        holdout=Holdout.new(data.test.inputs.numpy()[rows], data.test_labels[rows]) if held_out else None,
        number=number,
    )
