"""Going back to an earlier round: the model and the record go back, the sites keep every label.

The run gets a new id. Sites know turns by run and round, so one that was ahead of the server, because the server was
restored from an older copy, say, takes the next order like any other; what it has learnt from people stays with it.
"""

from __future__ import annotations

import json
import secrets

from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.federation.diary import Diary
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
        path = record.path / "environment.json"
        body = json.loads(path.read_text(encoding="utf-8"))
        body |= {"run": secrets.token_hex(8), "earlier_runs": [*body.get("earlier_runs", []), record.run]}
        body["rolled_back_to"] = round
        write_atomically(path, json.dumps(body, indent=2).encode())
        diary = Diary(record.path)
        diary.note(round, "rollback", why=f"round {round} is the last one now; the run continues as {body['run']}")
        diary.show(phase="rolled back", round=round, why="")
