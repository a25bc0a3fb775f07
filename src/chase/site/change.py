"""Between two turns a site may get new samples and lose others, for good.

``add`` puts new samples into the pool; ``forget`` removes a sample, its label and every trace of both from the
site's files. What the shared model has learnt from a label cannot be taken out of it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from chase.core.errors import DataError, LabelError
from chase.core.pools import SampleIds, as_ids, is_in
from chase.core.weights import Array
from chase.home.inbox import Given
from chase.home.originals import keep_texts
from chase.home.store import ClientStore
from chase.site.contents import hashes_of, keep_hashes, samples_by_content
from chase.site.finish import erase_deleted, finish, known_ids
from chase.site.place import Site

IMPORTER = "imported"
"""The annotator that labels which came with new files are booked under."""
HOLD_A_SAMPLE = {
    "answers": "sample",
    "verdicts": "sample",
    "reviews": "sample",
    "looked": "sample",
    "questions": "sample",
    "gold": "sample",
    "about": "sample",
    "samples": "id",
    "contents": "sample",
}
"""The tables that tell something of a sample, and the column that names it."""


@dataclass(frozen=True)
class New:
    """Samples to be added: a row, a name and perhaps a label each."""

    inputs: Array
    names: Sequence[str]
    labels: NDArray[np.int64]
    """Class numbers, -1 where nobody knows."""
    texts: Sequence[str] = ()
    """For texts: as people read them."""

    def take(self, rows: Sequence[int]) -> New:
        """Some of them."""
        texts = [self.texts[row] for row in rows] if self.texts else ()
        return New(self.inputs[list(rows)], [self.names[row] for row in rows], self.labels[list(rows)], texts)


@dataclass(frozen=True)
class Added:
    """What became of new samples."""

    ids: SampleIds
    labeled: int
    """How many of those that entered have a label."""
    twins: tuple[tuple[str, str], ...]
    """The samples that were left out, each with the name of the one that it equals."""


def add(site: Site, new: New) -> Added:
    """Put new samples into the pool; one whose content the site has already is left out."""
    with site.locked():
        before = _known_rows(site, "samples")
        _refuse_misfits(before["inputs"], new.inputs)
        hashes = hashes_of(new.inputs)
        rows, twins = _tell_twins(site, samples_by_content(site, before["ids"], before["inputs"]), new.names, hashes)
        entering = new.take(rows)
        _refuse_known(site, entering.names)
        ids = np.arange(site.card.next_id, site.card.next_id + len(rows), dtype=np.int64)
        if rows:
            # Refused here, if at all: from the next line on files are written.
            ClientStore(site.home, site.start()).load().add(ids)
            site.keep(replace(site.card, next_id=site.card.next_id + len(rows)))
            _write_rows(site, before, ids, entering)
            _enter(site, ids, entering, [hashes[row] for row in rows])
        return Added(ids, int((entering.labels >= 0).sum()), twins)


def _known_rows(site: Site, name: str) -> dict[str, Array]:
    """A file that holds one row per sample, without what an interrupted addition left in it."""
    arrays = site.read(name)
    stay = is_in(arrays["ids"], known_ids(site.home))
    return arrays if stay.all() else {key: array[stay] for key, array in arrays.items()}


def _refuse_misfits(before: Array, inputs: Array) -> None:
    if inputs.shape[1:] != before.shape[1:] or inputs.dtype != before.dtype:
        raise DataError(
            f"new samples are {inputs.dtype}{list(inputs.shape[1:])}, the site has "
            f"{before.dtype}{list(before.shape[1:])}: read them as the site's own were read"
        )


def _tell_twins(
    site: Site, known: Mapping[bytes, int], names: Sequence[str], hashes: Sequence[bytes]
) -> tuple[list[int], tuple[tuple[str, str], ...]]:
    """The rows whose content is new, and the names of the others with what they equal."""
    held_out = site.held_out_names()
    first: dict[bytes, str] = {}
    rows, twins = [], []
    for row, (name, content) in enumerate(zip(names, hashes, strict=True)):
        if content in known:
            sample = known[content]
            twins.append((name, held_out.get(sample) or site.home.inbox.sample_name(sample) or str(sample)))
        elif content in first:
            twins.append((name, first[content]))
        else:
            first[content] = name
            rows.append(row)
    return rows, tuple(twins)


def _refuse_known(site: Site, names: Sequence[str]) -> None:
    with site.home.database.reading() as db:
        seen = {row["name"] for row in db.execute("SELECT name FROM samples")}
    seen |= set(site.held_out_names().values())
    twice = []
    for name in names:
        if name in seen:
            twice.append(name)
        seen.add(name)
    if twice:
        raise DataError(
            f"{len(twice)} of the new samples have names that exist already "
            f"({', '.join(twice[:3])}): rename them, or remove the others first with `chase site forget`"
        )


def _write_rows(site: Site, before: Mapping[str, Array], ids: SampleIds, new: New) -> None:
    """Rows for the new samples. One in a file but in no pool is harmless, and the next change drops it."""
    _append(site, "samples", before, {"ids": ids, "inputs": new.inputs})
    if site.card.annotator == "simulated":
        _append(site, "truth", _known_rows(site, "truth"), {"ids": ids, "labels": new.labels})
    keep_texts(site.path, new.names if new.texts else (), new.texts)


def _append(site: Site, name: str, before: Mapping[str, Array], more: Mapping[str, Array]) -> None:
    site.write(name, {key: np.concatenate([before[key], rows]) for key, rows in more.items()})


def _enter(site: Site, ids: SampleIds, new: New, hashes: Sequence[bytes]) -> None:
    store, home = ClientStore(site.home, site.start()), site.home
    names = dict(zip(ids.tolist(), new.names, strict=True))
    with home.database.transaction() as db:
        home.inbox.add_samples(names)
        keep_hashes(site, ids, hashes)
        if not store.amend(lambda state: state.add(ids)):
            db.executemany("INSERT INTO unfinished VALUES (?, ?, 1)", names.items())
        if site.card.annotator != "simulated" and (new.labels >= 0).any():
            who = home.people.named(IMPORTER, comes=False).id
            known = [(int(i), int(c)) for i, c in zip(ids, new.labels, strict=True) if c >= 0]
            home.inbox.answer_all([Given(i, c, who, source="import") for i, c in known])
    finish(home)
    store.sweep()


def find(site: Site, names: Sequence[str]) -> SampleIds:
    """The ids of samples by name, held-out ones too; an unknown name is refused."""
    held_out = {name: sample for sample, name in site.held_out_names().items()}
    found = {name: site.home.inbox.sample_named(name) for name in names}
    found |= {name: held_out.get(name) for name, sample in found.items() if sample is None}
    unknown = [name for name, sample in found.items() if sample is None]
    if unknown:
        raise LabelError(f"{site.path} has no sample called {', '.join(unknown[:3])}: `chase site status` counts them")
    return as_ids([sample for sample in found.values() if sample is not None])


def forget(site: Site, ids: SampleIds) -> None:
    """Remove samples and their labels from every file of the site."""
    with site.locked():
        store = ClientStore(site.home, site.start())
        trained, asked = ids[is_in(ids, store.load().ids)], ids.tolist()
        names = {sample: site.home.inbox.sample_name(sample) or "" for sample in trained.tolist()}
        held_out = site.held_out_names()
        names |= {sample: held_out[sample] for sample in asked if sample in held_out}
        stray = [sample for sample in asked if sample not in names]
        if stray:
            raise LabelError(f"sample {stray[0]} is not in a pool of {site.path}")
        erase_deleted(site.home)
        with site.home.database.transaction() as db:
            if trained.size:
                gone = frozenset(trained.tolist())
                store.amend(lambda state: state.forget(ids[is_in(ids, state.ids)]), gone)
            for table, column in HOLD_A_SAMPLE.items():
                db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(sample,) for sample in names])
            db.executemany("INSERT INTO unfinished VALUES (?, ?, 0)", names.items())
        finish(site.home)
