"""When the server drops the sums of the closed-form learner, because it and a site do not remember the same.

Sites say that they are out of step, or have taken fewer turns than before. A site that says so wrongly must not have
all sums dropped again and again: one site alone has it done ``MOST`` times in ``WITHIN`` rounds, then it is refused by
name until they have passed. Where most of the sites say it, the server was restored, and nobody is blamed.
``drops.json`` keeps the rounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from chase.client.contribute import NEVER, RECEIVED, received_of
from chase.core.errors import FederationError
from chase.core.files import write_atomically
from chase.core.messages import ClientId, RoundOrder
from chase.federation.diary import Diary
from chase.federation.members import Members
from chase.federation.transport import OUT_OF_STEP

RESTARTED = "sums restarted"
"""The event."""
ANEW = (
    "The server or a site was restored from an older copy. "
    "Every site sends the sums of all its labels again in its next turn."
)
MOST = 2
WITHIN = 10


class InStep:
    """Looks at what the sites said in a round."""

    def __init__(self, path: Path, members: Members, diary: Diary) -> None:
        self._path, self._members, self._diary = path / "drops.json", members, diary
        self._drops = read_drops(self._path)

    def lost(self, round: int, orders: Mapping[ClientId, RoundOrder], refused: Mapping[str, str]) -> bool:
        """Whether sums must be dropped after a round with these orders and refusals, which are by name."""
        told = {name for name, why in refused.items() if why.startswith(OUT_OF_STEP)}
        said = {client for client in orders if self._members.name(client) in told} | self._members.set_back
        self._members.set_back -= orders.keys()
        said = {client for client in said if client in orders and counts(orders[client], client)}
        if not said:
            return False
        if 2 * len(said) <= len(orders):
            said = {client for client in said if self._may(round, client)}
            if not said:
                return False
            for client in said:
                self._drops[client] = sorted({*self._recent(round, client), round})
            write_atomically(self._path, json.dumps({str(c): rounds for c, rounds in self._drops.items()}).encode())
        self._diary.note(round, RESTARTED, why=ANEW)
        return True

    def _recent(self, round: int, client: ClientId) -> list[int]:
        return [at for at in self._drops.get(client, []) if 0 <= round - at < WITHIN]

    def _may(self, round: int, client: ClientId) -> bool:
        """Whether a site may have the sums dropped once more; the same round held again counts once."""
        recent = [at for at in self._recent(round, client) if at != round]
        if len(recent) < MOST:
            return True
        why = (
            f"it was out of step in rounds {', '.join(map(str, recent))} too: the sums stay until round "
            f"{recent[0] + WITHIN}, and the site is left out until then; ask its people what is restored there"
        )
        self._diary.note(round, "refused", self._members.name(client), why)
        return False


def counts(order: RoundOrder, client: ClientId) -> bool:
    """Whether dropping sums helps: not a site of which the server has none, and an order to fit features has none."""
    return RECEIVED in order.extras and received_of(order.extras, client) != NEVER


def read_drops(path: Path) -> dict[ClientId, list[int]]:
    """The rounds in which each site had the sums dropped."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        return {int(client): [int(round) for round in rounds] for client, rounds in body.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FederationError(f"{path} cannot be read: {error}; remove it") from None
