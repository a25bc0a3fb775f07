"""Augmentation of whole batches, for training only: a random crop of the padded image and a random flip.

Tracking, teachers and scores always see the plain sample.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4
"""Pixels added on each side before the crop."""


def crop_and_flip(x: Tensor, blank: Tensor, draw: np.random.Generator, padding: int = PADDING) -> Tensor:
    """x (batch, c, h, w), each image shifted by up to ``padding`` pixels each way and mirrored by chance.

    ``blank`` (c, 1, 1) is a black pixel as the network sees it, so that padding is black.
    """
    count, _, height, width = x.shape
    top, left = (torch.from_numpy(draw.integers(0, 2 * padding + 1, size=count)) for _ in range(2))
    mirrored = torch.from_numpy(draw.random(count) < 0.5)
    padded = F.pad(x - blank, (padding, padding, padding, padding))
    rows = top[:, None] + torch.arange(height)
    across = torch.arange(width)
    columns = left[:, None] + torch.where(mirrored[:, None], across.flip(0), across)
    image, channel = torch.arange(count)[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]] + blank
