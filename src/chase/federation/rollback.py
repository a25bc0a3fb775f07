"""Going back to an earlier round: the model and the record go back, the sites keep every label.

The run gets a new id. Sites know turns by run and round, so one that was ahead of the server, because the server was
restored from an older copy, say, takes the next order like any other; what it has learnt from people stays with it.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.federation.diary import Diary, events
from chase.federation.engine import saved_rounds
from chase.federation.rules import FederationDirectory
from chase.run.record import Record


def roll_back(federation: FederationDirectory, round: int) -> None:
    """Make ``round`` the last one that is done; 0 is the start. Refused while the rounds are being run."""
    record = Record.open(federation.run)
    record.expect("federation")
    checkpoint = saved_rounds(federation)
    with record.held():
        saved = checkpoint.rounds()
        if round and round not in saved:
            listed = ", ".join(str(r) for r in saved) or "none"
            raise FederationError(f"round {round} is not saved; saved rounds: {listed} (0 is the start)")
        checkpoint.cut_after(round)
        record.cut_after(round)
        body = rename(record, round)
        diary = Diary(record.path)
        diary.note(round, "rollback", why=f"round {round} is the last one now; the run continues as {body['run']}")
        diary.show(phase="rolled back", round=round, why="")


def rename(record: Record, round: int) -> dict[str, Any]:
    """Give the run a new id, after which it continues from ``round``; returns what environment.json says now."""
    path = record.path / "environment.json"
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    body |= {"run": secrets.token_hex(8), "earlier_runs": [*body.get("earlier_runs", []), record.run]}
    body["rolled_back_to"] = round
    write_atomically(path, json.dumps(body, indent=2).encode(), durable=True)
    return body


def begin_again(record: Record, diary: Diary, secure: bool) -> None:
    """Give a run a new id that ended before its first round was saved, and fits features before that round.

    Other sites may fit them now, and a site would answer for features that are no longer those of the model. With
    ``secure`` people decide: a second sum, over other sites, tells what one site sent.
    """
    begun = any(event["what"] == "begun" for event in events(record.path))
    if begun and not record.metrics and not secure and record.settings.learner == "closed-form":
        record.run, record.rolled_back_to = rename(record, 0)["run"], 0
        diary.note(0, "begun again", why="no round was saved: features are fitted anew, the sites keep every label")
