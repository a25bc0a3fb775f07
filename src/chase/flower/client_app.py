"""The client's side on Flower: a thin shell over ``chase.site``, called by the site's worker.

All state is the site's own, on its disk, and nothing but what
``codec`` packs leaves it: where a turn fails, the server hears at which stage, and the site's log says why.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict

from chase import __version__
from chase.core.errors import (
    AheadError,
    BadSharesError,
    ChaseError,
    ClientError,
    ContractError,
    OutOfStepError,
    SettingsError,
    SummedBeforeError,
    TrainingError,
    UpdateError,
)
from chase.core.messages import ClientUpdate
from chase.core.weights import digest
from chase.federation.secure_site import SecureSite, with_noise
from chase.federation.secure_sum import Words, encode
from chase.federation.secure_vector import vector_for
from chase.federation.transport import AHEAD, ANOTHER_ORDER, BAD_SHARES, OUT_OF_STEP, Hello, Tally
from chase.flower import codec
from chase.settings import Settings, from_mapping
from chase.site import approval, turn
from chase.site.contract import HEADER, Contract
from chase.site.place import Site

Handler = Callable[[Site, RecordDict], RecordDict]
LOG = logging.getLogger("chase.site")


def answer(message: Message, home: Path) -> Message:
    """The reply to a message; a failure is logged here and goes up without its details."""
    try:
        handle = HANDLERS.get(message.metadata.message_type)
        if handle is None:
            raise UpdateError("a message of a kind that sites do not answer")
        site = Site(home)
        try:
            content = handle(site, message.content)
        finally:
            site.close()
    except Exception as error:  # the boundary: text of an error may name samples and must not leave the site
        LOG.error("the message failed:\n%s", traceback.format_exc())
        in_vain = isinstance(error, AheadError | OutOfStepError) or isinstance(error.__cause__, TrainingError)
        content = codec.pack_failure(harmless(error), not in_vain)
    return Message(content, reply_to=message)


def harmless(error: Exception) -> str:
    """What the server may know of an error: its kind and the stage, not its text."""
    if isinstance(error, AheadError):
        what = ANOTHER_ORDER if error.done == error.asked else f"and is asked for round {error.asked}"
        return f"{AHEAD}: it has done round {error.done} {what}"
    if isinstance(error, OutOfStepError):
        return f"{OUT_OF_STEP}: the site or the server was restored from an older copy"
    if isinstance(error, BadSharesError):
        return f"{BAD_SHARES} {', '.join(map(str, error.sites))}"
    if isinstance(error, SummedBeforeError):
        return str(error)
    if isinstance(error, ClientError):
        cause = type(error.__cause__).__name__ if error.__cause__ is not None else "error"
        return f"{error.stage} failed ({cause}); the site's log says why"
    kind = type(error).__name__
    return f"refused ({kind}); the site's log says why" if isinstance(error, ChaseError) else f"failed ({kind})"


def settings_of(header: dict[str, Any]) -> Settings:
    """The settings that the server sent."""
    return from_mapping(header["settings"])


def hello(site: Site, records: RecordDict) -> RecordDict:
    """The handshake. What versions cannot read of each other is an objection too: it tells nothing of samples."""
    version = "another version"
    try:
        version = codec.version_of(records)
        header = codec.header_of(records)
        objections = turn.objections(site, settings_of(header), Contract.from_json(header[HEADER]))
        changed = approval.changes(site.path, header["settings"] | header.get("rules", {}))
        if changed:
            LOG.warning("the server would change settings: %s", "; ".join(changed))
            objections.append("changed settings wait for the site (`chase site accept`): " + "; ".join(changed))
    except (UpdateError, SettingsError, ContractError) as error:
        objections = [f"{error} (the server runs chase {version}, the site {__version__})"]
    return codec.pack_hello(Hello(site.card.name, tuple(objections), *turn.sizes(site)))


def accepted(site: Site, records: RecordDict) -> tuple[dict[str, Any], Settings, dict[str, Any]]:
    """Header, settings and privacy rules of an order; one that the site's people did not accept is refused."""
    header = codec.header_of(records)
    settings = settings_of(header)
    turn.check_contract(site, settings, header[HEADER])
    rules: dict[str, Any] = header["rules"]
    changed = approval.changes(site.path, header["settings"] | rules)
    if changed:
        raise ContractError(f"settings that nobody here has accepted (`chase site accept`): {'; '.join(changed)}")
    return header, settings, rules


def take_turn(site: Site, records: RecordDict) -> RecordDict:
    """A turn."""
    header, settings, rules = accepted(site, records)
    order, recover = codec.order_of(records, header), bool(header.get("recover"))
    update = turn.take_turn(site, settings, int(header["number"]), order, recover)
    if rules["dp_epsilon"]:
        update = replace(update, weights=with_noise(site, update, order, rules, header["dp"]))
    if rules["secure"]:
        words = vector_for(settings, turn.spec_of(site, settings), order).words(update)
        return _keys(site, "turn", header, f"{order.run} {order.round}", order.round, words, update.metrics["turn"])
    return codec.pack_update(update, turn.agreed_metrics(update))


def _keys(site: Site, job: str, header: dict[str, Any], of: str, round: int, words: Words, turns: float) -> RecordDict:
    """The first step of a secure sum in place of the answer itself, which is ``of`` a run and round or of a model."""
    number = int(header["number"])
    keys = SecureSite(site, job).begin(number, str(header["context"]), of, words)
    return codec.pack_update(ClientUpdate(number, round, {}, 0, {}, keys), {"turn": turns})


def secure_step(step: str) -> Handler:
    """A later step of a secure sum."""

    def handle(site: Site, records: RecordDict) -> RecordDict:
        header = codec.header_of(records)
        with site.locked():
            found = getattr(SecureSite(site, str(header["job"])), step)(header)
        return codec.pack_update(ClientUpdate(int(header["number"]), int(header["of"]), {}, 0, {}, found), {})

    return handle


def tally(site: Site, records: RecordDict) -> RecordDict:
    """The held-out part under a model."""
    header, settings, rules = accepted(site, records)
    weights = codec.take_arrays(records, "weights")
    found = turn.tally(site, settings, weights)
    if rules["secure"]:
        words = encode(np.array(found, dtype=np.float64))
        return _keys(site, "tally", header, digest(weights), int(header["of"]), words, turn.turns(site))
    return codec.pack_tally(Tally(*found))


HANDLERS: dict[str, Handler] = {
    codec.KINDS["hello"]: hello,
    codec.KINDS["turn"]: take_turn,
    codec.KINDS["tally"]: tally,
    **{codec.KINDS[step]: secure_step(step) for step in ("shares", "masked", "unmask")},
}
