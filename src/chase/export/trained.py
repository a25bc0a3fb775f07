"""The trained model of a run directory, built without its data set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chase.closed_form.model import build_model
from chase.core.errors import RunDirectoryError
from chase.core.weights import Weights
from chase.models.card import ModelCard
from chase.models.net import set_weights
from chase.run.checkpoint import Checkpoint
from chase.run.record import NO_EFFECT, Record
from chase.server.server import model_of


class WithInput(nn.Module):
    """The network together with the normalisation of its input: raw pixels or tokens -> logits."""

    scale: Tensor
    shift: Tensor

    def __init__(self, net: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.net, self.tokens = net, card.kind == "text"
        std = torch.tensor(card.std)
        self.register_buffer("scale", (1.0 / (255.0 * std)).view(-1, 1, 1))
        self.register_buffer("shift", (torch.tensor(card.mean) / std).view(-1, 1, 1))

    def forward(self, raw: Tensor) -> Tensor:
        """uint8 pixels (n, c, h, w), or tokens (n, length) -> logits (n, classes)."""
        ready = raw.long() if self.tokens else raw.float() * self.scale - self.shift
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


def read_card(path: Path) -> ModelCard:
    """``model.json`` of a run directory."""
    file = path / "model.json"
    try:
        return ModelCard.from_json(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RunDirectoryError(f"{path} has no model.json, so its model cannot be rebuilt: run it again") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from None


def read_trained(path: Path) -> Trained:
    """The model of a run directory after its last saved round."""
    record = Record.open(path)
    if record.settings.form == "isolated":
        raise RunDirectoryError(f"{path} is an isolated run: every client has its own model and there is no global one")
    card, checkpoint = read_card(path), Checkpoint(path / "checkpoint")
    manifest, _ = checkpoint.latest()
    if manifest is None:
        raise RunDirectoryError(f"{path} has no trained model yet: finish a round with `chase resume {path}`")
    net = build_model(card.net, record.settings.seed)
    weights = model_of(checkpoint.read_arrays(manifest.server))
    set_weights(net, weights)
    model = WithInput(net, card).eval()
    return Trained(path, card, weights, manifest.round, model, record.settings.model_dump(), record.metrics)
