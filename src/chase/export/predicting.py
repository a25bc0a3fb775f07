"""Predictions of a trained model for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from chase.core.errors import DataError
from chase.export.load_model import read_file
from chase.export.trained import Trained

CHUNK = 200


@dataclass(frozen=True)
class Prediction:
    """What the model says of one file."""

    file: str
    label: str
    probability: float
    note: str
    """What had to be changed to fit the model's input."""


def read_input(trained: Trained, file: Path) -> tuple[Tensor, str]:
    """A file as raw input of the model, and what had to be changed."""
    if not file.is_file():
        raise DataError(f"{file} {'is not a file' if file.exists() else 'does not exist'}: name files to predict")
    try:
        return read_file(file, trained.card.to_json())
    except ValueError as error:
        raise DataError(str(error)) from None


def predict(trained: Trained, files: Sequence[Path]) -> list[Prediction]:
    """A prediction a file, in order; the first file that cannot be read is named."""
    done: list[Prediction] = []
    for start in range(0, len(files), CHUNK):
        some = files[start : start + CHUNK]
        read = [read_input(trained, file) for file in some]
        best = trained.probabilities(torch.stack([inputs for inputs, _ in read])).max(dim=1)
        for file, (_, note), p, c in zip(some, read, best.values.tolist(), best.indices.tolist(), strict=True):
            done.append(Prediction(str(file), trained.card.classes[c], p, note))
    return done
