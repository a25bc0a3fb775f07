"""Rounds and scores of which the server learns sums only: the engine's part of a secure federation.

The sum over the sites stands for the update of one client (``ClientUpdate.joint`` names all whose parts are in it). A
round without a sum, because too few sites were left, changes nothing; a step that fits features is held again.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chase.client.contribute import PREPARE
from chase.core.errors import FederationError, UpdateError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Arrays, Weights, check_fits
from chase.federation.diary import Diary
from chase.federation.members import Members
from chase.federation.rounds import RoundOutcome, Rounds
from chase.federation.rules import Rules
from chase.federation.secure_round import Header, Summed, keys_of, secure_total, used_twice
from chase.federation.secure_sum import PublicKeys, decode
from chase.federation.secure_vector import Joint, vector_for
from chase.federation.transport import BAD_SHARES, SiteMessage
from chase.models.catalog import NetSpec
from chase.run.engine import RoundResult
from chase.settings import Settings

LOG = logging.getLogger("chase.federation")
TRIES = 5
"""How often a step that fits features is held until it has a sum."""


@dataclass
class SecureSums:
    """Turns the keys that sites sent into sums."""

    settings: Settings
    spec: NetSpec
    rules: Rules
    members: Members
    rounds: Rounds
    diary: Diary
    round: int = 0
    attempt: int = 0
    _bad: set[ClientId] = field(default_factory=set)
    """Sites whose shares most of the others could not open: they are left out until the server is started again."""
    _refused: dict[str, str] = field(default_factory=dict)
    _life: str = field(default_factory=lambda: secrets.token_hex(8))

    def context(self, job: str) -> str:
        """What a secure sum is for: its keys and masks serve nothing else. Another one after every start."""
        return f"{self._life} {job} {self.round}.{self.attempt}"

    def hold(self, wanted: Mapping[ClientId, RoundOrder]) -> RoundResult:
        """One round; a step that fits features must have a sum, or the next one could not be asked for."""
        order = next(iter(wanted.values()), None)
        for self.attempt in range(TRIES):
            result = self.result(self.rounds.hold(wanted))
            if result.updates or order is None or order.phase != PREPARE:
                return result
        raise FederationError(
            f"features cannot be fitted: {TRIES} times too few sites were left for a secure sum; connect more "
            "sites and run it again, or, if events.jsonl says that they were summed with other sites before: run "
            "`chase federation rollback FED 0` first"
        )

    def result(self, outcome: RoundOutcome) -> RoundResult:
        """The sum over the sites as the update of one client: all that the server learns of the round."""
        self._refused = outcome.refused
        told = outcome.as_metrics()
        try:
            order = next(iter(outcome.orders.values()), None)
            if order is None:
                raise FederationError("no site answered")
            vector = vector_for(self.settings, self.spec, order)
            summed = self._sum("turn", outcome.updates, vector.size)
            joint = vector.read(summed.total)
            self._check(joint, summed, order)
        except (FederationError, UpdateError) as error:
            self.diary.note(self.round, "no sum", why=str(error))
            return RoundResult({}, [], metrics=told | {"took_part": 0})
        first = summed.sites[0]
        update = ClientUpdate(
            first, order.round, joint.weights, joint.labels, joint.metrics, joint.extras, summed.sites
        )
        return RoundResult({first: order}, [update], metrics=told | {"took_part": len(summed.sites), "clients": {}})

    def _check(self, joint: Joint, summed: Summed, order: RoundOrder) -> None:
        """Refuse a sum that cannot be: one site's lie cannot be found in it, but it can be too large for all."""
        most = sum(self.members.sizes(c).samples for c in summed.sites)
        if not 0 <= joint.labels <= most:
            raise UpdateError(f"the sites together claim {joint.labels} labels and have {most} samples")
        if joint.weights:
            check_fits(joint.weights, order.origin, "the sum of this round")

    def _keys(self, answers: Mapping[ClientId, ClientUpdate]) -> dict[ClientId, PublicKeys]:
        """The keys of the sites that sent usable ones; the others are named."""
        found = dict[ClientId, PublicKeys]()
        for client, update in answers.items():
            try:
                if client in self._bad:
                    raise FederationError("most sites could not open the shares that it sent for an earlier sum")
                found[client] = keys_of(update)
            except FederationError as error:
                self._refuse(client, str(error))
        for client in used_twice(found):
            self._refuse(client, "a key of its for a secure sum is used twice")
            del found[client]
        return found

    def _refuse(self, client: ClientId, why: str) -> None:
        name = self.members.name(client)
        self._refused[name] = why
        self.diary.note(self.round, "refused", name, why)

    def _accuse(self, failed: Mapping[ClientId, str], asked: int) -> None:
        """Name the sites whose shares most of the others could not open."""
        said = [why.removeprefix(BAD_SHARES) for why in failed.values() if why.startswith(BAD_SHARES)]
        accused = Counter(number.strip() for numbers in said for number in set(numbers.split(",")))
        for number, times in accused.items():
            if number.isdecimal() and 2 * times > asked - 1:
                self._bad.add(int(number))
                self._refuse(int(number), f"{times} sites cannot open the shares that it sent for a secure sum")

    def _sum(self, job: str, answers: Mapping[ClientId, ClientUpdate], size: int) -> Summed:
        keys = self._keys(answers)

        def ask(step: str, headers: Mapping[ClientId, Header]) -> dict[ClientId, Arrays]:
            letters = {
                c: SiteMessage(self.members.nodes[c], step, {**header, "number": c, "of": self.round})
                for c, header in headers.items()
                if c in self.members.nodes
            }
            failed = dict[ClientId, str]()
            found = self.rounds.ask(self.round, letters, self.rules.deadline, failed)
            self._accuse(failed, len(letters))
            return {c: u.extras for c, u in found.items()}

        try:
            return secure_total(self.context(job), job, keys, size, ask, self._refuse)
        except FederationError:
            raise
        except Exception as error:  # whatever a site sent, the rounds continue
            LOG.exception("a secure sum failed")
            raise FederationError(f"what the sites sent has no sum ({type(error).__name__})") from None

    def scores(self, weights: Weights, header: Callable[[ClientId], Mapping[str, object]]) -> tuple[int, int]:
        """Right and counted samples of the sites' held-out parts; (0, 0) where there is no sum."""
        here = sorted(self.members.here())
        extra = {"context": self.context("tally"), "of": self.round}
        letters = {
            c: SiteMessage(self.members.nodes[c], "tally", {**header(c), **extra}, weights=weights) for c in here
        }
        try:
            summed = self._sum("tally", self.rounds.ask(self.round, letters, self.rules.deadline, {}), 2)
        except FederationError as error:
            self.diary.note(self.round, "no score", why=str(error))
            return 0, 0
        correct, count = (round(x) for x in decode(summed.total).tolist())
        most = sum(self.members.sizes(c).held_out for c in summed.sites)
        if not 0 <= correct <= count <= most:
            self.diary.note(self.round, "no score", why=f"an impossible sum: {correct} of {count}, of {most}")
            return 0, 0
        return correct, count
