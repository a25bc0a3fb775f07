from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from homes import ANIMALS, ask, image_home, text_home
from typer.testing import CliRunner

from chase.cli.main import app
from chase.core.errors import LabelError
from chase.home import exchange, label_studio
from chase.home.home import Home
from chase.home.inbox import Given
from chase.home.views import HomeView


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = image_home(tmp_path / "home", initial={0: 1})
    ask(made, range(5, 9))
    anna = made.people.named("anna").id
    made.inbox.answer(Given(5, 2, anna, seconds=1.25))
    made.inbox.answer(Given(6, None, anna, "bad sample"))
    return made


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_says_who_labelled_what_and_why_it_was_asked(home: Home) -> None:
    initial, label, skip = rows(exchange.to_csv(home))
    assert (initial["sample"], initial["class"], initial["annotator"]) == ("0", "dog", "initial")
    assert (label["class"], label["label"], label["annotator"], label["seconds"]) == ("horse", "2", "anna", "1.25")
    assert (label["round"], label["strategy"], label["ev"]) == ("2", "chase", "4")
    assert label["answered_at"].startswith("20")
    assert (skip["class"], skip["reason"]) == ("", "bad sample")
    assert [line["sample"] for line in rows(exchange.to_csv(home, waiting=True))] == ["7", "8"]


FORMS = ("csv", "json", "label-studio")


def exported(home: Home, form: str, answers: bool = False) -> str:
    if form == "label-studio":
        return label_studio.to_label_studio(home, HomeView(home), answers=answers)
    return exchange.to_csv(home, answers=answers) if form == "csv" else exchange.to_json(home, answers=answers)


def read_again(text: str, form: str) -> list[exchange.Line]:
    return exchange.read_csv(text) if form == "csv" else label_studio.read_any_json(text)


def through_the_server(text: str) -> list[dict]:
    """Our tasks as Label Studio exports them: numbers, dates and the author are the server's own."""
    tasks = json.loads(text)
    for task in tasks:
        task["id"] += 1000
        for place, one in enumerate(task["annotations"]):
            one |= {"import_id": one["id"], "id": place + 1, "completed_by": 1, "updated_by": None, "lead_time": 9}
            one |= {"created_at": "2126-06-01T00:00:00Z", "updated_at": "2126-06-01T00:00:00.3Z"}
    return list(tasks)


def own_answers(home: Home) -> list[tuple]:
    keep = ("sample", "annotator", "label", "reason", "seconds", "saw_model", "unsure", "comment", "decides")
    return [(*(line[k] for k in keep), exchange.stamp(line["answered_at"])) for line in home.ledger.answers()]


@pytest.fixture
def crowd(tmp_path: Path) -> Home:
    """Sample 5: two agree; 6: two of three; 7: conflict, decided by the adjudicator; 8: a conflict that waits."""
    made = image_home(tmp_path / "crowd")
    made.policies.change({"answers_per_sample": 3})
    ask(made, range(5, 9))
    anna, ben, cleo, eva = (made.people.named(name).id for name in ("anna", "Ben, Dr.", "cleo", "eva"))
    for sample, who, label in ((5, anna, 1), (5, ben, 1), (5, cleo, 1), (6, anna, 2), (6, ben, 2), (6, cleo, 0)):
        made.inbox.answer(
            Given(sample, label, who, seconds=who + 0.5, saw_model=who == ben, unsure=who == anna, comment=f"c{who}")
        )
    for sample in (7, 8):
        made.inbox.answer(Given(sample, 0, anna))
        made.inbox.answer(Given(sample, 1, ben))
        made.inbox.answer(Given(sample, None, cleo, "cannot tell"))
    made.inbox.answer(Given(7, 2, eva, decides=True))
    return made


@pytest.mark.parametrize("form", [*FORMS, "server"])
def test_every_person_s_own_answer_survives_the_round_trip(crowd: Home, tmp_path: Path, form: str) -> None:
    text = exported(crowd, "label-studio" if form == "server" else form, answers=True)
    if form == "server":
        text = json.dumps(through_the_server(text))
    twin = image_home(tmp_path / "twin")
    assert exchange.import_lines(twin, read_again(text, form)).accepted == 13
    assert own_answers(twin) == own_answers(crowd)
    labels = [(line["sample"], line["label"], line["rule"], line["annotator"]) for line in twin.ledger.labels()]
    assert labels == [
        (5, 1, "majority", '"Ben, Dr.", anna, cleo'),
        (6, 2, "majority", '"Ben, Dr.", anna'),
        (7, 2, "decision", "eva"),
    ]
    assert [(r["sample"], r["why"]) for r in twin.inbox.verdicts.reviews()][:1] == [(8, "conflict")]
    assert exchange.import_lines(twin, read_again(text, form)).accepted == 0, "repeatable"


@pytest.mark.parametrize("form", [*FORMS, "server"])
def test_a_label_of_several_people_comes_back_as_theirs(crowd: Home, tmp_path: Path, form: str) -> None:
    text = exported(crowd, "label-studio" if form == "server" else form)
    if form == "server":
        text = json.dumps(through_the_server(text))
    twin = image_home(tmp_path / "twin")
    exchange.import_lines(twin, read_again(text, form))
    assert sorted(one.name for one in twin.people.everybody()) == ["Ben, Dr.", "anna", "cleo", "eva"]
    keep = {(5, "anna"), (5, "Ben, Dr."), (5, "cleo"), (6, "anna"), (6, "Ben, Dr."), (7, "eva")}
    assert own_answers(twin) == [line for line in own_answers(crowd) if line[:2] in keep]
    assert [line["label"] for line in twin.ledger.labels()] == [1, 2, 2]


def test_a_file_of_an_earlier_version_splits_the_names_of_a_majority(tmp_path: Path) -> None:
    twin = image_home(tmp_path / "twin")
    text = 'sample,class,annotator,rule\n5,dog,"anna, ben",majority\n6,dog,"Ben, Dr.",single\n'
    exchange.import_lines(twin, exchange.read_csv(text))
    assert twin.ledger.votes() == [(5, "anna", 1), (5, "ben", 1), (6, "Ben, Dr.", 1)]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_class_changed_in_the_file_is_one_correction_of_who_imports_it(crowd: Home, form: str) -> None:
    text = exported(crowd, form)
    before, after = (
        ('dog,1,,"""Ben', 'horse,2,,"""Ben') if form == "csv" else ('"dog",\n  "label": 1', '"horse",\n  "label": 2')
    )
    assert text.count(before) == 1
    changed = text.replace(before, after)
    assert exchange.import_lines(crowd, read_again(changed, form), annotator="kim", revise=True).accepted == 1
    line = crowd.ledger.labels()[0]
    assert (line["label"], line["annotator"], line["rule"]) == (2, "kim", "decision")


def test_a_correction_at_label_studio_belongs_to_who_made_it_there(crowd: Home, tmp_path: Path) -> None:
    tasks = through_the_server(exported(crowd, "label-studio"))
    task = next(task for task in tasks if task["data"]["sample"] == 5)
    one = task["annotations"][1]
    one["result"][0]["value"]["choices"] = ["cat"]
    one |= {"updated_by": 7, "updated_at": "2126-06-02T00:00:00Z"}
    task["annotations"][2]["completed_by"] = {"id": 7, "email": "kim@clinic"}
    lines = [line for line in label_studio.read_label_studio(json.dumps(tasks)) if line.sample == 5]
    found = [(line.annotator, line.class_name, line.saw_model) for line in lines]
    assert found == [("anna", "dog", False), ("cleo", "dog", False), ("kim@clinic", "cat", False)]
    assert exchange.stamp(lines[-1].answered_at).startswith("2126-06-02")
    new = {
        "id": 3,
        "import_id": None,
        "completed_by": 1,
        "result": [{"type": "choices", "value": {"choices": ["cat"]}}],
    }
    task["annotations"] = [new]
    (line,) = (line for line in label_studio.read_label_studio(json.dumps(tasks)) if line.sample == 5)
    assert (line.annotator, line.saw_model) == ("Label Studio user 1", False), "its number is not one of ours"


def test_a_decision_in_a_file_does_not_overrule_what_is_here_unless_it_may(crowd: Home, tmp_path: Path) -> None:
    twin = image_home(tmp_path / "twin")
    twin.inbox.answer(Given(7, 0, twin.people.named("kim").id))
    lines = exchange.read_csv(exchange.to_csv(crowd))
    with pytest.raises(LabelError, match="sample 7 was answered already, by kim"):
        exchange.import_lines(twin, lines)
    exchange.import_lines(twin, lines, revise=True)
    assert [line["label"] for line in twin.ledger.labels() if line["sample"] == 7] == [2]


def two_people(path: Path, form: str, ben: int) -> list[exchange.Line]:
    """A file in which anna says dog of sample 5, and ben another class or the same."""
    donor = image_home(path)
    donor.policies.change({"answers_per_sample": 2})
    ask(donor, [5])
    donor.inbox.answer(Given(5, 1, donor.people.named("anna").id))
    donor.inbox.answer(Given(5, ben, donor.people.named("ben").id))
    return read_again(exported(donor, form, answers=True), form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", ["carl", "initial"])
@pytest.mark.parametrize("ben", [1, 0])
@pytest.mark.parametrize("revise", [False, True])
def test_two_people_of_a_file_are_two_answers_more_to_a_labelled_sample(
    tmp_path: Path, form: str, first: str, ben: int, revise: bool
) -> None:
    here = image_home(tmp_path / "here", initial={5: 1} if first == "initial" else None)
    if first == "carl":
        ask(here, [5])
        here.inbox.answer(Given(5, 1, here.people.named("carl").id))
    lines = two_people(tmp_path / "donor", form, ben)
    done = exchange.import_lines(here, lines, revise=revise)
    assert (done.accepted, done.unchanged, done.refused) == (2, 0, [])
    said = [(one["annotator"], one["label"], one["decides"]) for one in here.ledger.answers()]
    assert said == [(first, 1, 0), ("anna", 1, 0), ("ben", ben, 0)]
    current = here.inbox.current(5)
    assert current is not None
    assert current["label"] == 1, "two of three, or all"
    assert exchange.import_lines(here, lines, revise=revise).unchanged == 2, "repeatable"


@pytest.mark.parametrize("form", FORMS)
def test_one_author_who_says_what_is_in_force_changes_nothing(tmp_path: Path, form: str) -> None:
    here = image_home(tmp_path / "here", initial={5: 1})
    lines = [line for line in two_people(tmp_path / "donor", form, 0) if line.annotator == "anna"]
    assert exchange.import_lines(here, lines).unchanged == 1
    assert [one["annotator"] for one in here.ledger.answers()] == ["initial"]


def changed_there(crowd: Home, by: str) -> list[exchange.Line]:
    """Sample 5, of which three people said dog: somebody at Label Studio made a cat of the second one's."""
    tasks = through_the_server(exported(crowd, "label-studio"))
    task = next(task for task in tasks if task["data"]["sample"] == 5)
    one = task["annotations"][1]
    one["result"][0]["value"]["choices"] = ["cat"]
    one |= {"completed_by": {"id": 7, "email": by}, "updated_at": "2126-06-02T00:00:00Z"}
    return label_studio.read_any_json(json.dumps([task]))


def test_an_annotation_that_a_reviewer_changed_corrects_the_label(crowd: Home) -> None:
    lines = changed_there(crowd, "kim@clinic")
    with pytest.raises(LabelError, match=r'sample 5 was answered already, by "Ben, Dr\."'):
        exchange.import_lines(crowd, lines)
    done = exchange.import_lines(crowd, lines, revise=True)
    assert (done.accepted, done.unchanged) == (1, 2)
    (line,) = (line for line in crowd.ledger.labels() if line["sample"] == 5)
    assert (line["label"], line["annotator"], line["rule"]) == (0, "kim@clinic", "decision")
    assert exchange.import_lines(crowd, lines, revise=True).unchanged == 3


def test_who_changes_their_own_annotation_changes_their_vote_only(crowd: Home) -> None:
    done = exchange.import_lines(crowd, changed_there(crowd, "Ben, Dr."), revise=True)
    assert (done.accepted, done.unchanged) == (1, 2)
    (line,) = (line for line in crowd.ledger.labels() if line["sample"] == 5)
    assert (line["label"], line["annotator"], line["rule"]) == (1, "anna, cleo", "majority")


def test_a_change_that_its_author_imports_is_no_decision(crowd: Home) -> None:
    (line,) = (line for line in changed_there(crowd, "somebody@clinic") if line.class_name == "cat")
    assert exchange.import_lines(crowd, [line], annotator="Ben, Dr.", revise=True).accepted == 1
    current = crowd.inbox.current(5)
    assert current is not None
    assert (current["label"], current["rule"]) == (1, "majority")


@pytest.mark.parametrize("who", ["anna", "Ben, Dr.", "cleo"])
def test_to_change_anybody_s_answer_in_a_file_needs_revise(crowd: Home, who: str) -> None:
    lines = [
        replace(line, class_name="horse", label=None) if (line.sample, line.annotator) == (5, who) else line
        for line in exchange.read_csv(exchange.to_csv(crowd, answers=True))
    ]
    with pytest.raises(
        LabelError, match=rf"sample 5 was answered already, by {who} \(--revise corrects what was answered"
    ):
        exchange.import_lines(crowd, lines)
    assert exchange.import_lines(crowd, lines, revise=True).accepted == 1
    assert [one["label"] for one in crowd.ledger.answers() if (one["sample"], one["annotator"]) == (5, who)] == [2]
    current = crowd.inbox.current(5)
    assert current is not None
    assert (current["label"], current["rule"]) == (1, "majority")


def test_of_two_lines_of_a_person_the_last_holds_and_the_file_is_repeatable(tmp_path: Path) -> None:
    here = image_home(tmp_path / "here")
    lines = exchange.read_csv("sample,class,annotator\n5,dog,anna\n5,cat,anna\n5,dog,ben\n")
    assert exchange.import_lines(here, lines).accepted == 3
    assert here.ledger.votes() == [(5, "anna", 0), (5, "ben", 1)]
    assert exchange.import_lines(here, lines).unchanged == 3


def test_the_text_null_in_json_stays_a_text(tmp_path: Path) -> None:
    here = image_home(tmp_path / "here", classes=("null", "dog"))
    text = '[{"sample": 5, "class": "null", "annotator": "null", "comment": "null", "seconds": null}]'
    exchange.import_lines(here, label_studio.read_any_json(text))
    (line,) = here.ledger.labels()
    assert (line["label"], line["annotator"], line["comment"], line["seconds"]) == (0, "null", "null", None)


def test_json_finds_samples_by_name_as_a_csv_does(tmp_path: Path) -> None:
    here = image_home(tmp_path / "here")
    lines = label_studio.read_any_json('[{"name": "image-5", "class": "dog"}]')
    assert exchange.import_lines(here, lines).accepted == 1
    with pytest.raises(LabelError, match="object 1 names no sample: it needs 'sample' or 'name'"):
        label_studio.read_any_json('[{"class": "dog"}]')


def test_one_person_at_label_studio_has_one_name_in_all_tasks() -> None:
    def task(sample: int, by: object) -> dict:
        result = [{"type": "choices", "value": {"choices": ["dog"]}}]
        return {"data": {"sample": sample}, "annotations": [{"result": result, "completed_by": by}]}

    tasks = [task(5, 7), task(6, {"id": 7, "email": "kim@clinic"})]
    assert [line.annotator for line in label_studio.read_any_json(json.dumps(tasks))] == ["kim@clinic"] * 2


@pytest.mark.parametrize("form", FORMS)
def test_what_goes_out_comes_in_again_elsewhere(home: Home, tmp_path: Path, form: str) -> None:
    twin = image_home(tmp_path / "twin")
    ask(twin, range(5, 9))
    lines = read_again(exported(home, form), form)
    assert exchange.import_lines(twin, lines).accepted == 3
    keep = ("sample", "label", "reason", "annotator", "seconds")
    assert [[line[k] for k in keep] for line in twin.ledger.labels()] == [
        [line[k] for k in keep] for line in home.ledger.labels()
    ]
    assert exchange.import_lines(twin, lines).unchanged == 3, "the same file again says nothing new"
    assert [a.label for a in twin.inbox.hand_out(0)[0]] == [1, 2, None]


def test_label_studio_tasks_carry_sample_annotation_and_prediction(home: Home) -> None:
    tasks = json.loads(label_studio.to_label_studio(home, HomeView(home)))
    labelled, skipped = tasks[1], tasks[2]
    assert labelled["data"]["image"].startswith("data:image/png;base64,")
    assert labelled["data"]["sample"] == 5
    assert labelled["data"]["annotator"] == "anna"
    (annotation,) = labelled["annotations"]
    assert annotation["result"][0]["value"] == {"choices": ["horse"]}
    assert annotation["lead_time"] == 1.25
    assert "completed_by" not in annotation
    (prediction,) = labelled["predictions"]
    assert (prediction["score"], prediction["result"][0]["value"]) == (0.625, {"choices": ["cat"]})
    assert skipped["annotations"][0]["was_cancelled"]
    waiting = json.loads(label_studio.to_label_studio(home, HomeView(home), waiting=True))
    assert [task["data"]["sample"] for task in waiting] == [7, 8]
    assert all("annotations" not in task for task in waiting)


def test_the_interface_names_every_class_and_quotes_what_xml_needs(tmp_path: Path) -> None:
    config = label_studio.label_studio_config(text_home(tmp_path / "home", ["ab"], ("a&b", 'say "x"', "<c>")))
    assert '<Text name="sample" value="$text"/>' in config
    assert "&amp;" in config
    assert "&lt;c&gt;" in config


def test_label_studio_s_own_exports_come_in(home: Home) -> None:
    def task(sample: int, choice: str | None, by: object) -> dict:
        value = {"choices": [choice]}
        result = [{"from_name": "label", "to_name": "sample", "type": "choices", "value": value}] if choice else []
        annotation = {"result": result, "completed_by": by, "lead_time": 3, "was_cancelled": choice is None}
        return {"id": 1, "data": {"sample": sample}, "annotations": [{"result": []}, annotation]}

    tasks = [
        task(7, "cat", {"id": 4, "email": "kim@example.org"}),
        task(8, None, 12),
        {"id": 3, "data": {"sample": 9}, "annotations": []},
    ]
    assert exchange.import_lines(home, label_studio.read_label_studio(json.dumps(tasks))).accepted == 2
    found = {line["sample"]: line for line in home.ledger.labels()}
    assert (found[7]["label"], found[7]["annotator"], found[7]["seconds"]) == (0, "kim@example.org", 3)
    assert (found[8]["reason"], found[8]["annotator"]) == ("cannot tell", "Label Studio user 12")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("99,cat", "sample 99 is not one"),
        ("7,lion", "no class 'lion'"),
        ("5,cat", "answered already, by anna"),
        ("7,", "neither a class nor a reason"),
        ("99999999999999999999,cat", "is not one"),
        ("7,cat,2", "class 'cat' is number 0, not 2"),
    ],
)
def test_files_meet_the_same_checks_as_the_page(home: Home, line: str, why: str) -> None:
    lines = exchange.read_csv(f"sample,class,label\n8,cat\n{line}\n")
    with pytest.raises(LabelError, match=why) as refused:
        exchange.import_lines(home, lines)
    assert "line 3" in str(refused.value)
    assert home.inbox.current(8) is None, "all or nothing"
    outcome = exchange.import_lines(home, lines, annotator="kim", keep_good=True)
    assert (outcome.accepted, len(outcome.refused)) == (1, 1)
    current = home.inbox.current(8)
    assert current is not None
    assert current["by"] == "kim"


def test_revise_corrects_and_names_find_samples(home: Home) -> None:
    assert exchange.import_lines(home, exchange.read_csv("name,label\nimage-5,0\n"), revise=True).accepted == 1
    current = home.inbox.current(5)
    assert current is not None
    assert (current["label"], current["by"]) == (0, "import")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "sample\n1\n", "sample,label\nx,1\n", "sample,label\n1,x\n"])
def test_a_csv_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LabelError, match=r"column|whole number"):
        exchange.read_csv(text)


def test_a_name_of_a_class_in_the_column_of_numbers_is_told_where_it_belongs() -> None:
    with pytest.raises(LabelError, match="not 'cat'; write names of classes into the column 'class'"):
        exchange.read_csv("sample,label\n1,cat\n")


def test_a_csv_with_an_endless_cell_is_refused() -> None:
    with pytest.raises(LabelError, match="line 2 cannot be read"):
        exchange.read_csv(f"sample,class\n5,{'x' * 200_000}\n")


def test_of_classes_with_the_same_name_the_number_decides(tmp_path: Path) -> None:
    home = image_home(tmp_path / "home", classes=("cat", "dog", "cat"))
    exchange.import_lines(home, exchange.read_csv("sample,class,label\n1,cat,2\n2,cat,\n"))
    assert [line["label"] for line in home.ledger.labels()] == [2, 0]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "[" * 100_000, '[{"data": 3, "annotations": [{}]}]', '[{"annotations": []}]']
)
def test_json_that_is_no_label_studio_file_is_refused(text: str) -> None:
    with pytest.raises(LabelError):
        label_studio.read_label_studio(text)


def test_the_commands(home: Home, tmp_path: Path) -> None:
    run = CliRunner().invoke
    out = tmp_path / "labels.csv"
    assert run(app, ["label", "export", str(home.path), "-o", str(out)]).exit_code == 0
    assert len(rows(out.read_text())) == 3
    shown = run(app, ["label", "export", str(home.path), "--format", "label-studio-config"]).stdout
    assert all(name in shown for name in ANIMALS)
    out.write_text("sample,class,annotator\n7,cat,kim\n5,cat,kim\n")
    failed = run(app, ["label", "import", str(home.path), str(out)])
    assert isinstance(failed.exception, LabelError)
    done = run(app, ["label", "import", str(home.path), str(out), "--revise"])
    assert "2 imported, 0 unchanged, 0 refused" in done.stdout
    assert "no second opinion is needed" in run(app, ["label", "again", str(home.path)]).stdout
    assert "#token=" in run(app, ["label", "link", str(home.path), "-a", "kim"]).stdout
    assert isinstance(run(app, ["label", str(tmp_path)]).exception, LabelError)


LABEL_COMMANDS = """
import contextlib, io, sys
from chase import __main__ as command
home, labels = sys.argv[1:]
for words in (["status", home], ["export", home, "-o", labels], ["import", home, labels], ["agreement", home],
              ["policy", home], ["link", home, "-a", "ben"], ["audit", home]):
    sys.argv = ["chase", "label", *words]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            command.main()
        except SystemExit as end:
            assert end.code == 0, (words, end.code)
    assert said.getvalue() or words[0] == "export", words
    slow = {"torch", "scipy", "pydantic", "pyarrow", "matplotlib"} & set(sys.modules)
    assert not slow, (words, slow)
"""


def test_label_commands_load_nothing_that_runs_need(home: Home, tmp_path: Path) -> None:
    """They answer at once: whoever labels waits for them."""
    command = [sys.executable, "-c", LABEL_COMMANDS, str(home.path), str(tmp_path / "labels.csv")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "labels.csv").is_file()
