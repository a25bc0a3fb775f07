"""The saved state of a run: global weights, and one file a client.

A client's file is written by whichever process ran its turn. A round is saved when its manifest
(``000012.json``: file names and their SHA-256) is in place; the two newest manifests are kept with
all that they name. Reading takes the newest manifest whose files are all whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chase.core.errors import CheckpointError
from chase.core.files import write_atomically
from chase.core.messages import FORMAT, ClientId
from chase.core.weights import Array, Arrays, read, to_bytes

KEPT = 2


@dataclass(frozen=True)
class SavedFile:
    """A file of a checkpoint, by name within it."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What belongs to one saved round."""

    round: int
    server: SavedFile
    clients: Mapping[ClientId, SavedFile]


class Checkpoint:
    """Reads and writes ``checkpoint/`` of a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_arrays(self, name: str, arrays: Arrays) -> SavedFile:
        """One file of arrays, whole or not at all."""
        blob = to_bytes(arrays)
        write_atomically(self.path / name, blob)
        return SavedFile(name, hashlib.sha256(blob).hexdigest())

    def write_client(self, client: ClientId, round: int, arrays: Arrays) -> SavedFile:
        """A client's state after its turn in ``round``."""
        return self.write_arrays(f"client-{client:05d}-{round:06d}.safetensors", arrays)

    def read_arrays(self, saved: SavedFile) -> dict[str, Array]:
        """The arrays of a file."""
        return read(self.path / saved.name)

    def commit(self, round: int, server: Arrays, clients: Mapping[ClientId, SavedFile]) -> Manifest:
        """Save a round: from here on it is done."""
        manifest = Manifest(round, self.write_arrays(f"server-{round:06d}.safetensors", server), dict(clients))
        body = {
            "format": FORMAT,
            "round": round,
            "server": vars(manifest.server),
            "clients": {str(client): vars(saved) for client, saved in manifest.clients.items()},
        }
        write_atomically(self.path / f"{round:06d}.json", json.dumps(body).encode())
        self._sweep()
        return manifest

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest whole manifest (None before any), and what was wrong with newer ones."""
        problems: list[str] = []
        for path in self._manifests():
            try:
                return self._read_manifest(path), problems
            except CheckpointError as error:
                problems.append(str(error))
        if problems:
            raise CheckpointError("no whole checkpoint is left: " + "; ".join(problems))
        return None, problems

    def _manifests(self) -> list[Path]:
        return sorted(self.path.glob("[0-9]*.json"), reverse=True)

    def _read_manifest(self, path: Path) -> Manifest:
        try:
            body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if body["format"] != FORMAT:
                raise CheckpointError(f"{path} has format {body['format']}, this version reads {FORMAT}")
            clients = {int(c): SavedFile(**saved) for c, saved in body["clients"].items()}
            manifest = Manifest(int(body["round"]), SavedFile(**body["server"]), clients)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is damaged ({error})") from None
        for saved in (manifest.server, *manifest.clients.values()):
            file = self.path / saved.name
            if not file.is_file():
                raise CheckpointError(f"{file} is missing")
            if hashlib.sha256(file.read_bytes()).hexdigest() != saved.sha256:
                raise CheckpointError(f"{file} is damaged (its checksum differs)")
        return manifest

    def _sweep(self) -> None:
        """Remove what the newest manifests do not name."""
        keep: set[str] = set()
        for path in self._manifests()[:KEPT]:
            try:
                body = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                continue
            keep |= {path.name, body["server"]["name"], *(s["name"] for s in body["clients"].values())}
        for file in self.path.iterdir():
            if file.name not in keep:
                file.unlink(missing_ok=True)
