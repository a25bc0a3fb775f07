"""Our messages as Flower's records and back; whatever does not fit exactly is refused.

An update holds the records listed in ``UPDATE`` and no others: weights, extras, a header of whole numbers and the
agreed metrics. Arrays travel in NumPy's own format, read without pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from chase import __version__
from chase.core.errors import UpdateError
from chase.core.messages import FORMAT, ClientUpdate, RoundOrder
from chase.core.weights import Array, Arrays
from chase.federation.transport import Hello, SiteMessage, Tally

KINDS = {"hello": "query.hello", "turn": "train.turn", "tally": "evaluate.tally"}
"""Our kinds of letters, and Flower's message types for them."""
UPDATE = ("weights", "extras", "update", "metrics")
NUMBERS = ("format", "client", "round", "num_labeled")


def to_arrays(arrays: Arrays) -> ArrayRecord:
    """Named arrays as a record."""
    return ArrayRecord({name: FlowerArray(np.asarray(a, order="C")) for name, a in arrays.items()})


def from_arrays(record: ArrayRecord) -> dict[str, Array]:
    """The named arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def pack_letter(letter: SiteMessage) -> RecordDict:
    """A letter as records."""
    header: dict[str, Any] = {"format": FORMAT, "chase": __version__, **letter.header}
    records = RecordDict()
    if letter.order is not None:
        order = letter.order
        header |= {"run": order.run, "round": order.round, "seed": order.seed}
        header |= {"phase": order.phase, "fresh": order.fresh, "track": order.track}
        records["weights"] = to_arrays(order.weights)
        if order.start is not None:
            records["start"] = to_arrays(order.start)
        records["extras"] = to_arrays(order.extras)
    if letter.weights is not None:
        records["weights"] = to_arrays(letter.weights)
    records["letter"] = ConfigRecord({"header": json.dumps(header)})
    return records


def header_of(records: RecordDict) -> dict[str, Any]:
    """The header of a letter; one of another format is refused."""
    try:
        header: dict[str, Any] = json.loads(str(records["letter"]["header"]))
        version = header["format"]
    except (KeyError, ValueError, TypeError) as error:
        raise UpdateError(f"a letter cannot be read: {type(error).__name__}") from None
    if version != FORMAT:
        raise UpdateError(f"a letter has format {version}, this site reads {FORMAT}: use the same version of chase")
    return header


def version_of(records: RecordDict) -> str:
    """The version of chase that wrote a letter, as far as it can be read."""
    try:
        return str(json.loads(str(records["letter"]["header"]))["chase"])
    except (KeyError, ValueError, TypeError):
        return "of an unknown version"


def weights_of(records: RecordDict, name: str = "weights") -> dict[str, Array]:
    """The arrays of a letter; none if it has none."""
    found = records.get(name)
    return from_arrays(found) if isinstance(found, ArrayRecord) else {}


def order_of(records: RecordDict, header: Mapping[str, Any]) -> RoundOrder:
    """The order in a letter."""
    return RoundOrder(
        run=str(header["run"]),
        round=int(header["round"]),
        seed=int(header["seed"]),
        weights=weights_of(records),
        phase=str(header["phase"]),
        start=weights_of(records, "start") if header["fresh"] else None,
        track=bool(header["track"]),
        extras=weights_of(records, "extras"),
    )


def pack_update(update: ClientUpdate, metrics: Mapping[str, float]) -> RecordDict:
    """All that a site sends up after a turn."""
    numbers = (FORMAT, update.client, update.round, update.num_labeled)
    records = RecordDict()
    records["weights"] = to_arrays(update.weights)
    records["extras"] = to_arrays(update.extras)
    records["update"] = ConfigRecord(dict(zip(NUMBERS, numbers, strict=True)))
    records["metrics"] = MetricRecord({name: float(value) for name, value in metrics.items()})
    return records


def _arrays(records: RecordDict, name: str) -> dict[str, Array]:
    record = records[name]
    if not isinstance(record, ArrayRecord):
        raise UpdateError(f"'{name}' of an answer holds no arrays")
    try:
        return from_arrays(record)
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise UpdateError(f"the arrays '{name}' of an answer cannot be read: {error}") from None


def _config(records: RecordDict, name: str, keys: tuple[str, ...]) -> ConfigRecord:
    record = records[name]
    if not isinstance(record, ConfigRecord) or set(record) != set(keys):
        raise UpdateError(f"'{name}' of an answer holds other values than {', '.join(keys)}")
    return record


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UpdateError(f"'{name}' of an answer is {value!r}, not a whole number")
    return value


def unpack_update(records: RecordDict) -> ClientUpdate:
    """An update; anything more or less than one is refused."""
    if set(records) != set(UPDATE):
        raise UpdateError(f"an update holds {', '.join(UPDATE)}, not {', '.join(sorted(records)) or 'nothing'}")
    head = _config(records, "update", NUMBERS)
    version, client, round, num_labeled = (_whole(head[name], name) for name in NUMBERS)
    if version != FORMAT:
        raise UpdateError(f"an update has format {version}, the server reads {FORMAT}: use the same version of chase")
    metrics = records["metrics"]
    if not isinstance(metrics, MetricRecord):
        raise UpdateError("the metrics of an update are of another kind")
    numbers = {str(name): value for name, value in metrics.items() if isinstance(value, int | float)}
    if len(numbers) < len(metrics):
        raise UpdateError("a metric of an update is no number")
    return ClientUpdate(
        client=client,
        round=round,
        weights=_arrays(records, "weights"),
        num_labeled=num_labeled,
        metrics={name: float(value) for name, value in numbers.items()},
        extras=_arrays(records, "extras"),
    )


def pack_hello(hello: Hello) -> RecordDict:
    """A site's answer to the handshake."""
    return RecordDict({"hello": ConfigRecord({"site": hello.site, "objections": list(hello.objections)})})


def pack_tally(tally: Tally) -> RecordDict:
    """A site's held-out part under a model: two sums."""
    return RecordDict({"tally": ConfigRecord({"correct": tally.correct, "count": tally.count})})


def pack_failure(reason: str) -> RecordDict:
    """That something went wrong at a site, in words that say nothing of its data."""
    return RecordDict({"failure": ConfigRecord({"reason": reason})})


def unpack(records: RecordDict) -> Hello | ClientUpdate | Tally | str:
    """What a site answered; a text is what it says went wrong."""
    names = set(records)
    if names == {"hello"}:
        body = _config(records, "hello", ("site", "objections"))
        listed = body["objections"]
        if not isinstance(listed, list):
            raise UpdateError("the objections of a handshake are no list")
        return Hello(str(body["site"]), tuple(str(o) for o in listed))
    if names == {"tally"}:
        body = _config(records, "tally", ("correct", "count"))
        return Tally(_whole(body["correct"], "correct"), _whole(body["count"], "count"))
    if names == {"failure"}:
        return str(_config(records, "failure", ("reason",))["reason"])
    return unpack_update(records)
