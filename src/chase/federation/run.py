"""The server's side of a federation: ``chase.run.loop`` over the sites.

It continues from the last checkpoint of the run directory, so a server that was killed is resumed by starting it
again: the run keeps its id, and sites answer repeated orders from what they committed (``begin_again``: except where
no round was saved and features are fitted).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from chase.federation.diary import Diary
from chase.federation.engine import FederationEngine
from chase.federation.in_step import ANEW, RESTARTED
from chase.federation.rollback import begin_again
from chase.federation.rules import FederationDirectory
from chase.federation.transport import Transport
from chase.report.html import report_run
from chase.run.loggers import Loggers
from chase.run.loop import restore, run_rounds
from chase.run.metrics import Metrics, stop_reason
from chase.run.record import Record
from chase.run.scoring import Evaluation

PATIENCE = 5.0
"""Seconds to wait for the run's lock: a server that was just killed may not have ended yet."""


def run_federation(
    federation: FederationDirectory,
    transport: Transport,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Metrics]:
    """All rounds that are left; returns the metrics of every round."""
    record, diary = Record.open(federation.run), Diary(federation.run)
    record.expect("federation")
    with record.held(PATIENCE):
        begin_again(record, diary, federation.rules.secure)
        engine = FederationEngine(federation, record.settings, transport, diary, clock, sleep)
        past = _run(engine, record, diary)
        why = stop_reason(record.settings, past[-1:])
        diary.note(len(past), "finished", why=why)
        report_run(record.path)
        diary.show(phase="finished", why=why)
        return past


def _run(engine: FederationEngine, record: Record, diary: Diary) -> list[Metrics]:
    saved, settings, notes = restore(record, engine.spec, engine.checkpoint), record.settings, list[str]()
    told: list[str] = []
    diary.note(saved.done, "begun" if saved.done == 0 else "resumed", why="; ".join(saved.problems))

    if record.rolled_back_to == saved.done and saved.server.begin_anew():
        diary.note(saved.done, RESTARTED, why=ANEW)

    def announce(metrics: Metrics) -> None:
        shown = {"accuracy": metrics["test_accuracy"], "labels": metrics["labels"]}
        diary.show(phase="saved", round=metrics["round"], **shown)
        engine.tell_refused(metrics["round"], saved.server.refused)
        for note in saved.server.notes[len(told) :]:
            diary.note(metrics["round"], "note", why=note)
            told.append(note)

    try:
        with Loggers(record, notes) as loggers:
            if not stop_reason(settings, record.metrics[-1:]):
                engine.gather(saved.done)
            evaluate = Evaluation(settings, engine.test_set, engine.score_at_sites)
            return run_rounds(engine, saved.server, evaluate, record, saved.checkpoint, loggers, announce)
    finally:
        engine.close()
        notes += saved.server.notes + engine.notes
        record.add_notes(notes)
        for note in (note for note in notes if note not in told):
            diary.note(len(record.metrics), "note", why=note)
