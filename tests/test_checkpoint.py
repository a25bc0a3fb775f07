from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from chase.core.errors import CheckpointError
from chase.core.weights import to_bytes
from chase.run.checkpoint import Checkpoint


def save(checkpoint: Checkpoint, round: int, clients: tuple[int, ...] = (0, 1)) -> None:
    for client in clients:
        saved = checkpoint.write_client(client, round, {"n": np.array([round, client])})
        checkpoint.stage(client, saved, (round, client))
    checkpoint.commit(round, {"w": np.full(3, round, np.float32)})


def states(checkpoint: Checkpoint) -> dict[int, list[int]]:
    """What each client saved last, by round and client."""
    return {c: checkpoint.read_client(checkpoint.where(c))["n"].tolist() for c in sorted(checkpoint.counts())}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    one = Checkpoint(tmp_path / "checkpoint")
    for round, clients in enumerate([(0, 1), (0,), (0,)], 1):
        save(one, round, clients)
    return one.path


def test_before_any_round_there_is_nothing(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none").latest() == (None, [])


def test_several_states_are_read_together_and_a_damaged_one_is_named(path: Path) -> None:
    checkpoint = Checkpoint(path)
    where = [checkpoint.where(client) for client in (0, 1)]
    assert checkpoint.read_blobs(where) == {saved: checkpoint.read_blob(saved) for saved in where}
    assert checkpoint.read_blobs([]) == {}
    segment = path / where[1].segment
    segment.write_bytes(bytes(segment.stat().st_size))
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.read_blobs(where)


def test_the_newest_round_is_read(path: Path) -> None:
    checkpoint = Checkpoint(path)
    manifest, problems = checkpoint.latest()
    assert problems == []
    assert manifest.round == 3
    assert checkpoint.read_arrays(manifest.server)["w"].tolist() == [3, 3, 3]
    assert states(checkpoint) == {0: [3, 0], 1: [1, 1]}
    assert checkpoint.counts() == {0: (3, 0), 1: (1, 1)}
    assert checkpoint.where(2) is None


def test_a_round_that_is_not_committed_counts_for_this_process_only(path: Path) -> None:
    checkpoint = Checkpoint(path)
    checkpoint.stage(1, checkpoint.write_client(1, 4, {"n": np.array([4, 1])}))
    assert checkpoint.read_client(checkpoint.where(1))["n"].tolist() == [4, 1]
    assert states(Checkpoint(path)) == {0: [3, 0], 1: [1, 1]}


def test_two_rounds_are_kept_with_all_that_they_name_and_nothing_else(path: Path) -> None:
    (path / ".server-000003.safetensors.999.tmp").write_bytes(b"left by a kill")
    (path / "000004-worker-7.states").write_bytes(b"left by a worker that died")
    save(Checkpoint(path), 4, (0,))
    assert sorted(p.name for p in path.iterdir()) == [
        "000001-main.states",
        "000001.index",
        "000003-main.states",
        "000003.index",
        "000003.json",
        "000004-main.states",
        "000004.index",
        "000004.json",
        "server-000003.safetensors",
        "server-000004.safetensors",
    ]


def test_a_round_writes_what_its_clients_need_and_not_more(tmp_path: Path) -> None:
    """Ten of a thousand clients take part: the round writes ten states, and few files are left after many rounds."""
    checkpoint = Checkpoint(tmp_path)
    save(checkpoint, 1, tuple(range(1000)))
    newest = dict.fromkeys(range(1000), 1)
    for round in range(2, 60):
        clients = tuple((37 * round + 13 * n) % 1000 for n in range(10))
        newest |= dict.fromkeys(clients, round)
        save(checkpoint, round, clients)
        assert (tmp_path / f"{round:06d}-main.states").stat().st_size == 10 * len(to_bytes({"n": np.zeros(2, int)}))
    assert len(list(tmp_path.iterdir())) < 60
    assert states(Checkpoint(tmp_path)) == {client: [round, client] for client, round in newest.items()}


def test_outdated_states_do_not_fill_the_disk(tmp_path: Path) -> None:
    """Every round replaces a random tenth of the states; few outdated ones are kept."""
    checkpoint, draw = Checkpoint(tmp_path), np.random.default_rng(1)
    save(checkpoint, 1, tuple(range(200)))
    newest = dict.fromkeys(range(200), 1)
    for round in range(2, 80):
        clients = tuple(sorted(draw.choice(200, 20, replace=False).tolist()))
        newest |= dict.fromkeys(clients, round)
        save(checkpoint, round, clients)
    size = len(to_bytes({"n": np.zeros(2, int)}))
    used = sum(p.stat().st_size for p in tmp_path.glob("*.states"))
    assert used <= 5 * 200 * size
    assert states(Checkpoint(tmp_path)) == {client: [round, client] for client, round in newest.items()}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))


DAMAGE = [
    ("000003.json", cut, "000003.json is damaged"),
    ("000003.json", lambda p: p.write_text("[]"), "000003.json is damaged"),
    ("000003.json", lambda p: p.write_text('{"format": 2, "clients": []}'), "000003.json is damaged"),
    ("server-000003.safetensors", flip, "server-000003.safetensors is damaged (its checksum differs)"),
    ("000003.index", flip, "000003.index is damaged (its checksum differs)"),
    ("000003.index", Path.unlink, "000003.index is missing"),
    ("000003-main.states", flip, "000003-main.states is damaged (the checksum of a client's state differs)"),
    ("000003-main.states", cut, "000003-main.states is damaged (it ends early)"),
    ("000003-main.states", Path.unlink, "000003-main.states is missing"),
]


@pytest.mark.parametrize(("name", "harm", "sentence"), DAMAGE)
def test_a_damaged_round_falls_back_to_the_one_before(path: Path, name: str, harm, sentence: str) -> None:
    harm(path / name)
    manifest, problems = Checkpoint(path).latest()
    assert manifest.round == 2
    assert len(problems) == 1
    assert sentence in problems[0]


def test_damage_that_both_rounds_share_names_the_file(path: Path) -> None:
    cut(path / "000001-main.states")
    with pytest.raises(CheckpointError, match=r"no complete checkpoint is left: .*000001-main.states is damaged"):
        Checkpoint(path).latest()


def test_an_old_state_is_checked_when_it_is_read(path: Path) -> None:
    flip(path / "000001-main.states")
    checkpoint = Checkpoint(path)
    assert checkpoint.latest()[0].round == 3
    assert checkpoint.read_client(checkpoint.where(0))["n"].tolist() == [3, 0]
    with pytest.raises(CheckpointError, match=r"000001-main.states is damaged \(the checksum of a client's state"):
        checkpoint.read_client(checkpoint.where(1))


def test_a_later_format_is_refused_by_number(path: Path) -> None:
    for file in path.glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    with pytest.raises(CheckpointError, match="has format 99, this version reads 1 to 2"):
        Checkpoint(path).latest()


def test_a_round_done_again_after_damage_is_whole(path: Path) -> None:
    flip(path / "server-000003.safetensors")
    checkpoint = Checkpoint(path)
    assert checkpoint.latest()[0].round == 2
    save(checkpoint, 3, (0,))
    manifest, problems = Checkpoint(path).latest()
    assert manifest.round == 3
    assert problems == []


def test_a_checkpoint_with_a_file_per_client_is_read_and_goes_on_as_segments(tmp_path: Path) -> None:
    def write(name: str, **arrays: np.ndarray) -> dict[str, str]:
        blob = to_bytes(arrays)
        (tmp_path / name).write_bytes(blob)
        return {"name": name, "sha256": hashlib.sha256(blob).hexdigest()}

    files = {str(c): write(f"client-{c:05d}-000001.safetensors", n=np.array([1, c])) for c in (0, 1)}
    body = {"format": 1, "round": 1, "server": write("server-000001.safetensors", w=np.ones(3)), "clients": files}
    (tmp_path / "000001.json").write_text(json.dumps(body))

    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.latest()[0].round == 1
    assert states(checkpoint) == {0: [1, 0], 1: [1, 1]}
    save(checkpoint, 2, (0,))
    save(checkpoint, 3, (0,))
    assert not list(tmp_path.glob("client-*"))
    assert states(Checkpoint(tmp_path)) == {0: [3, 0], 1: [1, 1]}
