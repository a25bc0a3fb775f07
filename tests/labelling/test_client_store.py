from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from homes import ANIMALS, image_home

from chase.annotation.behaviour import Behaviour
from chase.client.context import ClientContext
from chase.client.state import ClientState
from chase.client.turn import Client
from chase.core.errors import CheckpointError, ClientError
from chase.core.messages import RoundOrder
from chase.core.weights import digest
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.store import ClientStore, resident
from chase.models.catalog import NetSpec, build
from chase.models.net import get_weights
from chase.settings import from_mapping

INITIAL = {0: 0, 1: 1, 2: 2, 3: 0}
NET = build(NetSpec("tiny-cnn", (1, 8, 8), 3, 0.0), 0)
WEIGHTS = get_weights(NET)


def client_of(home: Home, strategy: str = "random", patience: int = 0) -> Client:
    """A client in a home, as a process would build it anew."""
    values = {"strategy": strategy, "budget": 4, "behaviour": "AbCo", "local_epochs": 2, "patience": patience}
    settings = from_mapping(values).resolved()
    start = ClientState.start(home.samples()[0], np.array(list(INITIAL)), np.array(list(INITIAL.values())))
    context = ClientContext(0, settings, resident(home), NET, len(ANIMALS), Behaviour(4, 1))
    store = ClientStore(home, start)
    return Client(context, store, store)


def order(round: int) -> RoundOrder:
    return RoundOrder("run", round, 0, WEIGHTS)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return image_home(tmp_path / "home", initial=INITIAL)


def test_questions_wait_and_answers_train_in_the_next_turn(home: Home) -> None:
    client, anna = client_of(home), home.people.named("anna").id
    client.take_turn(order(1))
    turn = client.take_turn(order(2))
    asked = turn.state.pools.asked.tolist()
    assert [q["sample"] for q in home.ledger.open_questions()] == [q.sample for q in turn.questions]
    assert len(asked) == 4
    for sample, label in zip(asked[:2], (0, 1), strict=True):
        home.inbox.answer(Given(sample, label, anna))
    home.inbox.answer(Given(asked[2], None, anna, "cannot tell"))
    turn = client.take_turn(order(3))
    assert turn.state.labels_of(np.array(asked[:2])).tolist() == [0, 1]
    assert turn.state.labels_spent == 2
    assert turn.state.pools.set_aside.tolist() == [asked[2]]
    assert turn.update.num_labeled == 6
    home.inbox.answer(Given(asked[0], 2, anna, revise=True))
    turn = client.take_turn(order(4))
    assert turn.state.labels_of(np.array(asked[:1])).tolist() == [2]
    assert turn.state.labels_spent == 2


def test_unanswered_samples_return_after_the_set_number_of_turns(home: Home) -> None:
    client = client_of(home, patience=2)
    for round in (1, 2, 3):
        turn = client.take_turn(order(round))
    first = {q["sample"] for q in home.ledger.open_questions()}
    assert first == set(turn.state.pools.asked.tolist())
    turn = client.take_turn(order(4))
    assert home.ledger.counts()["expired"] == 4
    assert {q["sample"] for q in home.ledger.open_questions()} == set(turn.state.pools.asked.tolist())
    assert turn.state.pools.asked.size == 4


def test_a_repeated_order_is_answered_from_what_was_committed(home: Home) -> None:
    client, anna = client_of(home, "chase"), home.people.named("anna").id
    client.take_turn(order(1))
    turn = client.take_turn(order(2))
    home.inbox.answer(Given(int(turn.state.pools.asked[0]), 1, anna))
    again = client_of(home, "chase").take_turn(order(2))
    assert digest(again.update.weights) == digest(turn.update.weights)
    assert (again.questions, again.journal, again.update.metrics) == (turn.questions, turn.journal, turn.update.metrics)
    assert digest(again.state.to_arrays()) == digest(turn.state.to_arrays())
    later = client_of(home, "chase").take_turn(order(3))
    assert later.state.labels_spent == 1


def disagree_about_the_first(home: Home, annotator: int) -> None:
    """Answers to the four open questions: what the model is sure of, but for the first."""
    thought, said = (0, 1, 2, 0), (2, 1, 2, 0)
    for question, top, label in zip(home.ledger.open_questions(), thought, said, strict=True):
        with home.database.transaction() as db:
            db.execute(
                "UPDATE questions SET thoughts = ? WHERE id = ?",
                (f"[[{top}, 0.96], [{(top + 1) % 3}, 0.02]]", question["id"]),
            )
        home.inbox.answer(Given(question["sample"], label, annotator))


def test_second_opinions_are_asked_for_at_the_end_of_a_turn(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    client = client_of(home)
    client.take_turn(order(1))
    client.take_turn(order(2))
    first = [q["sample"] for q in home.ledger.open_questions()]
    disagree_about_the_first(home, anna)
    home.policies.change({"second_opinions": 3})
    # An untrained model is less certain of new samples than of any label; here it is to be surer of them.
    monkeypatch.setattr("chase.home.again._least_certain", lambda *given: 0.5)
    client_of(home).take_turn(order(3))
    with home.database.reading() as db:
        again = db.execute("SELECT id, sample FROM questions WHERE strategy = 'second opinion'").fetchall()
        fresh = db.execute("SELECT MIN(id) FROM questions WHERE round = 3 AND strategy = 'random'").fetchone()[0]
    assert [row["sample"] for row in again] == first[:1], "only the label that model and people disagree about"
    assert again[0]["id"] < fresh, "before the new ones"
    assert home.inbox.next_for(ben, 1)[0]["sample"] == first[0]
    assert first[0] not in [q["sample"] for q in home.inbox.next_for(anna, 9)]
    client_of(home).take_turn(order(4))
    with home.database.reading() as db:
        count = db.execute("SELECT COUNT(*) FROM questions WHERE strategy = 'second opinion'").fetchone()[0]
    assert count == 1, "asked once, and still open"
    assert "again" in [line["what"] for line in home.audit.lines()]


def test_nobody_is_asked_again_where_nobody_else_is_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna = home.people.named("anna").id
    home.policies.change({"second_opinions": 3})
    client_of(home).take_turn(order(1))
    client_of(home).take_turn(order(2))
    disagree_about_the_first(home, anna)
    monkeypatch.setattr("chase.home.again._least_certain", lambda *given: 0.5)
    client_of(home).take_turn(order(3))
    assert "again" not in [line["what"] for line in home.audit.lines()]


def test_an_interrupted_turn_leaves_no_trace(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    client, anna = client_of(home), home.people.named("anna").id
    client.take_turn(order(1))
    turn = client.take_turn(order(2))
    sample = int(turn.state.pools.asked[0])
    home.inbox.answer(Given(sample, 1, anna))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("chase.home.store.write_durably", full)
        with pytest.raises(ClientError, match="round 3, saving"):
            client.take_turn(order(3))
    assert home.inbox.mark("taken") == len(INITIAL)
    for again in (client, client_of(home)):
        assert again.take_turn(order(3)).state.labels_of(np.array([sample])).tolist() == [1]
    assert home.inbox.mark("taken") == len(INITIAL) + 1


def test_an_undo_between_taking_in_and_saving_leaves_the_answer_standing(home: Home) -> None:
    client, anna = client_of(home), home.people.named("anna").id
    client.take_turn(order(1))
    sample = int(client.take_turn(order(2)).state.pools.asked[0])
    home.inbox.answer(Given(sample, 1, anna))
    store = client._store
    assert isinstance(store, ClientStore)
    store.committed("run", 3)
    assert [a.sample for a in store.answers(2)] == [sample]
    assert home.inbox.undo(anna)[0]["stands"]
    assert client.take_turn(order(3)).state.labels_of(np.array([sample])).tolist() == [1]


def test_an_undone_late_answer_leaves_no_question_behind(home: Home) -> None:
    """Expired, answered late and undone: the sample is in the pool, so nothing may wait for it."""
    client, anna = client_of(home, patience=1), home.people.named("anna").id
    client.take_turn(order(1))
    before = client.take_turn(order(2)).state.pools.asked.tolist()
    after = client.take_turn(order(3)).state.pools.asked.tolist()
    gone = next(s for s in before if s not in after)
    home.inbox.answer(Given(gone, 1, anna))
    home.inbox.undo(anna)
    turn = client.take_turn(order(4))
    assert {q["sample"] for q in home.ledger.open_questions()} == set(turn.state.pools.asked.tolist())


def test_two_processes_cannot_train_in_one_home(home: Home) -> None:
    one, two = client_of(home), client_of(home)
    assert one.state.turn == two.state.turn == 0
    one.take_turn(order(1))
    with pytest.raises(ClientError, match="another process trains"):
        two.take_turn(order(2))


def test_a_home_cannot_go_back_and_notices_damage(home: Home) -> None:
    client = client_of(home)
    for round in range(1, 7):
        client.take_turn(order(round))
    with pytest.raises(CheckpointError, match="cannot go back to 1"):
        client_of(home).take_turn(order(1))
    files = sorted((home.path / "state").iterdir())
    assert len(files) == 3, "old turns are swept"
    files[-1].write_bytes(files[-1].read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="checksum"):
        client_of(home).take_turn(order(7))


def test_killing_either_side_at_any_moment_loses_no_answer_and_doubles_none(tmp_path: Path) -> None:
    """Real processes, SIGKILL at moments that a seeded generator picks; see ``crash.py``."""
    script = Path(__file__).with_name("crash.py")
    done = subprocess.run(
        [sys.executable, script, str(tmp_path / "home")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["acknowledged"] > 20, "people got answers through"
    assert found["lost"] == []
    assert found["doubled"] == []
    assert found["wrong"] == []
    assert found["training_kills"] > 3
    assert found["page_kills"] > 3
    assert found["rounds"] > 3
    assert found["spent"] == found["labelled"]
