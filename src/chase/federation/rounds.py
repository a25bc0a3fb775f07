"""One round over a post: orders out, updates in, until all have answered or the deadline has passed with a quorum.

    busy      A site that still owes an answer to an earlier round gets no new order.
    late      Its answer, when it comes, is used in that round if it is at most ``late_rounds`` old and the round
              does not start anew, else dropped.
    refused   An update that does not fit (names, shapes, finite numbers, sane weight, agreed metrics) is left out of
              the average; its site has answered.
    failed    A site that reports an error, or whose node died or was started anew, gets the same order again,
              ``retries`` times.
    joining   A site that comes while a round is open takes part from the next, or at once if the quorum is short.

A site answers a repeated order from what it committed, so sending again is always safe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chase.core.errors import UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.pools import NAMES
from chase.federation.diary import Diary
from chase.federation.members import AGAIN, Members
from chase.federation.rules import Rules
from chase.federation.transport import NodeId, Reply, SiteMessage, Tally, Ticket, Transport
from chase.server.server import check_update
from chase.site.turn import METRICS

NEEDED = frozenset({"labels", "inferences", "inferred_samples"} | {f"pool_{name}" for name in NAMES})


@dataclass(frozen=True)
class Owed:
    """An order that a site has not answered yet."""

    client: ClientId
    order: RoundOrder
    sent: float
    node: NodeId
    session: str


@dataclass
class RoundOutcome:
    """What came of a round."""

    updates: dict[ClientId, ClientUpdate] = field(default_factory=dict)
    orders: dict[ClientId, RoundOrder] = field(default_factory=dict)
    """The order that each update answers: an earlier one where it came late."""
    late: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Sites that were not there when the round began."""
    missing: list[str] = field(default_factory=list)
    """Sites that were asked and did not answer before the round was closed."""
    refused: dict[str, str] = field(default_factory=dict)

    def as_metrics(self) -> dict[str, object]:
        """For the round's line of metrics.jsonl."""
        kept = {name: sorted(getattr(self, name)) for name in ("late", "busy", "absent", "missing")}
        return {"sites": kept | {"refused": self.refused}}


def check_answer(update: ClientUpdate, order: RoundOrder, rules: Rules) -> None:
    """Refuse an update that does not fit its order, or whose weight or metrics cannot be right."""
    check_update(update, order, {n: a for n, a in order.extras.items() if not n.startswith("start.")})
    who = f"update of client {update.client} for round {order.round}"
    odd = sorted(k for k in update.metrics if k not in METRICS and not k.startswith("seconds_"))
    if odd:
        raise UpdateError(f"{who}: metrics that were not agreed on: {', '.join(odd[:5])}")
    lacking = sorted(NEEDED - update.metrics.keys())
    if lacking:
        raise UpdateError(f"{who}: metrics that are lacking: {', '.join(lacking[:5])}")
    wild = sorted(k for k, v in update.metrics.items() if not math.isfinite(v) or (v < 0 and k != "train_loss"))
    if wild:
        raise UpdateError(f"{who}: metric '{wild[0]}' is {update.metrics[wild[0]]}")
    if update.num_labeled > rules.most_labels or update.num_labeled != update.metrics["pool_labeled"]:
        raise UpdateError(
            f"{who}: a labelled count of {update.num_labeled} beside a pool of "
            f"{update.metrics['pool_labeled']:.0f} is not believed (at most {rules.most_labels})"
        )


@dataclass
class Rounds:
    """Holds rounds; remembers between them who still owes an answer."""

    post: Transport
    members: Members
    rules: Rules
    diary: Diary
    header: Callable[[ClientId], Mapping[str, object]]
    """What goes with an order to a client."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    owed: dict[Ticket, Owed] = field(default_factory=dict)
    _tries: dict[ClientId, int] = field(default_factory=dict)
    _last: dict[ClientId, float] = field(default_factory=dict)
    _fresh: bool = False
    _first: frozenset[ClientId] | None = None
    """Who was free when the round began: each of them gets its order, at once or when its turn comes."""

    def quorum(self, size: int) -> int:
        """Answers that a round among so many sites needs."""
        return min(size, self.rules.quorum or size // 2 + 1)

    def hold(self, wanted: Mapping[ClientId, RoundOrder]) -> RoundOutcome:
        """One round among the clients that are wanted."""
        outcome, began, short_noted = RoundOutcome(), self.clock(), False
        round = next(iter(wanted.values())).round if wanted else 0
        self._tries, self._last = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, -math.inf)
        self._fresh, self._first = any(order.fresh for order in wanted.values()), None
        quorum = self.quorum(len(wanted))
        while wanted:
            self.members.look(round)
            for answer in self._collect():
                self._take_in(answer, outcome, round)
            due = self._due(wanted, outcome, quorum)
            self._order({c: wanted[c] for c in due})
            self._show(round, outcome)
            settled = len(outcome.updates) + len(outcome.refused)
            overdue = self.clock() - began >= self.rules.deadline
            waiting = due or any(o.order.round == round for o in self.owed.values())
            if settled >= quorum and (overdue or not waiting):
                break
            if overdue and not short_noted:
                self.diary.note(round, "short of quorum", why=f"{settled} of {quorum} answers at the deadline: waiting")
                short_noted = True
            self.sleep(self.rules.poll)
        self._close(outcome, wanted, round)
        return outcome

    def _due(self, wanted: Mapping[ClientId, RoundOrder], outcome: RoundOutcome, quorum: int) -> list[ClientId]:
        """Who gets the order now: all that are free when the round begins, then who failed, newcomers if needed."""
        here, busy = self.members.here(), {owed.client for owed in self.owed.values()}
        settled = {c for c in wanted if c in outcome.updates or self._name(c) in outcome.refused}
        idle = [c for c in sorted(wanted) if c in here and c not in busy and c not in settled]
        if self._first is None and idle:
            self._first = frozenset(idle)
        first = self._first or frozenset()
        short = len(settled) + len(busy & wanted.keys()) < quorum
        now, due = self.clock(), []
        for client in idle:
            again = 0 < self._tries[client] <= self.rules.retries
            rested = now - self._last[client] >= AGAIN
            if (client in first and not self._tries[client]) or again or (short and rested):
                due.append(client)
        round = next(iter(wanted.values())).round
        asked = sum(owed.order.round == round for owed in self.owed.values())
        return due[: max(0, self.rules.at_once - asked)] if self.rules.at_once else due

    def _collect(self) -> list[Reply]:
        now = self.clock()
        for ticket, owed in list(self.owed.items()):
            if now - owed.sent > self.rules.busy_limit:
                del self.owed[ticket]
                self.diary.note(owed.order.round, "given up", self._name(owed.client), "no answer within busy_limit")
            elif owed.session and self.members.session(owed.node) not in ("", owed.session):
                del self.owed[ticket]
                self.diary.note(owed.order.round, "failed", self._name(owed.client), "its node was started anew")
        return self.post.collect(list(self.owed)) if self.owed else []

    def _order(self, due: Mapping[ClientId, RoundOrder]) -> None:
        here = self.members.here()
        letters = [SiteMessage(here[c], "turn", self.header(c), order=order) for c, order in due.items()]
        for (client, order), ticket in zip(due.items(), self.post.send(letters) if letters else [], strict=True):
            self._tries[client], self._last[client] = self._tries[client] + 1, self.clock()
            if self._tries[client] > 1:
                self.diary.note(order.round, "asked again", self._name(client))
            if ticket is not None:
                node = here[client]
                self.owed[ticket] = Owed(client, order, self.clock(), node, self.members.session(node))

    def _take_in(self, answer: Reply, outcome: RoundOutcome, round: int) -> None:
        owed = self.owed.pop(answer.ticket, None)
        if owed is None:
            self.diary.note(round, "refused", why="an answer that no open order asked for")
            return
        name, age = self._name(owed.client), round - owed.order.round
        if not isinstance(answer.body, ClientUpdate) and not answer.unfit:
            self.diary.note(owed.order.round, "failed", name, answer.error or "the answer is of another kind")
            return
        try:
            if not isinstance(answer.body, ClientUpdate):
                raise UpdateError(answer.error)
            if answer.body.client != owed.client:
                raise UpdateError(f"update of client {owed.client}: it says that it is of client {answer.body.client}")
            check_answer(answer.body, owed.order, self.rules)
        except UpdateError as error:
            outcome.refused[name] = str(error)
            self.diary.note(round, "refused", name, str(error))
            return
        if (
            age > self.rules.late_rounds
            or (age and self._fresh)
            or owed.client in outcome.updates
            or owed.client not in self._tries
        ):
            self.diary.note(round, "dropped", name, f"an answer to round {owed.order.round}")
            return
        if age:
            outcome.late.append(name)
            self.diary.note(round, "late", name, f"its answer to round {owed.order.round} is used in round {round}")
        outcome.updates[owed.client], outcome.orders[owed.client] = answer.body, owed.order

    def _close(self, outcome: RoundOutcome, wanted: Mapping[ClientId, RoundOrder], round: int) -> None:
        here = self.members.here()
        for client in sorted(wanted):
            if client in outcome.updates or self._name(client) in outcome.refused:
                continue
            debts = [o for o in self.owed.values() if o.client == client]
            if any(o.order.round == round for o in debts):
                where, what = outcome.missing, "missing"
            elif debts:
                where, what = outcome.busy, "busy"
            elif client in here and (self._tries[client] or client in (self._first or ())):
                where, what = outcome.missing, "missing"
            else:
                where, what = outcome.absent, "absent"
            where.append(self._name(client))
            self.diary.note(round, what, self._name(client))

    def _name(self, client: ClientId) -> str:
        return self.members.name(client)

    def _show(self, round: int, outcome: RoundOutcome) -> None:
        here, owing = self.members.here(), {o.client: o.order.round for o in self.owed.values()}
        stands = {}
        for client, name in sorted(self.members.names.items()):
            word = "ready" if client in here else "away"
            if client in outcome.updates:
                word = "answered"
            elif client in owing:
                word = "training" if owing[client] == round else f"busy with round {owing[client]}"
            stands[name] = word
        stands |= dict.fromkeys((*self.members.refused, *outcome.refused), "refused")
        self.diary.show(round=round, sites=stands, phase="round")

    def tallies(self, round: int, letters: Callable[[ClientId], SiteMessage], limit: float) -> Tally:
        """Sums over the held-out parts of all sites that are here and not busy; who is slow is left out."""
        busy = {o.client for o in self.owed.values()}
        waiting = [c for c in sorted(self.members.here()) if c not in busy]
        open_tickets: dict[Ticket, ClientId] = {}
        began, right, count = self.clock(), 0, 0
        while (open_tickets or waiting) and self.clock() - began < limit:
            free = self.rules.at_once - len(open_tickets) if self.rules.at_once else len(waiting)
            asked, waiting = waiting[:free], waiting[free:]
            sent = zip(asked, self.post.send([letters(c) for c in asked]) if asked else [], strict=True)
            open_tickets |= {ticket: client for client, ticket in sent if ticket is not None}
            for answer in self.post.collect(list(open_tickets)):
                client = open_tickets.pop(answer.ticket, None)
                body = answer.body
                if isinstance(body, Tally) and 0 <= body.correct <= body.count:
                    right, count = right + body.correct, count + body.count
                elif client is not None:
                    self.diary.note(round, "no score", self._name(client), answer.error or "it makes no sense")
            if open_tickets:
                self.sleep(self.rules.poll)
        for client in (*open_tickets.values(), *waiting):
            self.diary.note(round, "no score", self._name(client), "not in time")
        return Tally(right, count)
