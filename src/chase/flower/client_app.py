"""The client's side on Flower: a thin shell over ``chase.site``.

Flower starts a new process for every message. All state is the site's own, on its disk, and nothing but what
``codec`` packs leaves it: where a turn fails, the server hears at which stage, and the site's log says why.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from chase import __version__
from chase.core.errors import AgreementError, ChaseError, ClientError, SettingsError, UpdateError
from chase.federation.transport import Hello, Tally
from chase.flower import codec
from chase.settings import Settings, from_mapping
from chase.site import turn
from chase.site.agreement import Agreement
from chase.site.place import Site

app = ClientApp()
Handler = Callable[[Site, RecordDict], RecordDict]


def answer(message: Message, context: Context, handle: Handler) -> Message:
    """The reply to a message; a failure is logged here and goes up without its details."""
    try:
        home = Path(str(context.node_config["home"]))
        site = Site(home)
        try:
            content = handle(site, message.content)
        finally:
            site.close()
    except Exception as error:  # the boundary: text of an error may name samples and must not leave the site
        logging.getLogger("flwr").error("the message failed:\n%s", traceback.format_exc())
        content = codec.pack_failure(harmless(error))
    return Message(content, reply_to=message)


def harmless(error: Exception) -> str:
    """What the server may know of an error: its kind and the stage, not its text."""
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
        objections = turn.objections(site, settings_of(header), Agreement.from_json(header["agreement"]))
    except (UpdateError, SettingsError, AgreementError) as error:
        objections = [f"{error} (the server runs chase {version}, the site {__version__})"]
    return codec.pack_hello(Hello(site.card.name, tuple(objections)))


def take_turn(site: Site, records: RecordDict) -> RecordDict:
    """A turn."""
    header = codec.header_of(records)
    settings = settings_of(header)
    turn.check_agreement(site, settings, header["agreement"])
    update = turn.take_turn(site, settings, int(header["number"]), codec.order_of(records, header))
    return codec.pack_update(update, turn.agreed_metrics(update))


def tally(site: Site, records: RecordDict) -> RecordDict:
    """The held-out part under a model."""
    header = codec.header_of(records)
    settings = settings_of(header)
    turn.check_agreement(site, settings, header["agreement"])
    return codec.pack_tally(Tally(*turn.tally(site, settings, codec.weights_of(records))))


@app.query("hello")
def on_hello(message: Message, context: Context) -> Message:
    """Flower's way to ``hello``."""
    return answer(message, context, hello)


@app.train("turn")
def on_turn(message: Message, context: Context) -> Message:
    """Flower's way to ``take_turn``."""
    return answer(message, context, take_turn)


@app.evaluate("tally")
def on_tally(message: Message, context: Context) -> Message:
    """Flower's way to ``tally``."""
    return answer(message, context, tally)
