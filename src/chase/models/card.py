"""What a model needs to be used without its data set: ``model.json`` of a run directory and of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from chase.data.resident import Column, DataSet, Kind
from chase.data.texts import LETTERS
from chase.models.catalog import NetSpec

FORMAT = 1


@dataclass(frozen=True)
class ModelCard:
    """The network, its classes, and how a sample becomes its input."""

    net: NetSpec
    classes: tuple[str, ...]
    kind: Kind
    mean: tuple[float, ...]
    """Per channel, of pixels scaled to 0..1."""
    std: tuple[float, ...]
    letters: str = ""
    """Texts of characters: the letter of each token; texts of words have none, their words are hashed."""
    scale: tuple[float, float] = (0.0, 255.0)
    """Images: the values in their files that become 0 and 255."""
    columns: tuple[Column, ...] = ()
    """Of a table."""
    seconds: float = 0.0
    """Recordings: their length."""

    @classmethod
    def of(cls, net: NetSpec, data: DataSet) -> ModelCard:
        """The card of a network for a data set."""
        letters = LETTERS if net.vocabulary == len(LETTERS) else ""
        train = data.train
        return cls(
            net, data.classes, train.kind, train.mean, train.std, letters, train.scale, train.columns, data.seconds
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"format": FORMAT, "shape": list(self.net.shape), **asdict(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelCard:
        """What ``to_json`` gave; a ``KeyError``, ``TypeError`` or ``ValueError`` says that it was something else."""
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, this version reads {FORMAT}")
        net = dict(values["net"])
        net["shape"] = tuple(int(size) for size in net["shape"])
        mean, std = (tuple(float(v) for v in values[key]) for key in ("mean", "std"))
        classes = tuple(str(name) for name in values["classes"])
        low, high = values.get("scale", (0.0, 255.0))
        scale = float(low), float(high)
        columns = tuple(Column.from_json(column) for column in values.get("columns", ()))
        rest = (scale, columns, float(values.get("seconds", 0.0)))
        return cls(NetSpec(**net), classes, values["kind"], mean, std, str(values["letters"]), *rest)
