"""Our messages as Flower's records and back; whatever does not fit exactly is refused.

An update holds weights, extras, a header of whole numbers and the agreed metrics, and nothing else. Arrays travel as
one safetensors blob, cut into pieces: its header says where every array lies within the bytes that have come, so a
header that claims more than there is is refused before anything is allocated, and nothing is unpickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from safetensors import SafetensorError
from safetensors.numpy import load

from chase import __version__
from chase.core.errors import UpdateError
from chase.core.messages import ClientUpdate, RoundOrder
from chase.core.text import clean
from chase.core.weights import Array, Arrays, to_bytes
from chase.federation.transport import Hello, SiteMessage, Tally

FORMAT = 4
"""Version of the letters and answers; 1 sent every array as a record of its own, 2 no privacy rules with an order."""
KINDS = {"hello": "query.hello", "turn": "train.turn", "tally": "evaluate.tally"}
KINDS |= {step: f"train.{step}" for step in ("shares", "masked", "unmask")}
"""Our kinds of letters, and Flower's message types for them."""
PIECE = 4 << 20
"""Bytes of arrays in one record."""
MOST = 4 << 30
"""Bytes of arrays in one message, where the federation sets no other limit."""
MOST_NAMES = 10_000
"""Arrays in one message, and bytes of a name."""
MOST_HEADER = 8 << 20
OBJECTIONS = 20
NUMBERS = ("format", "client", "round", "num_labeled")
GREETING = ("site", "objections", "samples", "held_out", "turn")
PART = re.compile(r"(weights|extras|start)/([0-9]{1,5})")


def put_arrays(records: RecordDict, name: str, arrays: Arrays) -> None:
    """Add named arrays to a message."""
    blob = to_bytes(arrays) if arrays else b""
    for number, start in enumerate(range(0, len(blob), PIECE)):
        records[f"{name}/{number}"] = ConfigRecord({"data": blob[start : start + PIECE]})


def take_arrays(records: RecordDict, name: str, most: int = MOST) -> dict[str, Array]:
    """The named arrays of a message; what does not fit its own description is refused before it is read."""
    numbers = sorted(int(m[2]) for m in map(PART.fullmatch, records) if m and m[1] == name)
    if numbers != list(range(len(numbers))):
        raise UpdateError(f"the arrays '{name}' lack a piece")
    pieces = [_piece(records, f"{name}/{number}") for number in numbers]
    if sum(map(len, pieces)) > most:
        raise UpdateError(f"the arrays '{name}' have more than {most} bytes")
    blob = b"".join(pieces)
    if not blob:
        return {}
    header = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or header > min(MOST_HEADER, len(blob) - 8):
        raise UpdateError(f"the arrays '{name}' have a header of {header} bytes, which is impossible")
    try:
        found = load(blob)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise UpdateError(f"the arrays '{name}' cannot be read: {clean(str(error), 100)}") from None
    if len(found) > MOST_NAMES or any(len(key) > MOST_NAMES for key in found):
        raise UpdateError(f"the arrays '{name}' have too many or too long names")
    return {key: array if array.flags.writeable else np.array(array) for key, array in found.items()}


def _piece(records: RecordDict, name: str) -> bytes:
    data = _config(records, name, ("data",))["data"]
    if not isinstance(data, bytes):
        raise UpdateError(f"'{name}' of a message holds no bytes")
    return data


def pack_letter(letter: SiteMessage) -> RecordDict:
    """A letter as records."""
    header: dict[str, Any] = {"format": FORMAT, "chase": __version__, **letter.header}
    records = RecordDict()
    if letter.order is not None:
        order = letter.order
        header |= {"run": order.run, "round": order.round, "seed": order.seed}
        header |= {"phase": order.phase, "fresh": order.fresh, "track": order.track}
        if order.allowances is not None:
            header["allowance"] = order.allowances.get(int(header["number"]), 0)
        put_arrays(records, "weights", order.weights)
        if order.start is not None:
            put_arrays(records, "start", order.start)
        put_arrays(records, "extras", order.extras)
    if letter.weights is not None:
        put_arrays(records, "weights", letter.weights)
    records["letter"] = ConfigRecord({"header": json.dumps(header)})
    return records


def header_of(records: RecordDict) -> dict[str, Any]:
    """The header of a letter; one of another format is refused."""
    try:
        header: dict[str, Any] = json.loads(str(records["letter"]["header"]))
        version = header["format"]
    except (KeyError, ValueError, TypeError) as error:
        raise UpdateError(f"a message cannot be read: {type(error).__name__}") from None
    if version != FORMAT:
        raise UpdateError(f"a message has format {version}, this site reads {FORMAT}: use the same version of chase")
    return header


def version_of(records: RecordDict) -> str:
    """The version of chase that wrote a letter, as far as it can be read."""
    try:
        return str(json.loads(str(records["letter"]["header"]))["chase"])
    except (KeyError, ValueError, TypeError):
        return "of an unknown version"


def order_of(records: RecordDict, header: Mapping[str, Any]) -> RoundOrder:
    """The order in a letter."""
    allowance = header.get("allowance")
    return RoundOrder(
        run=str(header["run"]),
        round=int(header["round"]),
        seed=int(header["seed"]),
        weights=take_arrays(records, "weights"),
        phase=str(header["phase"]),
        start=take_arrays(records, "start") if header["fresh"] else None,
        track=bool(header["track"]),
        extras=take_arrays(records, "extras"),
        allowances=None if allowance is None else {int(header["number"]): int(allowance)},
    )


def pack_update(update: ClientUpdate, metrics: Mapping[str, float]) -> RecordDict:
    """All that a site sends up after a turn."""
    numbers = (FORMAT, update.client, update.round, update.num_labeled)
    records = RecordDict()
    put_arrays(records, "weights", update.weights)
    put_arrays(records, "extras", update.extras)
    records["update"] = ConfigRecord(dict(zip(NUMBERS, numbers, strict=True)))
    records["metrics"] = MetricRecord({name: float(value) for name, value in metrics.items()})
    return records


def _config(records: RecordDict, name: str, keys: tuple[str, ...]) -> ConfigRecord:
    record = records[name]
    if not isinstance(record, ConfigRecord) or set(record) != set(keys):
        raise UpdateError(f"'{name}' of an answer holds other values than {', '.join(keys)}")
    return record


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UpdateError(f"'{name}' of an answer is {clean(repr(value), 40)}, not an integer")
    return value


def unpack_update(records: RecordDict, most: int = MOST) -> ClientUpdate:
    """An update; anything more or less than one is refused."""
    whole = {name for name in records if not PART.fullmatch(name)}
    arrays = {m[1] for m in map(PART.fullmatch, records) if m}
    if whole != {"update", "metrics"} or not arrays <= {"weights", "extras"}:
        names = ", ".join(clean(name, 40) for name in sorted(whole | arrays)[:8])
        raise UpdateError(f"an update holds weights, extras, update, metrics, not {names or 'nothing'}")
    head = _config(records, "update", NUMBERS)
    version, client, round, num_labeled = (_whole(head[name], name) for name in NUMBERS)
    if version != FORMAT:
        raise UpdateError(f"an update has format {version}, the server reads {FORMAT}: use the same version of chase")
    metrics = records["metrics"]
    if not isinstance(metrics, MetricRecord):
        raise UpdateError("the metrics of an update are of another kind")
    numbers = {clean(str(name), 60): value for name, value in metrics.items() if isinstance(value, int | float)}
    if len(numbers) < len(metrics):
        raise UpdateError("a metric of an update is not a number")
    return ClientUpdate(
        client=client,
        round=round,
        weights=take_arrays(records, "weights", most),
        num_labeled=num_labeled,
        metrics={name: float(value) for name, value in numbers.items()},
        extras=take_arrays(records, "extras", most),
    )


def pack_hello(hello: Hello) -> RecordDict:
    """A site's answer to the handshake."""
    values = (hello.site, list(hello.objections[:OBJECTIONS]), hello.samples, hello.held_out, hello.turn)
    return RecordDict({"hello": ConfigRecord(dict(zip(GREETING, values, strict=True)))})


def pack_tally(tally: Tally) -> RecordDict:
    """A site's held-out part under a model: two sums."""
    return RecordDict({"tally": ConfigRecord({"correct": tally.correct, "count": tally.count})})


def pack_failure(reason: str, again: bool = True) -> RecordDict:
    """That something went wrong at a site, in words that say nothing of its data, and whether to ask again may help."""
    return RecordDict({"failure": ConfigRecord({"reason": reason, "again": again})})


@dataclass(frozen=True)
class Failure:
    """What a site says went wrong."""

    reason: str
    again: bool = True


def unpack(records: RecordDict, most: int = MOST) -> Hello | ClientUpdate | Tally | Failure:
    """What a site answered. Texts are cut and cleaned."""
    names = set(records)
    if names == {"hello"}:
        body = _config(records, "hello", GREETING)
        listed = body["objections"]
        if not isinstance(listed, list) or len(listed) > OBJECTIONS:
            raise UpdateError("the objections of a handshake are not a short list")
        counts = (_whole(body[name], name) for name in GREETING[2:])
        return Hello(clean(str(body["site"]), 64), tuple(clean(str(o)) for o in listed), *counts)
    if names == {"tally"}:
        body = _config(records, "tally", ("correct", "count"))
        return Tally(_whole(body["correct"], "correct"), _whole(body["count"], "count"))
    if names == {"failure"}:
        body = _config(records, "failure", ("reason", "again"))
        return Failure(clean(str(body["reason"])), bool(body["again"]))
    return unpack_update(records, most)
