"""Randomness as a function of coordinates.

Every draw is seeded by where it happens: ``rng(seed, "select", round, client)``. Nothing is drawn
from a global generator, so the order in which clients run, the number of processes and a resume
change nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Coordinate = str | int


def fold(seed: int, *coordinates: Coordinate) -> int:
    """A 63-bit number that depends on the seed and on every coordinate, type and order included."""
    text = "\x1f".join([f"i{seed}", *(f"{type(c).__name__[0]}{c}" for c in coordinates)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def rng(seed: int, *coordinates: Coordinate) -> np.random.Generator:
    """A NumPy generator for this place."""
    return np.random.Generator(np.random.PCG64(fold(seed, *coordinates)))


def torch_rng(seed: int, *coordinates: Coordinate) -> torch.Generator:
    """A torch generator (on the CPU) for this place."""
    import torch  # here, so that the labelling page's process can do without

    return torch.Generator().manual_seed(fold(seed, *coordinates))
