"""The trained model of a run directory, built without its data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from chase.closed_form.model import build_model
from chase.core.errors import RunDirectoryError
from chase.core.text import quoted
from chase.core.weights import Array, Weights, read
from chase.data.resident import coded_rows
from chase.models.card import ModelCard
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.metrics import BEST, best_round, main_value
from chase.run.record import NO_EFFECT, Record
from chase.server.server import model_of

Which = Literal["last", "best"]


class WithInput(nn.Module):
    """The network together with the normalisation of its input: raw pixels or tokens -> logits."""

    scale: Tensor
    shift: Tensor

    def __init__(self, net: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.net, self.card = net, card
        mean, std = torch.tensor(card.mean), torch.tensor(card.std)
        if card.kind == "image":
            self.register_buffer("scale", (1.0 / (255.0 * std)).view(-1, 1, 1))
            self.register_buffer("shift", (mean / std).view(-1, 1, 1))
        else:
            self.register_buffer("scale", 1.0 / std)
            self.register_buffer("shift", mean / std)

    def forward(self, raw: Tensor) -> Tensor:
        """Pixels from 0 to 255 (n, c, h, w), tokens (n, length), vectors or table rows (n, columns) -> logits."""
        if self.card.kind == "text":
            ready = raw.long()
        elif self.card.kind == "table":
            ready = coded_rows(raw.float(), self.card.columns, self.card.mean, self.card.std)
        else:
            ready = raw.float() * self.scale - self.shift
        logits: Tensor = self.net(ready)
        return logits


@dataclass(frozen=True)
class Trained:
    """The global model after the last saved round."""

    path: Path
    card: ModelCard
    weights: Weights
    round: int
    model: WithInput
    settings: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]

    @property
    def settings_digest(self) -> str:
        """A fingerprint of all settings that decide the result."""
        decisive = {key: value for key, value in self.settings.items() if key not in NO_EFFECT}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    @property
    def test_accuracy(self) -> float | None:
        """Test accuracy of these weights, where they were evaluated."""
        return next((line["test_accuracy"] for line in self.metrics if line["round"] == self.round), None)

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Raw inputs -> (n, classes)."""
        with torch.inference_mode():
            return torch.softmax(self.model(inputs), dim=1)


def read_best(path: Path, round: int) -> dict[str, Array]:
    """The arrays of the best round, which a run keeps beside its last ones."""
    file = path / BEST
    if not file.is_file():
        raise RunDirectoryError(f"{path} did not keep its best model (round {round}): use --which last")
    arrays = read(file)
    if int(arrays.pop("round")[0]) != round:
        raise RunDirectoryError(f"{file} is not of round {round}: finish the run with `chase resume {quoted(path)}`")
    return arrays


def read_card(path: Path) -> ModelCard:
    """``model.json`` of a run directory."""
    file = path / "model.json"
    try:
        return ModelCard.from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RunDirectoryError(f"{path} has no model.json, so its model cannot be rebuilt: run it again") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from None


def read_trained(path: Path, which: Which = "last") -> Trained:
    """The model of a run directory after its last saved round, or after the round of the highest test accuracy."""
    record = Record.open(path)
    if record.settings.form == "isolated":
        raise RunDirectoryError(f"{path} is an isolated run: every client has its own model and there is no global one")
    card, checkpoint = read_card(path), Checkpoint(path / "checkpoint")
    manifest, _ = checkpoint.latest()
    if manifest is None:
        raise RunDirectoryError(f"{path} has no trained model yet: finish a round with `chase resume {quoted(path)}`")
    net = build_model(card.net, record.settings.seed)
    round, arrays = manifest.round, checkpoint.read_arrays(manifest.server)
    if which == "best":
        if all(main_value(line, record.settings.main_metric) is None for line in record.metrics):
            raise RunDirectoryError(f"no round of {path} was measured, so none is the best: use --which last")
        round = best_round(record.metrics[: manifest.round], record.settings.main_metric)
        if round != manifest.round:
            arrays = read_best(path, round)
    weights = model_of(arrays)
    if record.settings.learner == "closed-form" and not weights["head.weight"].any():
        raise RunDirectoryError(
            f"the model of {path} has learnt nothing yet: it needs labels of two classes; continue with "
            f"`chase resume {quoted(path)}`"
        )
    set_weights(net, weights)
    model = WithInput(net, card).eval()
    return Trained(path, card, weights, round, model, record.settings.model_dump(), record.metrics)
