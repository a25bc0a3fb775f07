"""A power cut at the server: sites have their turns on disk, so what the server made of them must be there too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from federation.test_private_rounds import federation, run, wire_of

from chase.core.errors import RunDirectoryError
from chase.federation.rollback import roll_back
from chase.run.record import Record


def test_a_saved_round_is_on_the_disk_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed, synced, honest = federation(tmp_path / "fed", {"rounds": 2}), list[tuple[int, int]](), os.fsync

    def fsync(file: int) -> None:
        about = os.fstat(file)
        synced.append((about.st_ino, about.st_size))
        honest(file)

    monkeypatch.setattr(os, "fsync", fsync)
    wire = wire_of(fed)
    run(fed, wire)

    def at(name: str) -> int:
        about = (fed.federation.path / name).stat()
        assert (about.st_ino, about.st_size) in synced, f"{name} may be lost"
        return synced.index((about.st_ino, about.st_size))

    saved = [at(f"run/checkpoint/{name}") for name in ("server-000001.safetensors", "000001.json")]
    saved += [at("run/metrics.jsonl")]
    saved += [at(f"run/checkpoint/{name}") for name in ("server-000002.safetensors", "000002.json")]
    assert saved == sorted(saved)  # a round counts by its manifest, which comes last
    at("turns.json")
    roll_back(fed.federation, 1)
    at("run/metrics.jsonl")
    at("run/environment.json")


def test_a_record_that_lost_lines_says_what_to_do(tmp_path: Path) -> None:
    fed = federation(tmp_path / "fed", {"rounds": 2})
    run(fed, wire_of(fed))
    path = fed.federation.run / "metrics.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(RunDirectoryError, match=r"of round 2, but only 1 lines can be read \(`chase federation roll"):
        run(fed, wire_of(fed))
    roll_back(fed.federation, 1)
    assert [line["round"] for line in run(fed, wire_of(fed))] == [1, 2]
    assert Record.open(fed.federation.run).rolled_back_to == 1
