"""A typical research script for one CHASe round: what `chase` is compared with.

PIL images in a Dataset with per-sample ``__getitem__``, ``num_workers=0``, a DataLoader per client and
per unlabelled batch, both teachers run in every step with gradients on, inference in batches of
128, default threads, stock dropout and optimiser. The mathematics of a turn is that of `chase`.
"""

from __future__ import annotations

import copy
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset

from chase.data.resident import DataSet


class Pictures(Dataset[tuple[Tensor, int]]):
    """PIL images, converted and normalised one by one when asked for."""

    def __init__(self, data: DataSet) -> None:
        pixels = data.train.inputs.permute(0, 2, 3, 1).numpy()
        self.images = [Image.fromarray(p) for p in pixels]
        self.labels = data.train_labels
        self.mean, self.std = torch.tensor(data.train.mean), torch.tensor(data.train.std)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        array = np.asarray(self.images[index], dtype=np.float32) / 255.0
        image = torch.from_numpy(array).permute(2, 0, 1)
        return (image - self.mean[:, None, None]) / self.std[:, None, None], int(self.labels[index])


class Net(nn.Module):
    """The CIFAR-10 network as a script would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(F.dropout(self.conv1(x), 0.5, self.training)), 2)
        x = F.max_pool2d(F.relu(F.dropout(self.conv2(x), 0.5, self.training)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def predict(net: nn.Module, pictures: Pictures, ids: NDArray[np.int64]) -> Tensor:
    net.eval()
    with torch.no_grad():
        found = [net(x).argmax(1) for x, _ in DataLoader(Subset(pictures, ids.tolist()), batch_size=128)]
    net.train()
    return torch.cat(found)


def align(out: Tensor, local: Tensor, glob: Tensor, easy: Tensor, tau: float = 0.5) -> Tensor:
    d_loc, d_glo = F.cosine_similarity(out, local), F.cosine_similarity(out, glob)
    pair = torch.stack([d_loc, d_glo], 1) / tau
    return F.cross_entropy(pair, (~easy).long())


def client_turn(
    pictures: Pictures, labelled: NDArray[np.int64], watched: NDArray[np.int64], glob: nn.Module, before: nn.Module
) -> Tensor:
    """Ten epochs of CE + alignment with a prediction after each; returns the EVs."""
    net = copy.deepcopy(glob).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.5)
    loader = DataLoader(Subset(pictures, labelled.tolist()), batch_size=10, shuffle=True)
    draw, history = np.random.default_rng(0), []
    for _ in range(10):
        for x, y in loader:
            ids = draw.choice(watched, len(y), replace=False)
            (unlabelled, _), *_ = DataLoader(Subset(pictures, ids.tolist()), batch_size=len(y))
            optimiser.zero_grad()
            out = net(unlabelled)
            easy = torch.from_numpy(ids % 2 == 0)
            loss = F.cross_entropy(net(x), y) + align(out, before(unlabelled), glob(unlabelled), easy)
            loss.backward()
            optimiser.step()
        history.append(predict(net, pictures, watched))
    return (torch.stack(history[1:]) != torch.stack(history[:-1])).sum(0)


def seconds_per_round(data: DataSet, labels: int, clients: int = 10, run_clients: int = 4) -> float:
    """Seconds of a round at default threads (one per core), from ``run_clients`` clients after one that warms up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    pictures, draw = Pictures(data), np.random.default_rng(0)
    glob, before = Net().eval(), Net().eval()
    ends = [time.perf_counter()]
    for _ in range(1 + run_clients):
        ids = draw.choice(len(pictures), labels // clients + 500, replace=False)
        client_turn(pictures, ids[:-500], ids[-500:], glob, before)
        ends.append(time.perf_counter())
    torch.set_num_threads(threads)
    return float(clients * np.median(np.diff(ends)[1:]))
