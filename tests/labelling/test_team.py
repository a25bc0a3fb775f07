"""Several people per sample: rules, agreement, roles, gold questions, review and the audit log."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from homes import ANIMALS, ask, image_home
from typer.testing import CliRunner

from chase.annotation.opinions import Opinion, dawid_skene, numbered, outcome
from chase.cli.main import app
from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.home import exchange, label_studio
from chase.home.again import ask_again, doubtful
from chase.home.annotator_agreement import agreement, cohen_kappa, krippendorff_alpha
from chase.home.guide import Guide, blocks
from chase.home.home import Home
from chase.home.inbox import AnswerRefused, Given
from chase.home.team import gold_scores, gold_warning, initial_labels, overview, set_gold

NAMES = ("anna", "ben", "cleo")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return image_home(tmp_path / "home", initial={0: 1, 1: 2, 2: 0, 3: 1})


@pytest.fixture
def people(home: Home) -> list[int]:
    return [home.people.named(name).id for name in NAMES]


def label_of(home: Home, sample: int) -> tuple[int | None, str] | None:
    found = home.inbox.current(sample)
    return None if found is None else (found["label"], found["rule"])


# rules


def said(*labels: int | None, **last: bool) -> list[Opinion]:
    made = [Opinion(i, i, f"p{i}", label, "" if label is not None else "cannot tell") for i, label in enumerate(labels)]
    return [*made[:-1], Opinion(**{**made[-1].__dict__, **last})]


@pytest.mark.parametrize(
    ("labels", "wanted", "state", "label"),
    [
        ((1,), 1, "decided", 1),
        ((1,), 2, "open", None),
        ((1, 1), 2, "decided", 1),
        ((1, 2), 2, "conflict", None),
        ((1, 2, 1), 3, "decided", 1),
        ((1, 2, None), 3, "conflict", None),
        ((None, None, 1), 3, "decided", None),
    ],
)
def test_more_than_half_decide_and_the_rest_is_a_conflict(
    labels: tuple[int | None, ...], wanted: int, state: str, label: int | None
) -> None:
    found = outcome(said(*labels), wanted)
    assert (found.state, found.label) == (state, label)


def test_a_decision_beats_all_votes() -> None:
    assert outcome(said(1, 1, 2, decides=True), 3).label == 2


def test_dawid_skene_finds_out_who_is_right() -> None:
    # Two careful people and three who say class 0 whatever they see: the majority is wrong on every class-1 sample.
    truth = [0] * 30 + [1] * 20
    rows = [(s, p, t if p < 2 else 0) for s, t in enumerate(truth) for p in range(5)]
    votes, samples, people = numbered(rows)
    crowd = dawid_skene(votes, len(samples), len(people), 2)
    assert crowd.posterior.argmax(1).tolist() == truth
    quality = crowd.quality()
    assert quality[:2].min() > 0.95
    assert quality[2:].max() < 0.7
    assert np.allclose(crowd.posterior.sum(1), 1)


def test_a_few_single_answers_are_believed() -> None:
    votes, samples, people = numbered([(s, s % 3, s % 10) for s in range(20)])
    crowd = dawid_skene(votes, len(samples), len(people), 10)
    assert crowd.posterior.argmax(1).tolist() == [s % 10 for s in range(20)]


def test_the_policy_chooses_the_rule(home: Home, people: list[int]) -> None:
    home.policies.change({"answers_per_sample": 3, "rule": "dawid-skene"})
    ask(home, range(5, 35))
    for sample in range(5, 35):
        truth = sample % 2
        for who, label in zip(people, (truth, truth, 0), strict=True):
            if sample == 34 and who == people[1]:
                label = 1 - truth
            home.inbox.answer(Given(sample, label, who))
    assert label_of(home, 7) == (1, "dawid-skene"), "cleo always says 0 and has little weight"
    assert all(found is not None for found in (label_of(home, s) for s in range(5, 34)))


# agreement: numbers from the literature


def test_cohen_s_kappa_of_a_table_worked_by_hand() -> None:
    # 50 proposals, yes/yes 20, yes/no 5, no/yes 10, no/no 15: observed 0.7, by chance 0.5.
    assert cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])) == pytest.approx(0.4)


def test_krippendorff_s_alpha_of_his_own_example() -> None:
    # Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C: alpha (nominal) = 0.743.
    a = [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None]
    b = [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3]
    c = [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None]
    d = [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None]
    votes = [(s, who, v - 1) for who, row in zip("abcd", (a, b, c, d), strict=True) for s, v in enumerate(row) if v]
    found = agreement(votes, [str(i) for i in range(1, 6)])
    assert found.alpha.value == pytest.approx(0.743, abs=5e-4)
    assert found.samples == 11, "the one with a single answer is left out"
    assert found.alpha.low is not None
    assert found.alpha.high is not None
    assert found.alpha.low < found.alpha.value < found.alpha.high
    assert len(found.pairs) == 6


def test_full_agreement_is_one_and_one_class_alone_is_undefined() -> None:
    votes = [(s, who, s % 2) for s in range(10) for who in "ab"]
    found = agreement(votes, ["x", "y"])
    assert found.alpha.value == 1
    assert found.pairs[0].kappa.value == 1
    assert [one.alpha.value for one in found.classes] == [1, 1]
    alone = agreement([(s, who, 0) for s in range(5) for who in "ab"], ["x", "y"])
    assert alone.alpha.value is None
    assert agreement([], ["x"]).samples == 0
    assert np.isnan(krippendorff_alpha(np.array([[2.0, 0.0]]))[0])


# several answers at a home


def test_each_sample_gets_its_answers_from_different_people_blindly(home: Home, people: list[int]) -> None:
    anna, ben, cleo = people
    home.policies.change({"answers_per_sample": 2})
    ask(home, [5, 6])
    assert [q["sample"] for q in home.inbox.next_for(anna, 5)] == [5, 6]
    seen = home.inbox.next_for(ben, 5)
    assert [q["sample"] for q in seen] == [5, 6]
    assert home.inbox.next_for(cleo, 5) == [], "two hold each already"
    home.inbox.answer(Given(5, 1, anna))
    assert label_of(home, 5) is None, "one answer is not enough"
    assert home.inbox.hand_out(home.inbox.mark("taken"))[0] == []
    assert [q["sample"] for q in home.inbox.next_for(anna, 5)] == [6]
    with pytest.raises(AnswerRefused, match="by you"):
        home.inbox.answer(Given(5, 2, anna))
    assert "label" not in json.dumps(home.inbox.next_for(ben, 5)), "nobody sees another's answer"
    home.inbox.answer(Given(5, 1, ben))
    assert label_of(home, 5) == (1, "majority")
    (label,) = home.inbox.hand_out(home.inbox.mark("taken"))[0]
    assert (label.label, label.by) == (1, "anna, ben")
    with pytest.raises(AnswerRefused, match="already"):
        home.inbox.answer(Given(5, 2, cleo))


def test_an_overlap_asks_for_a_second_answer_on_a_share_of_the_questions(home: Home) -> None:
    home.policies.change({"answers_per_sample": 2, "overlap": 0.25})
    ask(home, range(4, 40))
    with home.database.reading() as db:
        wanted = [row["wanted"] for row in db.execute("SELECT wanted FROM questions")]
    assert 3 <= wanted.count(2) <= 15
    assert wanted.count(1) + wanted.count(2) == 36


def test_a_conflict_waits_for_the_adjudicator_who_sees_all_answers(home: Home, people: list[int]) -> None:
    anna, ben, cleo = people
    home.policies.change({"answers_per_sample": 2})
    ask(home, [5])
    home.inbox.answer(Given(5, 1, anna, comment="dark spot"))
    home.inbox.answer(Given(5, 2, ben))
    assert label_of(home, 5) is None
    (review,) = home.inbox.verdicts.reviews()
    assert (review["why"], [one["label"] for one in review["answers"]]) == ("conflict", [1, 2])
    assert review["answers"][0]["comment"] == "dark spot"
    assert home.ledger.open_count() == 1, "training still waits for it"
    home.inbox.answer(Given(5, 2, cleo, decides=True))
    assert label_of(home, 5) == (2, "decision")
    assert home.inbox.verdicts.reviews() == []
    assert home.ledger.open_count() == 0


def test_undo_of_one_of_two_answers_opens_the_sample_again(home: Home, people: list[int]) -> None:
    anna, ben, _ = people
    home.policies.change({"answers_per_sample": 2})
    ask(home, [5])
    home.inbox.answer(Given(5, 1, anna))
    home.inbox.answer(Given(5, 1, ben))
    (back,) = home.inbox.undo(ben)
    assert not back["stands"]
    assert label_of(home, 5) is None
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [5]
    assert home.inbox.next_for(anna, 5) == []


def test_not_sure_counts_and_is_reviewed_and_a_colleague_can_be_asked(home: Home, people: list[int]) -> None:
    anna, ben, _ = people
    ask(home, [5, 6])
    home.inbox.answer(Given(5, 1, anna, unsure=True))
    assert label_of(home, 5) == (1, "single"), "the provisional class is used"
    home.inbox.answer(Given(6, None, anna, "ask a colleague"))
    assert label_of(home, 6) is None
    assert {(r["sample"], r["why"]) for r in home.inbox.verdicts.reviews()} == {(5, "not sure"), (6, "colleague")}
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [6]
    assert home.inbox.next_for(anna, 5) == []
    home.inbox.answer(Given(6, 2, ben))
    assert label_of(home, 6) == (2, "single")


def test_gold_questions_are_mixed_in_scored_and_no_label(home: Home, people: list[int]) -> None:
    anna, ben, _ = people
    assert set_gold(home, initial_labels(home)) == 4
    home.policies.change({"gold_share": 0.5})
    ask(home, range(5, 15))
    queue = home.inbox.next_for(anna, 30)
    golds = [q for q in queue if q["sample"] < 5]
    assert len(golds) == 4
    assert {tuple(sorted(q)) for q in queue} == {tuple(sorted(queue[0]))}, "they look like all others"
    before = home.ledger.labels()
    for question in queue[:20]:
        home.inbox.answer(Given(question["sample"], 1, anna, question=question["id"]))
    assert gold_scores(home) == {"anna": (4, 2)}
    assert gold_warning(home, "anna") == "", "too few to warn"
    assert [line for line in home.ledger.labels() if line["sample"] < 4] == before
    assert home.ledger.votes() == [(s, "anna", 1) for s in range(5, 15)]
    home.inbox.undo(anna)
    assert overview(home, ben)["people"][0]["gold"] == 0.5


def test_second_opinions_come_on_top_of_what_was_said(home: Home, people: list[int]) -> None:
    from chase.annotation.annotator import Question

    anna, ben, _ = people
    ask(home, [5])
    home.inbox.answer(Given(5, 1, anna))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    home.inbox.file([Question(5, 4, 3, "second opinion", 0, again=True)])
    assert home.inbox.next_for(anna, 5) == [], "she has said what she thinks"
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [5]
    home.inbox.answer(Given(5, 1, ben))
    assert label_of(home, 5) == (1, "majority")


def test_labels_that_the_model_doubts_get_a_second_opinion(home: Home, people: list[int]) -> None:
    anna, ben, _ = people
    ask(home, range(5, 15))  # the model holds class 0 likeliest for all
    for sample in range(5, 15):
        home.inbox.answer(Given(sample, 2 if sample == 9 else 0, anna))
    home.inbox.set_taken(home.inbox.hand_out(0)[1])
    doubts = doubtful(home)
    assert [one.sample for one in doubts] == [9]
    assert ask_again(home, doubts) == 1
    assert doubtful(home) == [], "it is being asked"
    assert home.inbox.next_for(anna, 5) == []
    assert [q["sample"] for q in home.inbox.next_for(ben, 5)] == [9]
    home.inbox.answer(Given(9, 0, ben))
    assert [r["why"] for r in home.inbox.verdicts.reviews()] == ["conflict"]
    assert label_of(home, 9) == (2, "single"), "what training uses stands until it is decided"


# policy, roles, guidelines, audit


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"answers_per_sample": 0}, "whole number from 1 to 20"),
        ({"rule": "vote"}, "one of majority, dawid-skene"),
        ({"overlap": 2}, "from 0 to 1"),
        ({"read_to_end": 1}, "true or false"),
        ({"overlapp": 1}, "did you mean 'overlap'"),
    ],
)
def test_a_policy_that_does_not_fit_changes_nothing(home: Home, values: dict, words: str) -> None:
    before = home.policies.read()
    with pytest.raises(LabelError, match=words):
        home.policies.change(values)
    assert home.policies.read() == before


def test_guidelines_are_split_into_blocks_and_classes(home: Home) -> None:
    text = "# How to label\nLook twice.\n\n- one\n- two\n\n## dog\nIt **barks**.\n"
    (home.path / "guidelines.md").write_text(text)
    folder = home.path / "guidelines" / "dog"
    folder.mkdir(parents=True)
    (folder / "a.png").write_bytes(b"no picture")
    assert blocks(text)[2] == {"kind": "list", "lines": ["one", "two"]}
    found = Guide(home).read()
    assert [one["name"] for one in found["classes"]] == ["dog"]
    assert found["classes"][0]["pictures"] == ["dog/a.png"]
    assert found["classes"][0]["blocks"] == [{"kind": "paragraph", "lines": ["It **barks**."]}]
    with pytest.raises(LabelError, match="no such picture"):
        Guide(home).picture("../client.json")


def test_the_audit_log_shows_what_was_changed_removed_or_slipped_in(home: Home) -> None:
    for number in range(4):
        home.audit.note("anna", "answer", number, label=1)
    count, last = home.audit.verify()
    assert count == 4
    home.audit.note("ben", "answer", 9)
    assert home.audit.verify(last)[0] == 5, "an earlier end is still there"
    db = sqlite3.connect(home.path / "inbox.sqlite")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("UPDATE audit SET who = 'ben' WHERE id = 2")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("DELETE FROM audit WHERE id = 5")
    db.execute("DROP TRIGGER audit_stays")
    db.execute("DROP TRIGGER audit_keeps")
    db.execute("UPDATE audit SET who = 'ben' WHERE id = 2")
    db.commit()
    with pytest.raises(LabelError, match="tampered with: line 2"):
        home.audit.verify()
    db.execute("UPDATE audit SET who = 'anna' WHERE id = 2")
    db.commit()
    assert home.audit.verify()[0] == 5
    db.execute("DELETE FROM audit WHERE id >= 4")
    db.commit()
    assert home.audit.verify()[0] == 3
    with pytest.raises(LabelError, match="none of its 3 lines"):
        home.audit.verify(last)
    db.close()


def test_the_commands_for_a_team(home: Home, people: list[int], tmp_path: Path) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["label", words[0], str(home.path), *words[1:]])
        assert result.exit_code == 0, result.output + str(result.exception)
        return result.output

    assert "eva: adjudicator" in run("role", "adjudicator", "-a", "eva")
    assert "answers_per_sample = 2" in run("policy", "answers_per_sample=2", "rule=majority")
    ask(home, range(5, 15))
    for sample in range(5, 15):
        home.inbox.answer(Given(sample, sample % 3, people[0]))
        home.inbox.answer(Given(sample, sample % 3 if sample < 12 else 0, people[1]))
    assert "Krippendorff's alpha" in run("agreement")
    found = json.loads(run("agreement", "--json"))
    raw = agreement(
        [(s, "anna", s % 3) for s in range(5, 15)] + [(s, "ben", s % 3 if s < 12 else 0) for s in range(5, 15)], ANIMALS
    )
    assert found == json.loads(json.dumps(raw.to_json()))
    assert "4 gold samples" in run("gold", "--initial")
    out = tmp_path / "audit.jsonl"
    assert "none changed or removed" in run("audit", "-o", str(out))
    assert [json.loads(line)["what"] for line in out.read_text().splitlines()] == ["role", "policy", "gold"]


# exchange


def test_imported_answers_belong_to_who_made_them_and_when(home: Home) -> None:
    ask(home, [5, 6])
    tasks = [
        {
            "data": {"sample": 5, "annotator": "anna"},
            "annotations": [
                {
                    "completed_by": {"email": "kim@clinic"},
                    "result": [{"type": "choices", "value": {"choices": ["dog"]}}],
                    "created_at": "2026-01-01T00:00:00Z",
                    "updated_at": "2026-01-03T00:00:00Z",
                },
                {
                    "completed_by": {"email": "lee@clinic"},
                    "result": [{"type": "choices", "value": {"choices": ["cat"]}}],
                    "created_at": "2026-01-02T00:00:00Z",
                    "parent_prediction": 7,
                },
            ],
        }
    ]
    outcome = exchange.import_lines(home, label_studio.read_label_studio(json.dumps(tasks)))
    assert (outcome.accepted, outcome.refused) == (2, [])
    lines = home.ledger.answers()
    assert [(a["annotator"], a["label"], a["saw_model"]) for a in lines[-2:]] == [
        ("lee@clinic", 0, 1),
        ("kim@clinic", 1, 0),
    ]
    assert exchange.stamp(lines[-1]["answered_at"]).startswith("2026-01-03")
    assert label_of(home, 5) is None
    assert [r["why"] for r in home.inbox.verdicts.reviews()] == ["conflict"]
    again = exchange.import_lines(home, label_studio.read_label_studio(json.dumps(tasks)))
    assert (again.accepted, again.unchanged) == (0, 2), "repeatable"


def test_the_annotator_that_is_named_beats_the_file(home: Home) -> None:
    ask(home, [5])
    exchange.import_lines(home, exchange.read_csv("sample,class,annotator,saw_model\n5,dog,kim,1\n"), annotator="lee")
    assert [(a["annotator"], a["saw_model"]) for a in home.ledger.answers() if a["sample"] == 5] == [("lee", 1)]
    fix = exchange.read_csv("sample,class,annotator,answered_at\n5,cat,maria,2026-02-01T00:00:00Z\n")
    exchange.import_lines(home, fix, revise=True)
    line = next(line for line in home.ledger.labels() if line["sample"] == 5)
    assert (line["label"], line["annotator"], line["rule"]) == (0, "maria", "decision")


@pytest.mark.parametrize("name", ["=SUM(A1)", "+1", "-1+2", "@x", "plain", "'quoted"])
def test_cells_that_spreadsheets_would_run_are_neutral_and_come_back(tmp_path: Path, name: str) -> None:
    home = image_home(tmp_path / "home", classes=(name, "b"))
    ask(home, [5])
    home.inbox.answer(Given(5, 0, home.people.named("anna").id, comment=name))
    text = exchange.to_csv(home)
    row = text.splitlines()[1]
    assert not any(
        cell.strip('"').startswith(("=", "+", "@", "-")) for cell in row.split(",") if not cell[1:].isdigit()
    )
    twin = image_home(tmp_path / "twin", classes=(name, "b"))
    exchange.import_lines(twin, exchange.read_csv(text))
    assert [(line["label"], line["comment"]) for line in twin.ledger.labels()] == [(0, name)]


def test_links_and_revocations_are_lines_of_the_audit_log(home: Home) -> None:
    def run(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["label", words[0], str(home.path), *words[1:]], catch_exceptions=False)
        return done.output.splitlines()

    tokens = [line.rpartition("=")[2] for line in run("link", "-a", "anna", "-a", "ben")]
    assert len(tokens) == 2
    assert run("revoke", "-a", "anna") == ["anna: 1 sessions and links ended"]
    lines = [(line["who"], line["what"], line["detail"]) for line in home.audit.lines()]
    assert lines == [
        (operator(), "link", {"person": "anna"}),
        (operator(), "link", {"person": "ben"}),
        (operator(), "revoke", {"person": "anna", "ended": 1}),
    ]
    stored = (home.path / "inbox.sqlite").read_bytes() + (home.path / "inbox.sqlite-wal").read_bytes()
    assert all(token.encode() not in stored for token in tokens)
    with pytest.raises(LabelError, match="there is no annotator 'nobody'"):
        home.revoke("nobody", "lea")
    assert len(list(home.audit.lines())) == 3
