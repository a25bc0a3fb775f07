from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from homes import ANIMALS, ask, image_home

from chase.annotation.annotator import SECOND_OPINION, Question
from chase.annotation.behaviour import Behaviour
from chase.client.context import ClientContext
from chase.client.state import ClientState
from chase.client.turn import Client
from chase.core.errors import CheckpointError, ClientError
from chase.core.messages import RoundOrder
from chase.core.weights import digest
from chase.home.again import panel_of
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.shared import SharedPage
from chase.home.store import ClientStore, resident
from chase.home.team import initial_labels, set_gold
from chase.models.catalog import NetSpec, build
from chase.models.net import get_weights
from chase.settings import from_mapping

INITIAL = {0: 0, 1: 1, 2: 2, 3: 0}
NET = build(NetSpec("tiny-cnn", (1, 8, 8), 3, 0.0), 0)
WEIGHTS = get_weights(NET)


def client_of(home: Home, strategy: str = "random", **changes: int) -> Client:
    """A client in a home, as a process would build it anew."""
    values = {"strategy": strategy, "budget": 4, "behaviour": "AbCo", "local_epochs": 2, **changes}
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


def sure_of(samples: dict[int, int], sure: float = 0.96) -> Callable[..., np.ndarray]:
    """A model that is sure of these classes, by sample, and holds class 0 likeliest by 0.7 otherwise."""

    def probs(context: object, ids: np.ndarray) -> np.ndarray:
        found = np.full((ids.size, len(ANIMALS)), 0.15)
        found[:, 0] = 0.7
        for row, sample in enumerate(ids.tolist()):
            if sample in samples:
                found[row] = (1 - sure) / 2
                found[row, samples[sample]] = sure
        return found

    return probs


def answered(home: Home, annotator: int) -> list[int]:
    """Two turns, and answers to the four questions of the second: class 2 for the first, class 1 for the others."""
    client_of(home).take_turn(order(1))
    client_of(home).take_turn(order(2))
    samples = [q["sample"] for q in home.ledger.open_questions()]
    for place, sample in enumerate(samples):
        home.inbox.answer(Given(sample, 1 if place else 2, annotator))
    return samples


def test_second_opinions_take_places_of_the_request(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    samples = answered(home, anna)
    home.policies.change({"second_opinions": 3})
    today = sure_of({samples[0]: 0} | dict.fromkeys(samples[1:], 1))
    monkeypatch.setattr("chase.client.second_opinions.plain", today)
    turn = client_of(home).take_turn(order(3))
    assert (turn.questions[0].sample, turn.questions[0].again) == (samples[0], True), "model and person disagree"
    assert [q.again for q in turn.questions].count(True) == 1
    assert len(turn.questions) == 4, "within the budget"
    assert turn.update.metrics["second_opinions_waiting"] == 1
    assert home.inbox.next_for(ben, 1)[0]["sample"] == samples[0]
    assert samples[0] not in [q["sample"] for q in home.inbox.next_for(anna, 9)]
    assert [line["detail"] for line in home.audit.lines() if line["what"] == "again"] == [{"samples": samples[:1]}]
    turn = client_of(home).take_turn(order(4))
    assert turn.questions == (), "all places are taken while nobody answers"
    home.inbox.answer(Given(samples[0], 2, ben))
    turn = client_of(home).take_turn(order(5))
    assert turn.state.labels_of(np.array(samples[:1])).tolist() == [2]
    spent = {name: turn.update.metrics[name] for name in ("labels", "second_opinions", "second_opinions_waiting")}
    assert spent == {"labels": 5, "second_opinions": 1, "second_opinions_waiting": 0}
    assert len(turn.questions) == 1, "its place is free again"
    assert turn.questions[0].again is False, "everybody has answered it"


def test_second_opinions_by_the_settings_of_a_run_and_none_without(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, _ = (home.people.named(name).id for name in ("anna", "ben"))
    samples = answered(home, anna)
    monkeypatch.setattr("chase.client.second_opinions.plain", sure_of({samples[0]: 0} | dict.fromkeys(samples[1:], 1)))
    turn = client_of(home).take_turn(order(3))
    assert not any(q.again for q in turn.questions)
    assert "second_opinions" not in turn.update.metrics
    home.inbox.answer(Given(turn.questions[0].sample, 0, anna))
    turn = client_of(home, second_opinions=2).take_turn(order(4))
    assert [(q.sample, q.again) for q in turn.questions] == [(samples[0], True)]


def test_a_second_opinion_that_nobody_gives_frees_its_place(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, _ = (home.people.named(name).id for name in ("anna", "ben"))
    samples = answered(home, anna)
    home.policies.change({"second_opinions": 1})
    monkeypatch.setattr("chase.client.second_opinions.plain", sure_of({samples[0]: 0} | dict.fromkeys(samples[1:], 1)))
    assert client_of(home, patience=2).take_turn(order(3)).questions[0].again
    home.policies.change({"second_opinions": 0})
    assert client_of(home, patience=2).take_turn(order(4)).state.opinions_waiting == 1
    turn = client_of(home, patience=2).take_turn(order(5))
    assert turn.state.opinions_waiting == 0
    assert samples[0] not in [q["sample"] for q in home.ledger.open_questions()]
    assert turn.state.labels_of(np.array(samples[:1])).tolist() == [2], "its label stands"


def test_nobody_is_asked_again_where_nobody_else_is_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna = home.people.named("anna").id
    samples = answered(home, anna)
    home.policies.change({"second_opinions": 3})
    monkeypatch.setattr("chase.client.second_opinions.plain", sure_of(dict.fromkeys(samples, 0)))
    turn = client_of(home).take_turn(order(3))
    assert not any(q.again for q in turn.questions)
    assert "again" not in [line["what"] for line in home.audit.lines()]


def test_a_conflict_waits_for_the_adjudicator_and_holds_no_place(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, ben, _ = (home.people.named(name).id for name in ("anna", "ben", "cleo"))
    samples = answered(home, anna)
    home.policies.change({"second_opinions": 1})
    monkeypatch.setattr("chase.client.second_opinions.plain", sure_of({samples[0]: 0} | dict.fromkeys(samples[1:], 1)))
    client_of(home).take_turn(order(3))
    home.inbox.answer(Given(samples[0], 0, ben))
    turn = client_of(home).take_turn(order(4))
    assert turn.state.opinions == 1
    assert not any(q.sample == samples[0] for q in turn.questions)
    assert [review["why"] for review in home.inbox.verdicts.reviews()] == ["conflict"]
    assert turn.state.labels_of(np.array(samples[:1])).tolist() == [2], "what training uses stands"


def test_gold_questions_are_no_second_opinions(tmp_path: Path) -> None:
    home = image_home(tmp_path / "gold", initial={0: 1, 1: 2, 2: 0, 3: 1})
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    set_gold(home, initial_labels(home))
    ask(home, range(5, 15))
    for sample in range(5, 15):
        home.inbox.answer(Given(sample, 1, anna))
    home.policies.change({"gold_share": 0.5})
    home.inbox.file([Question(sample, 4, 3, SECOND_OPINION, 0, 0.9, again=True) for sample in (5, 6)])
    queue = home.inbox.next_for(ben, 20)
    assert len(queue) > 2, "gold questions are mixed in"
    assert panel_of(home).waiting == {5: 3, 6: 3}
    for question in queue:
        home.inbox.answer(Given(question["sample"], 1, ben, question=question["id"]))
    assert (panel_of(home).given, panel_of(home).waiting) == (2, {})


def test_the_clients_of_one_page_ask_again_too(home: Home) -> None:
    """With --page-client all nothing is marked as taken, and each client sees its own samples only."""
    anna, ben = (home.people.named(name).id for name in ("anna", "ben"))
    one, other = SharedPage(home, np.arange(0, 10)), SharedPage(home, np.arange(10, 20))
    one.ask([Question(5, 1, 1, "random", 0)])
    home.inbox.answer(Given(5, 1, anna))
    assert [(a.sample, a.label) for a in one.answers(2) if a.sample == 5] == [(5, 1)]
    one.ask([Question(5, 2, 2, SECOND_OPINION, 0, again=True)])
    assert (one.panel().waiting, other.panel().waiting) == ({5: 2}, {})
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [5]
    home.inbox.answer(Given(5, 1, ben))
    assert (one.panel().given, one.panel().closed, other.panel().given) == (1, {5}, 0)
    assert other.panel().votes.size == 0


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
