"""Kills a training process and a labelling process again and again, then looks at what is left.

Children are forked, so that a restart costs milliseconds. The labelling side notes every answer
that the inbox acknowledged in a file of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from homes import image_home
from test_client_store import INITIAL, client_of, order

from chase.home.home import Home
from chase.home.inbox import Given

KILLS = 24
torch.set_num_threads(1)  # a fork takes no thread along, and waits for ever for one that it believes to be there


def train(path: Path) -> None:
    """Answer orders for ever, as a server would send them: the last one again after a restart."""
    client = client_of(Home(path), "ev")
    store = client._store.home  # type: ignore[attr-defined]
    with store.database.reading() as db:
        round = int(db.execute("SELECT COALESCE(MAX(round), 1) FROM turns").fetchone()[0])
    while True:
        client.take_turn(order(round))
        round += 1


def label(path: Path, diary: Path) -> None:
    """Label, correct and undo as fast as possible; write down what was acknowledged."""
    home = Home(path)
    anna, draw = home.people.named("anna").id, random.Random()
    with diary.open("a") as file:
        while True:
            for question in home.inbox.next_for(anna, 2):
                key = uuid.uuid4().hex
                given = Given(question["sample"], draw.randrange(3), anna, key=key)
                home.inbox.answer(given)
                file.write(f"{key} {given.sample} {given.label}\n")
                file.flush()
                if draw.random() < 0.3:
                    key = uuid.uuid4().hex
                    home.inbox.answer(Given(given.sample, draw.randrange(3), anna, key=key, revise=True))
                    file.write(f"{key} {given.sample} -\n")
                    file.flush()
            time.sleep(0.002)


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("a side ended by itself before it was killed")


def turns_done(path: Path) -> int:
    home = Home(path)
    with home.database.reading() as db:
        done = int(db.execute("SELECT COALESCE(MAX(version), 0) FROM turns").fetchone()[0])
    home.close()
    return done


def wait_for_a_turn(path: Path) -> None:
    """Kills at any moment, but on a busy machine too there is something to lose."""
    before, until = turns_done(path), time.monotonic() + 60
    while turns_done(path) == before:
        if time.monotonic() > until:
            raise SystemExit("no turn was committed within a minute")
        time.sleep(0.005)


def main(path: Path) -> None:
    image_home(path, 400, initial=INITIAL).close()
    diary, draw, kills = path / "diary", random.Random(7), Counter[str]()
    work: dict[str, Callable[[], None]] = {"train": lambda: train(path), "label": lambda: label(path, diary)}
    running = {side: fork(job) for side, job in work.items()}
    for _ in range(KILLS):
        wait_for_a_turn(path)
        time.sleep(draw.uniform(0, 0.1))
        side = draw.choice(sorted(running))
        kill(running[side])
        kills[side] += 1
        running[side] = fork(work[side])
    for pid in running.values():
        kill(pid)
    print(json.dumps(audit(path, diary, kills)))


def audit(path: Path, diary: Path, kills: Counter[str]) -> dict[str, object]:
    """What the diary says against what the inbox and the client's state say."""
    home = Home(path)
    client = client_of(home, "ev")
    with home.database.reading() as db:
        last = int(db.execute("SELECT MAX(round) FROM turns").fetchone()[0])
    state = client.take_turn(order(last + 1)).state
    with home.database.reading() as db:
        keys = Counter(row["key"] for row in db.execute("SELECT key FROM answers WHERE key IS NOT NULL"))
        firsts = Counter(row["sample"] for row in db.execute("SELECT sample FROM answers WHERE was = 'shown'"))
    notes = [line.split() for line in diary.read_text().splitlines() if line.count(" ") == 2]
    labels = {line["sample"]: line["label"] for line in home.ledger.labels()}
    held = dict(zip(state.ids.tolist(), state.label.tolist(), strict=True))
    return {
        "acknowledged": len(notes),
        "lost": [key for key, _, _ in notes if keys[key] == 0],
        "doubled": [key for key in keys if keys[key] > 1] + [sample for sample in firsts if firsts[sample] > 1],
        "wrong": [sample for sample, label in labels.items() if held[sample] != label],
        "rounds": last,
        "spent": state.labels_spent,
        "labelled": int(state.pools.labeled.size) - len(INITIAL),
        "training_kills": kills["train"],
        "page_kills": kills["label"],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
