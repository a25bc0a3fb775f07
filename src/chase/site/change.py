"""Between two turns a site may get new samples and lose others, for good.

``add`` puts new samples into the pool; ``forget`` removes a sample, its label and every trace of both from the
site's files. What the shared model has learnt from a label cannot be taken out of it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from chase.annotation.inbox import Given
from chase.core.errors import DataError, LabelError
from chase.core.pools import SampleIds, as_ids, is_in
from chase.core.weights import Array
from chase.homestore import HomeStore
from chase.site.place import Site
from chase.state import ClientState

IMPORTER = "imported"
"""The annotator that labels which came with new files are booked under."""


def add(site: Site, inputs: Array, names: Sequence[str], labels: NDArray[np.int64]) -> SampleIds:
    """New samples, with their labels where they have one (-1 if not); returns their ids."""
    with site.locked():
        ids_before, before = site.home.samples()
        if inputs.shape[1:] != before.shape[1:] or inputs.dtype != before.dtype:
            raise DataError(
                f"new samples are {inputs.dtype}{list(inputs.shape[1:])}, the site has "
                f"{before.dtype}{list(before.shape[1:])}: read them as the site's own were read"
            )
        _refuse_known(site, names)
        ids = np.arange(site.card.next_id, site.card.next_id + len(names), dtype=np.int64)
        site.keep(replace(site.card, next_id=site.card.next_id + len(names)))
        # A sample in the file but in no pool is harmless; the other way round a turn would fail.
        site.write("samples", {"ids": np.concatenate([ids_before, ids]), "inputs": np.concatenate([before, inputs])})
        if site.card.annotator == "simulated":
            truth = site.read("truth")
            both = {"ids": (truth["ids"], ids), "labels": (truth["labels"], labels)}
            site.write("truth", {name: np.concatenate(parts) for name, parts in both.items()})
        _enter(site, ids, names, labels)
    return ids


def _refuse_known(site: Site, names: Sequence[str]) -> None:
    twice = [n for n in names if site.home.inbox.sample_named(n) is not None]
    if twice or len(set(names)) < len(names):
        shown = ", ".join((twice or [n for n in names if names.count(n) > 1])[:3])
        raise DataError(f"{len(twice) or 'some'} of the new samples are there already ({shown}): add each once")


def _enter(site: Site, ids: SampleIds, names: Sequence[str], labels: NDArray[np.int64]) -> None:
    store = HomeStore(site.home, site.start())
    home = site.home
    with home.database.transaction():
        home.inbox.add_samples(dict(zip(ids.tolist(), names, strict=True)))
        if not store.amend(lambda state: state.add(ids)):
            _change_start(site, site.start().add(ids))
        if site.card.annotator != "simulated" and (labels >= 0).any():
            who = home.people.named(IMPORTER).id
            known = [(int(i), int(c)) for i, c in zip(ids, labels, strict=True) if c >= 0]
            home.inbox.answer_all([Given(i, c, who, source="import") for i, c in known])
    store.sweep()


def _change_start(site: Site, start: ClientState) -> None:
    labeled = start.pools.labeled
    site.write("start", {"ids": start.ids, "labeled": labeled, "labels": start.labels_of(labeled)})


def find(site: Site, names: Sequence[str]) -> SampleIds:
    """The ids of samples by name; an unknown name is refused."""
    found = {name: site.home.inbox.sample_named(name) for name in names}
    unknown = [name for name, sample in found.items() if sample is None]
    if unknown:
        raise LabelError(f"{site.path} has no sample called {', '.join(unknown[:3])}: `chase site status` counts them")
    return as_ids([sample for sample in found.values() if sample is not None])


def forget(site: Site, ids: SampleIds) -> None:
    """Remove samples and their labels from every file of the site."""
    with site.locked():
        start = site.start()
        known = HomeStore(site.home, start).load()
        stray = ids[~is_in(ids, known.ids)]
        if stray.size:
            raise LabelError(f"sample {int(stray[0])} is not in a pool of {site.path}")
        store, gone = HomeStore(site.home, start), frozenset(ids.tolist())
        copies = [site.path / "originals" / str(site.home.inbox.sample_name(sample)) for sample in gone]
        with site.home.database.reading() as db:
            db.execute("PRAGMA secure_delete = ON")
        with site.home.database.transaction() as db:
            store.amend(lambda state: state.forget(ids[is_in(ids, state.ids)]), gone)
            for table, column in (("answers", "sample"), ("questions", "sample"), ("samples", "id")):
                db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(sample,) for sample in gone])
            _change_start(site, start.forget(ids[is_in(ids, start.ids)]))
        with site.home.database.reading() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.sweep()
        _drop_rows(site, ids)
        for copy in copies:
            copy.unlink(missing_ok=True)


def _drop_rows(site: Site, ids: SampleIds) -> None:
    """Rewrite the files that hold a row a sample, without these."""
    held, inputs = site.home.samples()
    stay = ~is_in(held, ids)
    site.write("samples", {"ids": held[stay], "inputs": inputs[stay]})
    if site.card.annotator == "simulated":
        truth = site.read("truth")
        stay = ~is_in(truth["ids"], ids)
        site.write("truth", {name: array[stay] for name, array in truth.items()})
