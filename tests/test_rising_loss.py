"""A loss that rises without ending the run is said once; ordinary losses are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import small_settings

from chase.core.messages import ClientUpdate
from chase.data.resident import DataSet
from chase.report.html import report_run
from chase.run import metrics
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.run.rising_loss import rising_loss

ORDINARY = {
    "falls": [2.2, 0.78, 0.33, 0.25, 0.15, 0.06],
    "hard samples are labelled": [0.49, 0.19, 0.05, 0.12, 0.18, 0.4, 0.6, 0.9],
    "near zero": [0.3, 0.004, 0.0, 0.0, 0.03, 0.03, 0.03],
    "learns slowly from nothing": [2.4, 2.5, 2.4, 2.3, 2.3],
    "two high rounds": [2.0, 0.4, 1.9, 2.2, 0.5, 2.0, 2.1, 0.4],
    "not told": [None, None, None, None],
}
RISES = {
    "rises": ([1.2, 0.41, 1.3, 1.6, 1.9, 2.5], 5, "1.9 after round 5, before that 0.41 after round 2"),
    "stays at guessing": ([0.9, 0.5, 2.3, 2.3, 2.3, 2.3], 5, "2.3 after round 5, before that 0.5 after round 2"),
    "from the start": ([17.5, 12.0, 19.0, 30.0], 3, "19 after round 3, before that 2.3, which is what guessing gives"),
}


def said(losses: list[float | None], **changes: object) -> dict[int, str]:
    """The notes by round, as a run asks for them."""
    settings = small_settings(**{"lr": 0.5, "strategy": "random", **changes}).resolved()
    lines = [{"round": n, **({} if x is None else {"train_loss": x})} for n, x in enumerate(losses, start=1)]
    ends = range(1, len(lines) + 1)
    return {end: note for end in ends for note in rising_loss(settings, 10, lines[:end])}


@pytest.mark.parametrize("case", ORDINARY)
def test_ordinary_losses_are_not_noted(case: str) -> None:
    assert said(ORDINARY[case]) == {}


@pytest.mark.parametrize("case", RISES)
def test_a_loss_that_rises_is_said_once(case: str) -> None:
    losses, round, words = RISES[case]
    found = said(losses)
    assert list(found) == [round]
    assert words in found[round]
    assert "(lr = 0.5, sgd)" in found[round]
    assert found[round].endswith("try --set lr=0.05")
    assert said(losses, form="reset") == {}


def test_the_note_is_in_the_run_and_its_report(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, losses = metrics.mean_loss, iter([0.4, 1.3, 1.6, 1.9, 2.5])

    def scripted(updates: Sequence[ClientUpdate]) -> metrics.Metrics:
        assert real(updates)["train_loss"] > 0  # what clients tell
        return {"train_loss": next(losses)}

    monkeypatch.setattr(metrics, "mean_loss", scripted)
    settings = small_settings(strategy="random", rounds=5).resolved()
    experiment = Experiment(Record.create(tmp_path / "r", settings), digits, [])
    experiment.run()
    notes = [note for note in experiment.notes if "the training loss has risen" in note]
    assert len(notes) == 1
    assert "1.9 after round 4" in notes[0]
    assert notes[0] in json.loads((tmp_path / "r" / "notes.json").read_text())
    page = report_run(tmp_path / "r")
    assert page is not None
    assert "raining loss has risen and stayed high" in page.read_text()
