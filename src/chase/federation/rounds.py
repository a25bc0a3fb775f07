"""One round over a transport: orders out, updates in, until all have answered or the deadline has passed with a quorum.

    busy      A site that still owes an answer to an earlier round gets no new order.
    late      Its answer, when it comes, is used in that round if it is at most ``late_rounds`` old and the round
              does not start afresh, else dropped. A round waits for such an answer, until its own deadline.
    refused   An update that does not fit (names, shapes, finite numbers, sane weight, agreed metrics, the size that the
              site said it has) or that changes the model far more than the others is left out of the average; its site
              has answered.
    clipped   An update that changes the model more than ``norm_clip`` times the median of the round is cut to that.
    failed    A site that reports an error, or whose node died or was restarted, gets the same order again,
              ``retries`` times.
    joining   A site that comes while a round is open takes part from the next, or at once if the quorum is short.

A site answers a repeated order from what it committed, so sending again is always safe. An order of a server that was
restored, for a round that the site has done for another model, is refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chase.client.contribute import PREPARE
from chase.core.errors import FederationError, UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.text import clean
from chase.federation.checks import Outgrown, Shape, check_answer, per_sample
from chase.federation.diary import Diary
from chase.federation.members import AGAIN, Members
from chase.federation.rules import Rules
from chase.federation.secure_round import keys_of
from chase.federation.transport import AHEAD, ANOTHER_ORDER, NodeId, Reply, SiteMessage, Tally, Ticket, Transport
from chase.federation.waiting import Waiting
from chase.server.robust import change_norm, sort_norms


def round_to(value: float) -> float:
    """A measurement for people: three digits after the point."""
    return round(value, 3)


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
    clipped: dict[str, float] = field(default_factory=dict)
    """How many times the median change of the round the change of a clipped update was."""
    seconds: dict[str, float] = field(default_factory=dict)
    """From order to answer, by site; of a late one since its own round."""
    norms: dict[ClientId, float] = field(default_factory=dict)
    """How far each update of a site with labels changes the model."""
    fit_norms: dict[ClientId, float] = field(default_factory=dict)
    """How large the sums are with which each site helps to fit features, per sample."""
    waiting: Waiting = field(default_factory=Waiting)
    """Holds the arrays of ``updates``, on disk where they are large: ``waiting.whole`` gives an update with them."""

    def as_metrics(self) -> dict[str, object]:
        """For the round's line of metrics.jsonl."""
        kept: dict[str, object] = {n: sorted(getattr(self, n)) for n in ("late", "busy", "absent", "missing")}
        return {"sites": kept | {"refused": self.refused, "clipped": self.clipped, "seconds": self.seconds}}


@dataclass
class Rounds:
    """Holds rounds; remembers between them who still owes an answer."""

    transport: Transport
    members: Members
    rules: Rules
    diary: Diary
    header: Callable[[ClientId], Mapping[str, object]]
    """What goes with an order to a client."""
    fit_shapes: Callable[[RoundOrder], Mapping[str, Shape]] = lambda order: {}
    """The sums that an order to fit features asks for."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    owed: dict[Ticket, Owed] = field(default_factory=dict)
    _tries: dict[ClientId, int] = field(default_factory=dict)
    _last: dict[ClientId, float] = field(default_factory=dict)
    _fresh: bool = False
    _reference: float = 0.0
    """The median change of the last round that had one."""
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
                self._receive(answer, outcome, round)
            due = self._due(wanted, outcome, quorum)
            self._order({c: wanted[c] for c in due})
            self._show(round, outcome)
            self._notice_restored_server(outcome, len(wanted) - quorum, round)
            settled = len(outcome.updates) + len(outcome.refused)
            overdue = self.clock() - began >= self.rules.deadline
            waiting = due or any(self._awaited(round - o.order.round) for o in self.owed.values())
            if settled >= quorum and (overdue or not waiting):
                break
            if overdue and not short_noted:
                self.diary.note(round, "short of quorum", why=f"{settled} of {quorum} answers at the deadline: waiting")
                short_noted = True
            self.sleep(self.rules.poll)
        self._close(outcome, wanted, round)
        return outcome

    def _notice_restored_server(self, outcome: RoundOutcome, spare: int, round: int) -> None:
        """End the run where so many sites are ahead that the round cannot have its quorum."""
        ahead = sorted(name for name, why in outcome.refused.items() if why.startswith(AHEAD))
        if len(ahead) > spare:
            late, ended = f"later rounds than {round}", ""
            if any(why.endswith(ANOTHER_ORDER) for why in outcome.refused.values()):
                late = f"round {round} {ANOTHER_ORDER}, or later rounds"
            if round < 1:  # features are being fitted
                late, ended = "rounds of this run already", "ended before its first round was saved, or "
            raise FederationError(
                f"{', '.join(ahead)} have done {late}: the server was {ended}restored from an older copy. "
                f"Run `chase federation rollback FED {max(0, round - 1)}`, then run it again; the sites keep every "
                "label"
            )

    def _awaited(self, age: int) -> bool:
        """Whether an answer to an order of so many rounds ago would still be used now."""
        return age == 0 or (0 < age <= self.rules.late_rounds and not self._fresh and not self.rules.secure)

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
                self.diary.note(owed.order.round, "failed", self._name(owed.client), "its node was restarted")
        return self.transport.collect(list(self.owed)) if self.owed else []

    def _order(self, due: Mapping[ClientId, RoundOrder]) -> None:
        here = self.members.here()
        messages = [SiteMessage(here[c], "turn", self.header(c), order=order) for c, order in due.items()]
        for (client, order), ticket in zip(due.items(), self.transport.send(messages) if messages else [], strict=True):
            self._tries[client], self._last[client] = self._tries[client] + 1, self.clock()
            if self._tries[client] > 1:
                self.diary.note(order.round, "asked again", self._name(client))
            if ticket is not None:
                node = here[client]
                self.owed[ticket] = Owed(client, order, self.clock(), node, self.members.session(node))

    def _receive(self, answer: Reply, outcome: RoundOutcome, round: int) -> None:
        owed = self.owed.pop(answer.ticket, None)
        if owed is None:
            self.diary.note(round, "refused", why="an answer that no open order asked for")
            return
        name, age = self._name(owed.client), round - owed.order.round
        outcome.seconds[name] = round_to(self.clock() - owed.sent)
        if not isinstance(answer.body, ClientUpdate) and not answer.unfit:
            self.diary.note(owed.order.round, "failed", name, clean(answer.error) or "the answer is of another kind")
            return
        try:
            if not isinstance(answer.body, ClientUpdate):
                raise UpdateError(answer.error)
            if answer.body.client != owed.client:
                raise UpdateError(f"update of client {owed.client}: it says that it is of client {answer.body.client}")
            self._check(answer.body, owed)
        except UpdateError as error:
            if isinstance(error, Outgrown):
                self.members.greet_again(owed.client)
            self._refuse(outcome, round, name, str(error))
            return
        except Exception as error:  # whatever one site sends, the others continue
            self._refuse(outcome, round, name, f"the answer cannot be used ({type(error).__name__})")
            return
        self.members.seen(round, owed.client, int(answer.body.metrics["turn"]))
        if (
            age > self.rules.late_rounds
            or (age and (self._fresh or self.rules.secure))
            or owed.client in outcome.updates
            or owed.client not in self._tries
        ):
            self.diary.note(round, "dropped", name, f"an answer to round {owed.order.round}")
            return
        if age:
            outcome.late.append(name)
            self.diary.note(round, "late", name, f"its answer to round {owed.order.round} is used in round {round}")
        self._keep(outcome, answer.body, owed.order)

    def _keep(self, outcome: RoundOutcome, update: ClientUpdate, order: RoundOrder) -> None:
        client = update.client
        if update.num_labeled and update.weights and not self.rules.secure:
            outcome.norms[client] = change_norm(order.origin, update.weights)
        if order.phase == PREPARE and not self.rules.secure:
            outcome.fit_norms[client] = per_sample(update, self.members.sizes(client).samples)
        outcome.updates[client], outcome.orders[client] = outcome.waiting.keep(update), order

    def _check(self, update: ClientUpdate, owed: Owed) -> None:
        if self.rules.secure:
            try:
                keys_of(update)
            except FederationError as error:
                raise UpdateError(str(error)) from None
        else:
            shapes = self.fit_shapes(owed.order) if owed.order.phase == PREPARE else {}
            check_answer(update, owed.order, self.rules, self.members.sizes(owed.client).samples, shapes)

    def _refuse(self, outcome: RoundOutcome, round: int, name: str, why: str) -> None:
        outcome.refused[name] = clean(why)
        self.diary.note(round, "refused", name, clean(why))

    def _bound(self, outcome: RoundOutcome, round: int) -> None:
        """Cut and refuse updates that change the model far more than the others."""
        clip, refuse = self.rules.norm_clip, self.rules.norm_refuse
        clipped, refused, self._reference = sort_norms(outcome.norms, clip, refuse, self._reference)
        _, unlike, _ = sort_norms(outcome.fit_norms, 0.0, refuse)
        far = {c: ("its change of the model is", times) for c, times in refused.items()}
        far |= {c: ("its sums for fitting features are, per sample,", times) for c, times in unlike.items()}
        for client, (what, times) in far.items():
            why = f"{what} {times:.3g} times the median of the round (at most {refuse:g} times)"
            self._refuse(outcome, round, self._name(client), why)
            del outcome.updates[client], outcome.orders[client]
        for client, times in clipped.items():
            name = self._name(client)
            outcome.clipped[name] = round_to(times)
            self.diary.note(
                round, "clipped", name, f"its change is {times:.3g} times the median, clipped to {clip:g} times"
            )
            start = outcome.orders[client].origin
            outcome.updates[client] = outcome.waiting.cut(outcome.updates[client], start, clip / times)

    def _close(self, outcome: RoundOutcome, wanted: Mapping[ClientId, RoundOrder], round: int) -> None:
        if not self.rules.secure:  # else nobody sees one update
            self._bound(outcome, round)
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

    def ask(
        self, round: int, letters: Mapping[ClientId, SiteMessage], limit: float, failed: dict[ClientId, str]
    ) -> dict[ClientId, ClientUpdate]:
        """One message to each of these sites; what came back in time. What went wrong is added to ``failed``."""
        sent = zip(letters, self.transport.send(list(letters.values())), strict=True)
        open_tickets = {ticket: client for client, ticket in sent if ticket is not None}
        found, began = dict[ClientId, ClientUpdate](), self.clock()
        while open_tickets and self.clock() - began < limit:
            for answer in self.transport.collect(list(open_tickets)):
                client = open_tickets.pop(answer.ticket, None)
                if client is not None and isinstance(answer.body, ClientUpdate) and answer.body.client == client:
                    found[client] = answer.body
                elif client is not None:
                    failed[client] = clean(answer.error) or "of another kind"
                    self.diary.note(round, "failed", self._name(client), failed[client])
            if open_tickets:
                self.sleep(self.rules.poll)
        for client in open_tickets.values():
            self.diary.note(round, "missing", self._name(client), "in a secure sum")
        return found

    def tallies(self, round: int, message_for: Callable[[ClientId], SiteMessage], limit: float) -> Tally:
        """Sums over the held-out parts of all sites that are here and not busy; who is slow is left out."""
        busy = {o.client for o in self.owed.values()}
        waiting = [c for c in sorted(self.members.here()) if c not in busy]
        open_tickets: dict[Ticket, ClientId] = {}
        began, right, count = self.clock(), 0, 0
        while (open_tickets or waiting) and self.clock() - began < limit:
            free = self.rules.at_once - len(open_tickets) if self.rules.at_once else len(waiting)
            asked, waiting = waiting[:free], waiting[free:]
            sent = zip(asked, self.transport.send([message_for(c) for c in asked]) if asked else [], strict=True)
            open_tickets |= {ticket: client for client, ticket in sent if ticket is not None}
            for answer in self.transport.collect(list(open_tickets)):
                client = open_tickets.pop(answer.ticket, None)
                body = answer.body
                most = 0 if client is None else self.members.sizes(client).held_out
                if isinstance(body, Tally) and 0 <= body.correct <= body.count <= most:
                    right, count = right + body.correct, count + body.count
                elif client is not None:
                    said = f"{body.correct} of {body.count}, of {most} held out" if isinstance(body, Tally) else ""
                    why = clean(answer.error) or f"an impossible score: {said or 'of another kind'}"
                    self.diary.note(round, "no score", self._name(client), why)
            if open_tickets:
                self.sleep(self.rules.poll)
        for client in (*open_tickets.values(), *waiting):
            self.diary.note(round, "no score", self._name(client), "not in time")
        return Tally(right, count)
