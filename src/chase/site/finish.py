"""Finishing what ``add`` and ``forget`` have committed.

Either commits its change to the inbox in one transaction, which also notes the samples in the table ``unfinished``.
Only then are the other files brought in line, and the note is struck out last: killed at any moment, the change is
not begun or is finished by whoever opens or changes the site next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chase.core.pools import SampleIds, as_ids, is_in
from chase.home.home import Home
from chase.home.originals import ORIGINALS, original_name
from chase.home.store import ClientStore
from chase.site.arrays import Holdout, read_arrays, read_start, write_arrays, write_start


def known_ids(home: Home) -> SampleIds:
    """The samples that the inbox knows; a row of a file for any other is a leftover."""
    with home.database.reading() as db:
        return as_ids([row["id"] for row in db.execute("SELECT id FROM samples")])


def is_unfinished(home: Home) -> bool:
    """Whether a change is committed but not yet in every file."""
    with home.database.reading() as db:
        return db.execute("SELECT 1 FROM unfinished LIMIT 1").fetchone() is not None


def finish(home: Home) -> None:
    """Bring the files of a site in line with its inbox; to be called under the site's lock."""
    for half_written in home.path.glob(".*.safetensors.*.tmp"):
        half_written.unlink(missing_ok=True)
    with home.database.reading() as db:
        rows = db.execute("SELECT sample, name, added FROM unfinished").fetchall()
    if not rows:
        return
    gone = as_ids([row["sample"] for row in rows if not row["added"]])
    _change_start(home, as_ids([row["sample"] for row in rows if row["added"]]), gone)
    if gone.size:
        _drop_rows(home, gone)
        _drop_originals(home, [row["name"] for row in rows if not row["added"]])
        ClientStore(home, read_start(home.path)).sweep()
    erase_deleted(home)
    with home.database.transaction() as db:
        db.execute("DELETE FROM unfinished")
    erase_deleted(home)


def erase_deleted(home: Home) -> None:
    """Overwrite what this connection deletes, and let no log keep what it has deleted."""
    with home.database.reading() as db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _change_start(home: Home, added: SampleIds, gone: SampleIds) -> None:
    start = read_start(home.path)
    changed = start.add(added[~is_in(added, start.ids)])
    changed = changed.forget(gone[is_in(gone, changed.ids)])
    if not np.array_equal(changed.ids, start.ids):
        write_start(home.path, changed)


def _drop_rows(home: Home, gone: SampleIds) -> None:
    """Rewrite the files that hold one row per sample, with those that the inbox knows."""
    known = known_ids(home)
    for name in ("samples", "truth"):
        if (home.path / f"{name}.safetensors").is_file():
            arrays = read_arrays(home.path, name)
            stay = is_in(arrays["ids"], known)
            if not stay.all():
                write_arrays(home.path, name, {key: array[stay] for key, array in arrays.items()})
    held = Holdout.read(home.path)
    if held is not None and np.isin(held.ids, gone).any():
        held.without(gone).write(home.path)


def _drop_originals(home: Home, names: Sequence[str]) -> None:
    """Remove the texts that the site itself keeps; files outside of it are not the site's."""
    root = (home.path / ORIGINALS).resolve()
    for name in names:
        for copy in ((root / name).resolve(), root / original_name(name)):  # the first form is that of older sites
            if copy != root and copy.is_relative_to(root):
                copy.unlink(missing_ok=True)
    for half_written in root.glob(".*.tmp"):
        half_written.unlink(missing_ok=True)
