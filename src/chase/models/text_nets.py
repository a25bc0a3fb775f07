"""Networks for texts: the paper's character LSTM, and a small classifier of word tokens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chase.models.layers import Dropout
from chase.models.net import Net


class CharLSTM(Net):
    """Embedding 8, two LSTM layers of 256, the last state to the next character.

    Dropout stands between the layers and before the head. The layers are single ones, so that their
    dropout draws from the seeded source.
    """

    taps = ("state1", "state2")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.lstm1 = nn.LSTM(8, 256, batch_first=True)
        self.lstm2 = nn.LSTM(256, 256, batch_first=True)
        self.state1, self.state2 = nn.Identity(), nn.Identity()
        self.drop = Dropout(dropout)
        self.head = nn.Linear(256, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, length) tokens -> (batch, 256)."""
        out, _ = self.lstm1(self.embedding(x))
        self.state1(out[:, -1])
        out, _ = self.lstm2(self.drop(out))
        features: Tensor = self.drop(self.state2(out[:, -1]))
        return features


class TextBag(Net):
    """Mean and maximum of 64-d word embeddings, padding (token 0) left out, and one hidden layer of 64."""

    taps = ("bag", "fc")

    def __init__(self, shape: tuple[int, ...], classes: int, dropout: float, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.bag = nn.Identity()
        self.fc = nn.Linear(128, 64)
        self.drop = Dropout(dropout)
        self.head = nn.Linear(64, classes)

    def embed(self, x: Tensor) -> Tensor:
        """x (batch, length) tokens -> (batch, 64)."""
        words = self.embedding(x)
        there = (x != 0).unsqueeze(-1)
        mean = (words * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
        highest = words.masked_fill(~there, -1e4).amax(dim=1) * there.any(dim=1)
        features: Tensor = self.drop(F.relu(self.fc(self.bag(torch.cat([mean, highest], dim=1)))))
        return features
