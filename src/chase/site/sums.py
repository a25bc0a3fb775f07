"""Whether a site and the server agree on which sums of the closed-form learner the server has.

A site sends what has changed since the server last received something of it. After a restore of either side that would
count labels twice, or not at all: an order that does not follow from the last turn is refused, and the server then
begins its sums anew. ``sums.json`` keeps, for the last turns, up to which round the server had sums of this site.
"""

from __future__ import annotations

import json
from pathlib import Path

from chase.client.contribute import NEVER, RECEIVED, received_of
from chase.core.errors import OutOfStepError
from chase.core.files import write_atomically
from chase.core.messages import ClientId, RoundOrder
from chase.site.place import Site

KEPT = 10
"""Turns that the file keeps: more than a repeated order is answered from."""
Turns = dict[str, int]


def check_in_step(site: Site, order: RoundOrder, number: ClientId) -> None:
    """Refuse an order of a server that has other sums of this site than the site remembers."""
    if RECEIVED not in order.extras:
        return
    received, path = received_of(order.extras, number), site.path / "sums.json"
    known = _read(path)
    if not _follows(site, order, received, known):
        raise out_of_step(order, number)
    kept = {**(known or {}), _name(order.run, order.round): received}
    write_atomically(path, json.dumps(dict(list(kept.items())[-KEPT:])).encode(), durable=True)


def out_of_step(order: RoundOrder, number: ClientId) -> OutOfStepError:
    """The error for an order that does not follow from the last turn."""
    received = received_of(order.extras, number)
    return OutOfStepError(None if received == NEVER else received)


def _follows(site: Site, order: RoundOrder, received: int, known: Turns | None) -> bool:
    """Whether the server has what it had at the last turn, or that turn's sums too, or nothing.

    An order that is repeated must be as it was: its answer was made for what the server had then.
    """
    with site.home.database.reading() as db:
        rows = db.execute("SELECT run, round FROM turns ORDER BY version DESC").fetchall()
    done, asked = {_name(row["run"], row["round"]): int(row["round"]) for row in rows}, _name(order.run, order.round)
    if known is None:  # a site of an earlier version, unless it has done nothing yet
        return bool(rows) if received != NEVER else asked not in done
    if asked in done:
        return received == known.get(asked)
    if received == NEVER:
        return True
    last = next(iter(done), "")
    return last.startswith(f"{order.run} ") and last in known and received in (known[last], done[last])


def _name(run: str, round: int) -> str:
    return f"{run} {round}"


def _read(path: Path) -> Turns | None:
    """The turns of the file; None before the first, none of a file that is damaged."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): int(received) for name, received in body.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
