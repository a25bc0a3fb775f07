from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import final_weights, simulate, small_settings, timeless

from chase.annotation.behaviour import Behaviour
from chase.core.errors import DataError, RunDirectoryError, SettingsError
from chase.core.messages import ClientUpdate
from chase.data.resident import DataSet
from chase.report.runs import read_run
from chase.run.experiment import Experiment
from chase.run.metrics import easy_shares, stop_reason
from chase.run.record import Record
from chase.simulation.world import (
    PARTITIONS,
    count_coverage,
    expected_turns,
    last_request,
    shortages,
    split_among_clients,
)

Lines = list[dict[str, Any]]


def run(out: Path, data: DataSet, **changes: Any) -> Lines:
    return Experiment(Record.create(out, small_settings(**changes)), data, []).run()


class Stop(Exception):
    pass


def stop_after(round: int) -> Any:
    def on_round(metrics: dict[str, Any]) -> None:
        if metrics["round"] == round:
            raise Stop

    return on_round


CASES = {
    "chase": {},
    "random, some take part": {"strategy": "random", "take_part": 0.6},
    "late and wrong answers": {"answer_delay": 2, "wrong_labels": 0.3, "patience": 3, "behaviour": "ReCo"},
}


@pytest.mark.parametrize("case", CASES)
def test_twice_the_same_and_stopped_and_gone_on_with_the_same(case: str, digits: DataSet, tmp_path: Path) -> None:
    changes = CASES[case] | {"rounds": 5}
    whole = run(tmp_path / "whole", digits, **changes)
    again = run(tmp_path / "again", digits, **changes)
    assert timeless(again) == timeless(whole)

    with pytest.raises(Stop):
        Experiment(Record.create(tmp_path / "stopped", small_settings(**changes)), digits, []).run(stop_after(3))
    assert len(Record.open(tmp_path / "stopped").metrics) == 3
    gone_on = Experiment.resume(tmp_path / "stopped").run()
    assert timeless(gone_on) == timeless(whole)

    runs = [Record.open(tmp_path / name) for name in ("whole", "again", "stopped")]
    assert [timeless(r.metrics) for r in runs] == [timeless(whole)] * 3
    assert len(runs[0].selections) > 0
    assert all(r.selections == runs[0].selections for r in runs)
    assert len({final_weights(r.path) for r in runs}) == 1


def test_the_seed_matters(digits: DataSet, tmp_path: Path) -> None:
    one, other = (run(tmp_path / str(seed), digits, rounds=2, seed=seed) for seed in (0, 1))
    assert timeless(one) != timeless(other)
    assert final_weights(tmp_path / "0") != final_weights(tmp_path / "1")


def test_the_order_in_which_clients_run_changes_nothing(digits: DataSet, tmp_path: Path) -> None:
    settings = small_settings(dropout=0.3)
    plain = simulate(settings, digits, tmp_path / "plain")
    for seed in (1, 2):
        shuffled = simulate(settings, digits, tmp_path / str(seed), shuffle=seed)
        assert [u.client for u in shuffled.updates] != [u.client for u in plain.updates]
        assert shuffled.weights == plain.weights
        assert shuffled.asked == plain.asked


def test_a_directory_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run"
    Experiment.begin(small_settings(rounds=1), path).run()
    other = Experiment.resume(path, {"rounds": 2})
    with Record.open(path).held(), pytest.raises(RunDirectoryError, match="is being run by another process"):
        other.run()
    assert len(Record.open(path).metrics) == 1
    assert len(other.run()) == 2


def test_a_refused_resume_leaves_the_settings_of_a_live_run_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "run"
    Experiment.begin(small_settings(rounds=1), path).run()
    before = (path / "settings.toml").read_bytes()
    with Record.open(path).held(), pytest.raises(RunDirectoryError, match="is being run by another process"):
        Experiment.resume(path, {"rounds": 5})
    assert (path / "settings.toml").read_bytes() == before
    (path / "coverage.json").write_text("{}")  # stands for data that has changed
    with pytest.raises(RunDirectoryError, match="is not what it was"):
        Experiment.resume(path, {"rounds": 5})
    assert (path / "settings.toml").read_bytes() == before


def test_the_data_is_divided_once_per_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    divide = PARTITIONS["classes"]
    monkeypatch.setitem(PARTITIONS, "classes", lambda *a: calls.append("divided") or divide(*a))
    experiment = Experiment.begin(small_settings(rounds=1, partition="classes"), tmp_path / "run")
    experiment.run()
    assert calls == ["divided"]
    Experiment.resume(tmp_path / "run", {"rounds": 2}).run()
    assert calls == ["divided", "divided"]


def test_a_line_of_metrics_says_what_it_must(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, classes_per_client=3)  # 12 places, so that every class is held
    for number, line in enumerate(lines, start=1):
        assert line["round"] == number
        assert 0 <= line["test_accuracy"] <= 1
        assert line["labels"] == 4 * 5 * (number - 1)
        assert sum(line["pools"].values()) == len(digits.train)
        assert line["pools"]["labeled"] == lines[0]["pools"]["labeled"] + line["labels"]
        assert line["seconds"] > 0
        assert line["seconds_processor"] > 0
        assert {"train", "track", "clients", "evaluate"} <= set(line["seconds_by_phase"])
        assert 0 <= line["mean_ev"] <= 2
    assert lines[0]["inferences"] == 3 * lines[0]["pools"]["unlabeled"]
    assert lines[0]["inferred_samples"] == lines[0]["pools"]["unlabeled"] / 4
    assert len(lines[0]["per_class"]) == 10


def test_a_run_warns_of_a_client_that_decides_the_average(digits: DataSet, tmp_path: Path) -> None:
    """Aggressive clients of ReCo label ten times as often as others: in the end one has too large a share."""
    notes = {}
    for weights in ("labelled", "equal"):
        changes = {"client_weights": weights, "strategy": "random", "behaviour": "ReCo", "clients": 10, "rounds": 12}
        experiment = Experiment.begin(small_settings(**changes), tmp_path / weights)
        lines = experiment.run()
        notes[weights] = [note for note in experiment.notes if "of the average of 10 clients" in note]
        shares = [line["largest_share"] for line in lines]
        assert (max(shares) > 0.2) == (weights == "labelled")
        assert all(share >= 0.1 for share in shares)
    assert len(notes["labelled"]) == 1
    assert notes["equal"] == []


def test_that_warning_is_kept_at_once_and_given_once_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    settings = small_settings(strategy="random", behaviour="ReCo", clients=10, rounds=9)
    begun = Experiment.begin(settings, tmp_path / "run")
    kept: list[int] = []
    lines = begun.run(lambda metrics: kept.append(len(begun.record.notes)))
    uneven = [any(before["largest_share"] > 0.2 for before in lines[:n]) for n in range(1, 10)]
    assert uneven[-1]
    assert not uneven[0]
    assert [count > kept[0] for count in kept] == uneven, "as soon as it is so: a kill loses no note"
    notes = list(begun.record.notes)
    resumed = Experiment.resume(tmp_path / "run", {"rounds": 11})
    assert resumed.run()[-1]["largest_share"] > 0.2
    assert resumed.record.notes == notes
    (said,) = [note for note in notes if "of the average of 10 clients" in note]
    false = said.replace(said.split(" on ")[0], "from round 10")  # as earlier versions added when a run was resumed
    later = said.replace(said.split(" on ")[0], "from round 12")  # of a round that is done again
    resumed.record.add_notes([false, later])
    last = Experiment.resume(tmp_path / "run", {"rounds": 12})
    last.run()
    assert last.record.notes == notes
    (tmp_path / "run" / "notes.json").write_text("")
    with pytest.raises(RunDirectoryError, match=r"notes.json cannot be read: .* remove it"):
        Experiment.resume(tmp_path / "run", {"rounds": 13}).run()


def test_ifal_counts_ties_and_fairfal_the_models_that_judged(digits: DataSet, tmp_path: Path) -> None:
    """Clients of two classes on digits, about 170 candidates each: the score decides, not chance."""
    ifal = run(tmp_path / "ifal", digits, strategy="ifal", rounds=3, clients=8)
    assert [line["picks"] for line in ifal] == [0, 40, 40]
    assert ifal[0]["picks_by_chance"] is None
    assert all(line["picks_by_chance"] <= line["picks"] / 2 for line in ifal[1:])
    assert all("judged_by" not in line for line in ifal)
    fairfal = run(tmp_path / "fairfal", digits, strategy="fairfal", rounds=3, alone_epochs=5)
    assert "judged_by" not in fairfal[0]
    assert [sum(line["judged_by"].values()) for line in fairfal[1:]] == [4, 4]
    assert all(set(line["judged_by"]) <= {"global", "alone"} for line in fairfal[1:])


def test_clients_that_align_tell_how_much_counts_as_easy(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "chase", digits, strategy="chase", rounds=3)
    assert "easy_share" not in lines[0], "no client aligns in its first turn"
    assert all(0 < line["easy_share"] <= line["easy_share_most"] <= 1 for line in lines[1:])
    assert all("easy_share" not in line for line in run(tmp_path / "ev", digits, strategy="ev", rounds=3))
    updates = [ClientUpdate(n, 1, {}, 3, {"easy_sum": easy, "easy_count": 10.0}) for n, easy in enumerate((2.0, 9.0))]
    assert easy_shares([*updates, ClientUpdate(2, 1, {}, 3, {})]) == {"easy_share": 0.55, "easy_share_most": 0.9}
    assert easy_shares([ClientUpdate(2, 1, {}, 3, {})]) == {}


def test_picks_are_counted_with_those_that_ties_decided_and_by_class(digits: DataSet, tmp_path: Path) -> None:
    """Entropies differ between samples, so no pick is by chance; EV takes few values, so some are."""
    entropy = run(tmp_path / "a", digits, strategy="entropy", rounds=3)
    ev = run(tmp_path / "b", digits, strategy="ev", rounds=3)
    random = run(tmp_path / "c", digits, strategy="random", rounds=3)
    assert [line["picks"] for line in entropy] == [0, 20, 20]
    assert [line["picks_by_chance"] for line in entropy] == [None, 0, 0]
    assert all(0 < line["picks_by_chance"] <= line["picks"] for line in ev[1:])
    assert [line["picks_by_chance"] for line in random] == [None] * 3
    asked = Record.open(tmp_path / "b").selections
    for line in ev:
        counts = {(s["client"], s["label"]) for s in asked if s["round"] == line["round"]}
        assert {(int(c), int(k)) for c, own in line["asked_classes"].items() for k in own} == counts
        assert sum(n for own in line["asked_classes"].values() for n in own.values()) == line["picks"]


def test_observed_ev_is_over_the_same_samples_for_every_method(digits: DataSet, tmp_path: Path) -> None:
    """It changes nothing else: not even CHASe, whose own population is stripped of EV 0."""
    for strategy in ("random", "chase"):
        plain = run(tmp_path / f"{strategy}-plain", digits, strategy=strategy, rounds=3)
        seen = run(tmp_path / f"{strategy}-seen", digits, strategy=strategy, rounds=3, observe_ev=30)
        assert [line["observed_ev"] for line in plain] == [None] * 3
        assert all(0 <= line["observed_ev"] <= 2 for line in seen)
        assert [line["test_loss"] for line in seen] == [line["test_loss"] for line in plain]
        assert [line["observed_inferences"] for line in seen] == [3 * 30 * 4] * 3
    one, other = (
        [line["observed_ev"] for line in Record.open(tmp_path / f"{strategy}-seen").metrics]
        for strategy in ("random", "chase")
    )
    assert one[0] == other[0]  # the first round is the same, so is what is observed of it


def test_notes_are_kept_in_the_run_once(digits: DataSet, tmp_path: Path) -> None:
    settings = small_settings(clients=10, rounds=40, budget=10, strategy="random")
    experiment = Experiment.begin(settings, tmp_path / "run")
    (note,) = [note for note in experiment.notes if "run out of samples" in note]
    assert "before round 40" in note
    Record.open(tmp_path / "run").add_notes([note, "another"])
    assert read_run(tmp_path / "run").notes == [*experiment.notes, "another"]


def test_a_run_that_goes_on_for_longer_has_the_shortages_of_its_new_length(digits: DataSet, tmp_path: Path) -> None:
    settings = small_settings(clients=10, rounds=1, budget=10, strategy="random")
    place = tmp_path / "run"
    assert not [note for note in Experiment.begin(settings, place).notes if "run out" in note]
    Record.open(place).add_notes(["another"])
    for rounds in (40, 50):
        (note,) = Experiment.resume(place, {"rounds": rounds}).notes
        assert f"run out of samples to ask for before round {rounds}" in note
        assert read_run(place).notes == ["another", note], "what was said of fewer rounds no longer holds"
    assert Experiment.resume(place).notes == []
    assert Experiment.resume(place, {"rounds": 2}).notes == []
    assert read_run(place).notes == ["another"]


@pytest.mark.parametrize(
    ("free", "budget", "period", "round"), [(10, 10, 1, 2), (11, 10, 1, 3), (30, 10, 1, 4), (14, 7, 3, 5)]
)
def test_the_round_of_the_last_request_by_hand(free: int, budget: int, period: int, round: int) -> None:
    """Turn t is round t + 1; requests come in turns 1, 1 + period, ..."""
    assert last_request(Behaviour(budget, period), free) == round


def test_cycles_that_never_ask_say_so(digits: DataSet, tmp_path: Path) -> None:
    short, long = (
        Experiment.begin(small_settings(form="cycles", cycle_rounds=5, rounds=rounds), tmp_path / str(rounds))
        for rounds in (5, 6)
    )
    assert any("no labels are requested" in note for note in short.notes)
    assert not any("no labels are requested" in note for note in long.notes)


def test_mean_ev_is_null_unless_tracked(digits: DataSet, tmp_path: Path) -> None:
    untracked = run(tmp_path / "a", digits, strategy="random", rounds=2)
    tracked = run(tmp_path / "b", digits, strategy="random", rounds=2, track_ev=True)
    assert [line["mean_ev"] for line in untracked] == [None, None]
    assert all(line["mean_ev"] is not None for line in tracked)
    assert [line["test_accuracy"] for line in tracked] == [line["test_accuracy"] for line in untracked]


def test_answers_that_take_two_turns_wait_in_the_pool_asked(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, answer_delay=2, rounds=6)
    assert [line["pools"]["asked"] for line in lines] == [0, 20, 20, 20, 20, 20]
    assert [line["labels"] for line in lines] == [0, 0, 0, 20, 20, 40]


def test_a_patience_shorter_than_the_delay_never_gets_a_label(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, strategy="random", answer_delay=3, patience=1, rounds=6)
    assert [line["labels"] for line in lines] == [0] * 6
    assert [line["pools"]["asked"] for line in lines] == [0, 20, 20, 20, 20, 20]
    assert len(Record.open(tmp_path / "run").selections) == 5 * 20


def test_a_client_that_sits_out_keeps_its_counts(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, strategy="random", take_part=0.5, rounds=6)
    took_part = [line["took_part"] for line in lines]
    assert min(took_part) < 4
    asked = Record.open(tmp_path / "run").selections
    for line in lines:
        assert line["labels"] == sum(s["round"] <= line["round"] for s in asked)


def test_rounds_without_anybody_keep_the_model(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, take_part=1e-9, rounds=2)
    assert [line["took_part"] for line in lines] == [0, 0]
    assert lines[0]["test_loss"] == lines[1]["test_loss"]
    assert lines[1]["labels"] == 0


def test_free_behaviour_asks_by_budget_and_period(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, strategy="random", behaviour="free", budget=3, period=2, rounds=6)
    assert [line["labels"] for line in lines] == [0, 12, 12, 24, 24, 36]


def test_wrong_labels_reach_the_clients_and_initial_ones_are_right(digits: DataSet, tmp_path: Path) -> None:
    run(tmp_path / "run", digits, strategy="random", wrong_labels=1.0, rounds=2)
    told = Record.open(tmp_path / "run").selections
    assert len(told) == 20
    assert all(line["label"] != digits.train_labels[line["sample"]] for line in told)


def test_evaluation_every_so_often_and_always_at_the_end(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, strategy="random", eval_every=3, rounds=5)
    assert [line["test_accuracy"] is not None for line in lines] == [False, False, True, False, True]
    assert [line["test_loss"] is not None for line in lines] == [False, False, True, False, True]


def test_a_run_ends_at_its_target_accuracy(digits: DataSet, tmp_path: Path) -> None:
    free = [line["test_accuracy"] for line in run(tmp_path / "free", digits, strategy="random", rounds=6)]
    target = max(free[:4])
    reached = free.index(target) + 1
    lines = run(tmp_path / "run", digits, strategy="random", rounds=6, target=target)
    assert len(lines) == reached < 6
    assert stop_reason(small_settings(target=target), lines).startswith("target accuracy")
    assert len(Experiment.resume(tmp_path / "run").run()) == reached


def test_a_run_ends_when_its_budget_is_spent_with_a_last_evaluation(digits: DataSet, tmp_path: Path) -> None:
    lines = run(tmp_path / "run", digits, strategy="random", rounds=9, total_budget=40, eval_every=4)
    assert [line["labels"] for line in lines] == [0, 20, 40]
    assert lines[-1]["test_accuracy"] is not None
    assert stop_reason(small_settings(total_budget=40), lines) == "total budget of 40 labels spent"


def test_a_longer_run_goes_on_where_the_shorter_ended(digits: DataSet, tmp_path: Path) -> None:
    whole = run(tmp_path / "long", digits, rounds=4)
    run(tmp_path / "short", digits, rounds=2)
    longer = Experiment.resume(tmp_path / "short", {"rounds": 4}).run()
    assert timeless(longer) == timeless(whole)
    assert final_weights(tmp_path / "short") == final_weights(tmp_path / "long")


def test_a_damaged_checkpoint_costs_a_round_and_changes_nothing(digits: DataSet, tmp_path: Path) -> None:
    whole = run(tmp_path / "run", digits)
    before = final_weights(tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "server-000004.safetensors").write_bytes(b"rust")
    mended = Experiment.resume(tmp_path / "run")
    assert timeless(mended.run()) == timeless(whole)
    assert len(mended.notes) == 1
    assert "server-000004.safetensors is damaged" in mended.notes[0]
    assert final_weights(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"data": "digit"}, DataError),
        ({"classes_per_client": 11}, DataError),
        ({"clients": 9000}, DataError),
        ({"net": "tiny"}, SettingsError),
    ],
)
def test_what_is_refused_leaves_no_directory(changes: dict[str, Any], error: type, tmp_path: Path) -> None:
    with pytest.raises(error):
        Experiment.begin(small_settings(**changes), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_exists_is_not_touched(digits: DataSet, tmp_path: Path) -> None:
    run(tmp_path / "run", digits, rounds=1)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        Experiment.begin(small_settings(seed=5), tmp_path / "run")
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_clients_without_unlabelled_samples_are_told_apart_and_a_share_of_the_clients_counts(digits: DataSet) -> None:
    """A client that takes part in one round of ten asks as rarely; one that holds no unlabelled sample never does."""
    every = small_settings(clients=10, rounds=40, budget=10, strategy="random")
    some = every.model_copy(update={"share_of_clients": 0.1})
    table = count_coverage(every, digits, split_among_clients(every, digits))
    (note,) = shortages(every, table)
    assert "if they take part in every round" in note
    assert shortages(some, table) == []
    assert expected_turns(some) == 4.0
    assert expected_turns(some.model_copy(update={"away": 0.5, "take_part": 0.5})) == 2.0
    assert expected_turns(every.model_copy(update={"away": 0.25})) == 30.0

    labeled = table.labeled.copy()
    labeled[3, 0] += table.samples[3] - labeled[3].sum()
    full = replace(table, labeled=labeled)
    assert shortages(some, full) == [
        f"1 of 10 clients have no unlabelled sample, so they never ask: client {table.clients[3]} first"
    ]
    cycles = {"form": "cycles", "cycle_rounds": 5, "cycle_budget": "fixed", "rounds": 300}
    none, short = shortages(every.model_copy(update=cycles), full)
    assert none.startswith("1 of 10 clients have no unlabelled sample")
    assert "9 of 10 clients run out of samples to ask for before round 300, in 59 requests: client" in short
    assert shortages(every.model_copy(update={**cycles, "share_of_clients": 0.2}), table) == [], "12 requests of 2.5 %"
    first, second = shortages(every.model_copy(update={"share_of_clients": 0.5, "rounds": 80}), full)
    assert first.startswith("1 of 10 clients have no unlabelled sample")
    assert (
        "9 of 10 clients run out of samples to ask for before round 80, if they take part in 40 rounds each" in second
    )
