"""Which samples a site has already, whatever they are called: a hash of every decoded sample, made once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from chase.core.pools import SampleIds, is_in
from chase.core.weights import Array
from chase.site.place import Site

BYTES = 16


def hashes_of(inputs: Array) -> list[bytes]:
    """A hash a row."""
    if not inputs.shape[0]:
        return []
    flat = np.ascontiguousarray(inputs).reshape(inputs.shape[0], -1).view(np.uint8)
    return [hashlib.blake2b(row.data, digest_size=BYTES).digest() for row in flat]


def samples_by_content(site: Site, ids: SampleIds, inputs: Array) -> dict[bytes, int]:
    """A sample for each content, of these and of those held out; what has no hash yet gets one."""
    parts, held = [(ids, inputs)], site.held_out()
    if held is not None:
        parts.append((held.ids, held.inputs))
    with site.home.database.transaction() as db:
        rows = db.execute("SELECT sample, hash FROM contents ORDER BY sample").fetchall()
        hashed = np.array([row["sample"] for row in rows], dtype=np.int64)
        found = {bytes(row["hash"]): int(row["sample"]) for row in rows}
        for of, content in parts:
            new = ~is_in(of, hashed)
            found |= keep_hashes(site, of[new], hashes_of(content[new]))
    return found


def keep_hashes(site: Site, ids: SampleIds, hashes: Sequence[bytes]) -> dict[bytes, int]:
    """Store the hashes of samples."""
    with site.home.database.transaction() as db:
        db.executemany("INSERT INTO contents VALUES (?, ?)", zip(ids.tolist(), hashes, strict=True))
    return dict(zip(hashes, ids.tolist(), strict=True))


def damaged(site: Site) -> list[int]:
    """Samples whose content is no longer what it was when it was first hashed; those without a hash get one."""
    ids, inputs = site.home.samples()
    samples_by_content(site, ids, inputs)
    parts, held = [(ids, inputs)], site.held_out()
    if held is not None:
        parts.append((held.ids, held.inputs))
    with site.home.database.reading() as db:
        known = {int(row["sample"]): bytes(row["hash"]) for row in db.execute("SELECT sample, hash FROM contents")}
    return [
        sample
        for of, content in parts
        for sample, found in zip(of.tolist(), hashes_of(content), strict=True)
        if known.get(sample, found) != found
    ]


def damaged_count(samples: Sequence[int]) -> str:
    """How many samples, as the beginning of a sentence on their damage."""
    return "1 sample is" if len(samples) == 1 else f"{len(samples)} samples are"
