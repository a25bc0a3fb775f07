"""Clients' saved states, many to a file.

A segment holds the states (safetensors blobs, end to end) that one process wrote in one round. A bundle is the
segments of a round and their index: client, segment, place, size, SHA-256 and counts of each state. A state is
hashed when it is read, so a resume reads the indexes and then only the states of clients that take part.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from chase.core.errors import CheckpointError
from chase.core.files import write_atomically, writing
from chase.core.messages import ClientId
from chase.core.weights import Array, Arrays, from_bytes, read, to_bytes

Counts = tuple[int, ...]


@dataclass(frozen=True)
class SavedFile:
    """A file of a checkpoint, by name within it."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedState:
    """Where a client's state is, and what it must hash to."""

    segment: str
    offset: int
    size: int
    sha256: str
    round: int = 0
    """The round of the turn that left it: of two states of a client the later one counts."""
    counts: Counts = ()
    """Numbers that are known of a client without reading its state."""

    def values(self) -> tuple[str, int, int, str, int, Counts]:
        """All of it for a message, in order: ``SavedState(*values)`` is the same again."""
        return self.segment, self.offset, self.size, self.sha256, self.round, self.counts


def check_file(directory: Path, saved: SavedFile) -> None:
    """Refuse a file that is missing or not what was written."""
    file = directory / saved.name
    if not file.is_file():
        raise CheckpointError(f"{file} is missing")
    if hashlib.sha256(file.read_bytes()).hexdigest() != saved.sha256:
        raise CheckpointError(f"{file} is damaged (its checksum differs)")


def write_file(directory: Path, name: str, arrays: Arrays, durable: bool = False) -> SavedFile:
    """One file of arrays, whole or not at all."""
    blob = to_bytes(arrays)
    write_atomically(directory / name, blob, durable=durable)
    return SavedFile(name, hashlib.sha256(blob).hexdigest())


class SegmentWriter:
    """Adds states to a new file; what was added can be read at once. The file is open until ``close`` or the end."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.path, self._at = name, directory / name, 0
        with writing(self.path):
            directory.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._file, self.close = file, weakref.finalize(self, os.close, file)

    def add(self, blob: bytes, round: int) -> SavedState:
        """Where the state, which is of this round, is now."""
        saved = SavedState(self.name, self._at, len(blob), hashlib.sha256(blob).hexdigest(), round)
        with writing(self.path):
            rest = memoryview(blob)
            while rest:  # a write may be short
                rest = rest[os.write(self._file, rest) :]
        self._at += len(blob)
        return saved


def read_state(directory: Path, saved: SavedState) -> bytes:
    """A state as it was written; a damaged one names its segment."""
    return next(read_states(directory / saved.segment, [saved]))


def read_states(path: Path, states: Iterable[SavedState]) -> Iterator[bytes]:
    """States of one segment as they were written, each checked."""
    try:
        with path.open("rb") as file:
            for saved in states:
                file.seek(saved.offset)
                blob = file.read(saved.size)
                if hashlib.sha256(blob).hexdigest() != saved.sha256:
                    raise CheckpointError(f"{path} is damaged (the checksum of a client's state differs)")
                yield blob
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None


def state_arrays(blob: bytes) -> dict[str, Array]:
    """The arrays of a state."""
    try:
        return from_bytes(blob)
    except (LookupError, ValueError, TypeError) as error:
        raise CheckpointError(f"a client's saved state cannot be read: {error}") from error


@dataclass(eq=False)
class Bundle:
    """States that were saved together, and how many of them are still the newest of their client."""

    index: SavedFile | None
    """None in a checkpoint of format 1, which has a file per client and no index."""
    segments: tuple[str, ...]
    records: int
    live: int
    states: dict[ClientId, SavedState] = field(default_factory=dict, repr=False)
    """Filled while a bundle is made or read; dropped when the checkpoint has taken it in."""

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        if self.index is None:
            raise CheckpointError("a bundle without an index cannot be named")
        return {"index": vars(self.index), "segments": list(self.segments), "records": self.records}


def write_bundle(directory: Path, name: str, states: Mapping[ClientId, SavedState]) -> Bundle:
    """Write the index of states that are in segments already."""
    segments = sorted({saved.segment for saved in states.values()})
    number = {segment: n for n, segment in enumerate(segments)}
    clients = sorted(states)
    rows = [states[client] for client in clients]
    digests = b"".join(bytes.fromhex(saved.sha256) for saved in rows)
    width = max((len(saved.counts) for saved in rows), default=0)
    counts = [(*saved.counts, *(0 for _ in range(width - len(saved.counts)))) for saved in rows]
    arrays: dict[str, Array] = {
        "client": np.array(clients, dtype=np.int64),
        "place": np.array([[number[s.segment], s.offset, s.size, s.round] for s in rows], dtype=np.int64),
        "sha256": np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32),
        "counts": np.array(counts, dtype=np.int64).reshape(len(rows), -1),
    }
    index = write_file(directory, f"{name}.index", arrays)
    return Bundle(index, tuple(segments), len(rows), len(rows), dict(states))


def read_bundle(directory: Path, body: Mapping[str, Any]) -> Bundle:
    """A bundle that a manifest names, its index checked."""
    index = SavedFile(**body["index"])
    check_file(directory, index)
    arrays = read(directory / index.name)
    segments = tuple(str(name) for name in body["segments"])
    place, counts = arrays["place"].tolist(), arrays["counts"].tolist()
    digests = arrays["sha256"].tobytes().hex()
    states = {
        client: SavedState(segments[s], offset, size, digests[64 * n : 64 * n + 64], round, tuple(counts[n]))
        for n, (client, (s, offset, size, round)) in enumerate(zip(arrays["client"].tolist(), place, strict=True))
    }
    for segment in segments:
        needed = max(s.offset + s.size for s in states.values() if s.segment == segment)
        file = directory / segment
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        if file.stat().st_size < needed:
            raise CheckpointError(f"{file} is damaged (it ends early)")
    return Bundle(index, segments, len(states), len(states), states)


def merge(directory: Path, name: str, states: Mapping[ClientId, SavedState]) -> Bundle:
    """The states copied into one new segment; each is checked on the way."""
    moved: dict[ClientId, SavedState] = {}
    by_segment = groupby(sorted(states.items(), key=lambda item: (item[1].segment, item[1].offset)), _segment_of)
    with closing(SegmentWriter(directory, f"{name}.states")) as writer:
        for segment, group in by_segment:
            some = list(group)
            blobs = read_states(directory / segment, [saved for _, saved in some])
            for (client, saved), blob in zip(some, blobs, strict=True):
                moved[client] = replace(writer.add(blob, saved.round), counts=saved.counts)
    return write_bundle(directory, name, moved)


def _segment_of(item: tuple[ClientId, SavedState]) -> str:
    return item[1].segment


TIER = 4
PER_TIER = 8


def to_merge(bundles: Sequence[Bundle]) -> Iterator[list[Bundle]]:
    """Which bundles should become one: eight of about the same size, or those that are mostly outdated.

    Sizes grow by powers, so a state is copied a few times over a whole run, however many rounds that has.
    """
    outdated = [b for b in bundles if b.records > 2 * b.live]
    if sum(b.records - b.live for b in bundles) > sum(b.live for b in bundles) and outdated:
        yield outdated
        bundles = [b for b in bundles if b not in outdated]
    tiers: dict[int, list[Bundle]] = {}
    for bundle in bundles:
        tiers.setdefault(_tier(bundle.live), []).append(bundle)
    yield from (some for some in tiers.values() if len(some) >= PER_TIER)


def _tier(live: int) -> int:
    tier = 0
    while live >= TIER:
        live, tier = live // TIER, tier + 1
    return tier
