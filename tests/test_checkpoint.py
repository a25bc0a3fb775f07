from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chase.core.errors import CheckpointError
from chase.run.checkpoint import Checkpoint


def save(checkpoint: Checkpoint, round: int, clients: tuple[int, ...] = (0, 1), before: dict | None = None) -> dict:
    files = dict(before or {})
    for client in clients:
        files[client] = checkpoint.write_client(client, round, {"n": np.array([round, client])})
    checkpoint.commit(round, {"w": np.full(3, round, np.float32)}, files)
    return files


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    one = Checkpoint(tmp_path / "checkpoint")
    files = save(one, 1)
    files = save(one, 2, (0,), files)
    save(one, 3, (0,), files)
    return one


def test_before_any_round_there_is_nothing(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none").latest() == (None, [])


def test_the_newest_round_is_read(checkpoint: Checkpoint) -> None:
    manifest, problems = checkpoint.latest()
    assert problems == []
    assert manifest.round == 3
    assert checkpoint.read_arrays(manifest.server)["w"].tolist() == [3, 3, 3]
    assert {c: checkpoint.read_arrays(f)["n"].tolist() for c, f in manifest.clients.items()} == {0: [3, 0], 1: [1, 1]}


def test_two_rounds_are_kept_with_all_that_they_name_and_nothing_else(checkpoint: Checkpoint) -> None:
    (checkpoint.path / ".server-000003.safetensors.999.tmp").write_bytes(b"left by a kill")
    save(checkpoint, 4, (0,), {1: checkpoint.latest()[0].clients[1]})
    assert sorted(p.name for p in checkpoint.path.iterdir()) == [
        "000003.json",
        "000004.json",
        "client-00000-000003.safetensors",
        "client-00000-000004.safetensors",
        "client-00001-000001.safetensors",
        "server-000003.safetensors",
        "server-000004.safetensors",
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))


DAMAGE = [
    ("000003.json", cut, "000003.json is damaged"),
    ("000003.json", lambda p: p.write_text("[]"), "000003.json is damaged"),
    ("000003.json", lambda p: p.write_text('{"format": 1, "clients": []}'), "000003.json is damaged"),
    ("server-000003.safetensors", flip, "server-000003.safetensors is damaged (its checksum differs)"),
    ("client-00000-000003.safetensors", cut, "client-00000-000003.safetensors is damaged (its checksum differs)"),
    ("client-00000-000003.safetensors", Path.unlink, "client-00000-000003.safetensors is missing"),
]


@pytest.mark.parametrize(("name", "harm", "sentence"), DAMAGE)
def test_a_damaged_round_falls_back_to_the_one_before(checkpoint: Checkpoint, name: str, harm, sentence: str) -> None:
    harm(checkpoint.path / name)
    manifest, problems = checkpoint.latest()
    assert manifest.round == 2
    assert len(problems) == 1
    assert sentence in problems[0]


def test_damage_that_both_rounds_share_names_the_file(checkpoint: Checkpoint) -> None:
    flip(checkpoint.path / "client-00001-000001.safetensors")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint is left: .*client-00001-000001.*damaged"):
        checkpoint.latest()


def test_a_later_format_is_refused_by_number(checkpoint: Checkpoint) -> None:
    for path in checkpoint.path.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="has format 99, this version reads 1"):
        checkpoint.latest()


def test_a_round_done_again_after_damage_is_whole(checkpoint: Checkpoint) -> None:
    flip(checkpoint.path / "server-000003.safetensors")
    files = dict(checkpoint.latest()[0].clients)
    save(checkpoint, 3, (0,), files)
    assert checkpoint.latest()[0].round == 3
    assert checkpoint.latest()[1] == []
