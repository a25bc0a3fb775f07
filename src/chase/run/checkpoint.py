"""The saved state of a run: the global model, and the state of every client that has had a turn.

Each process appends the states of its clients to a segment of the round (``segments``). A round is saved when its
manifest (``000012.json``: the server's file, and the bundles that hold the clients' states) is in place; the two
newest manifests are kept with all that they name. What a round writes depends on who took part, not on who exists;
bundles that are small or mostly outdated are merged now and then.

Reading takes the newest manifest whose server file, indexes and own round's states are whole. Older states are
checked when they are read: both manifests name the same ones, so there is nothing to fall back on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chase.core.errors import CheckpointError
from chase.core.files import write_atomically
from chase.core.messages import ClientId
from chase.core.weights import Array, Arrays, read, to_bytes
from chase.run.segments import (
    Bundle,
    Counts,
    SavedFile,
    SavedState,
    SegmentWriter,
    check_file,
    merge,
    read_bundle,
    read_state,
    read_states,
    state_arrays,
    to_merge,
    write_bundle,
    write_file,
)

FORMAT = 2
"""Format 1 had a file per client; it is still read."""
KEPT = 2
"""Saved rounds that are kept unless more are asked for."""


@dataclass(frozen=True)
class Manifest:
    """What belongs to one saved round."""

    round: int
    server: SavedFile
    bundles: list[Bundle] = field(default_factory=list, repr=False)


class Checkpoint:
    """Reads and writes ``checkpoint/`` of a run directory.

    One process commits; others (``writer`` names them apart) only write and read states.
    """

    def __init__(
        self, path: Path, writer: str = "main", last: int = KEPT, every: int = 0, durable: bool = False
    ) -> None:
        """``last``: the newest rounds that are kept; ``every``: besides them each round that it divides (0 = none).

        ``durable``: a saved round outlives a power cut, the server's part of it at least.
        """
        self.path, self._writer, self._last, self._every = path, writer, max(1, last), every
        self._durable = durable
        self._segment: tuple[int, SegmentWriter] | None = None
        self._known = False
        self._bundles: list[Bundle] = []
        self._home: dict[ClientId, tuple[SavedState, Bundle]] = {}
        self._staged: dict[ClientId, SavedState] = {}

    def write_client(self, client: ClientId, round: int, state: Arrays | bytes) -> SavedState:
        """Add a client's state after its turn in ``round`` to this process's segment."""
        if self._segment is None or self._segment[0] != round:
            if self._segment is not None:
                self._segment[1].close()
            self._segment = round, SegmentWriter(self.path, f"{round:06d}-{self._writer}.states")
        return self._segment[1].add(state if isinstance(state, bytes) else to_bytes(state), round)

    def read_client(self, saved: SavedState) -> dict[str, Array]:
        """The arrays of a client's state."""
        return state_arrays(self.read_blob(saved))

    def read_blob(self, saved: SavedState) -> bytes:
        """A client's state as it is in the file, for another process."""
        return read_state(self.path, saved)

    def read_blobs(self, wanted: Iterable[SavedState]) -> dict[SavedState, bytes]:
        """Several states, each segment opened once."""
        by_segment: dict[str, list[SavedState]] = {}
        for saved in wanted:
            by_segment.setdefault(saved.segment, []).append(saved)
        return {
            saved: blob
            for segment, some in by_segment.items()
            for saved, blob in zip(some, read_states(self.path / segment, some), strict=True)
        }

    def read_arrays(self, saved: SavedFile) -> dict[str, Array]:
        """The arrays of a file."""
        return read(self.path / saved.name)

    def stage(self, client: ClientId, saved: SavedState, counts: Counts = ()) -> None:
        """The client's state of the round under way: it counts when the round is committed."""
        self._staged[client] = replace(saved, counts=counts)

    def where(self, client: ClientId) -> SavedState | None:
        """The newest state of a client, the round under way included; None before its first turn."""
        self._open()
        if client in self._staged:
            return self._staged[client]
        return self._home[client][0] if client in self._home else None

    def counts(self) -> dict[ClientId, Counts]:
        """The counts of every client that has had a turn, by client."""
        self._open()
        return {client: saved.counts for client, (saved, _) in self._home.items()}

    def commit(self, round: int, server: Arrays) -> None:
        """Save a round: from here on it is done."""
        bundles = self._open()
        saved = write_file(self.path, f"server-{round:06d}.safetensors", server, self._durable)
        if self._staged:
            self._take(write_bundle(self.path, f"{round:06d}", self._staged))
            self._staged = {}
        self._compact(round)
        body = {"format": FORMAT, "round": round, "server": vars(saved), "bundles": [b.to_json() for b in bundles]}
        write_atomically(self.path / f"{round:06d}.json", json.dumps(body).encode(), durable=self._durable)
        self._sweep()

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest whole manifest (None before any), and what was wrong with newer ones."""
        problems: list[str] = []
        for path in self._manifests():
            try:
                manifest = self._read_manifest(path)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            self._adopt(manifest.bundles)
            return manifest, problems
        if problems:
            raise CheckpointError("no complete checkpoint is left: " + "; ".join(problems))
        self._adopt([])
        return None, problems

    def _open(self) -> list[Bundle]:
        if not self._known:
            self.latest()
        return self._bundles

    def _adopt(self, bundles: list[Bundle]) -> None:
        """Resume from these bundles."""
        self._known, self._bundles, self._home = True, [], {}
        for bundle in bundles:
            self._take(bundle)

    def _take(self, bundle: Bundle) -> None:
        """Add a bundle; of two states of a client the later one counts."""
        for client, saved in bundle.states.items():
            before = self._home.get(client)
            if before is not None and before[0].round > saved.round:
                bundle.live -= 1
                continue
            if before is not None:
                before[1].live -= 1
            self._home[client] = saved, bundle
        bundle.states = {}
        self._bundles.append(bundle)

    def _compact(self, round: int) -> None:
        """Drop bundles that hold nothing new, merge small ones and those of format 1."""
        bundles = self._open()
        bundles[:] = [b for b in bundles if b.live]
        old = [b for b in bundles if b.index is None]
        groups = ([old] if old else []) + list(to_merge([b for b in bundles[:-1] if b.index is not None]))
        for number, group in enumerate(groups):
            gone = {id(b) for b in group}
            states = {client: saved for client, (saved, home) in self._home.items() if id(home) in gone}
            merged = merge(self.path, f"{round:06d}-merged-{number}", states)
            for client, saved in merged.states.items():
                self._home[client] = saved, merged
            merged.states = {}
            bundles[:] = [merged, *(b for b in bundles if id(b) not in gone)]

    def rounds(self) -> list[int]:
        """The rounds that are saved."""
        return sorted(int(path.stem) for path in self._manifests())

    def cut_after(self, round: int) -> None:
        """Remove what was saved of later rounds; ``round`` itself must be whole, or 0 for the start."""
        if round:
            self._read_manifest(self.path / f"{round:06d}.json")
        for path in self._manifests():
            if int(path.stem) > round:
                path.unlink()
        self._known = False
        self._sweep()

    def _manifests(self) -> list[Path]:
        return sorted(self.path.glob("[0-9]*.json"), reverse=True)

    def _read_manifest(self, path: Path) -> Manifest:
        try:
            body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            round, server = int(body["round"]), SavedFile(**body["server"])
            if body["format"] not in (1, FORMAT):
                raise CheckpointError(f"{path} has format {body['format']}, this version reads 1 to {FORMAT}")
            check_file(self.path, server)
            bundles = self._files_of(body) if body["format"] == 1 else [self._bundle(b, round) for b in body["bundles"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise CheckpointError(f"{path} is damaged ({error})") from None
        return Manifest(round, server, bundles)

    def _bundle(self, body: Mapping[str, Any], round: int) -> Bundle:
        """A bundle; the states of the manifest's own round are checked too."""
        bundle = read_bundle(self.path, body)
        if body["index"]["name"] == f"{round:06d}.index":
            for saved in bundle.states.values():
                read_state(self.path, saved)
        return bundle

    def _files_of(self, body: Mapping[str, Any]) -> list[Bundle]:
        """The clients' files of format 1, as a bundle without an index."""
        states: dict[ClientId, SavedState] = {}
        for client, about in body["clients"].items():
            saved = SavedFile(**about)
            check_file(self.path, saved)
            states[int(client)] = SavedState(saved.name, 0, (self.path / saved.name).stat().st_size, saved.sha256)
        names = tuple(saved.segment for saved in states.values())
        return [Bundle(None, names, len(states), len(states), states)] if states else []

    def _kept(self) -> list[Path]:
        found = self._manifests()
        return found[: self._last] + [p for p in found[self._last :] if self._every and int(p.stem) % self._every == 0]

    def _sweep(self) -> None:
        """Remove what the newest manifests do not name."""
        keep: set[str] = set()
        for path in self._kept():
            try:
                body = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue
            keep |= {path.name, body["server"]["name"], *(s["name"] for s in body.get("clients", {}).values())}
            for bundle in body.get("bundles", ()):
                keep |= {bundle["index"]["name"], *bundle["segments"]}
        for file in self.path.iterdir() if self.path.is_dir() else ():
            if file.name not in keep:
                file.unlink(missing_ok=True)
