"""Features of how bright a picture is: patches are seen without their own brightness, so it counts for little there.

Mean and deviation of every channel over the whole picture, in the units of the data set, and random Fourier features of
them (Rahimi and Recht 2007): a class whose brightness lies between those of two others is no linear function of it.
``share`` is their part of the variance of all features; it decides how much a head with few labels listens to them.

Every picture is computed by itself, in the same shape, so that its features have the same bits in whatever batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chase.closed_form.feature_map import moments, standard
from chase.core.randomness import rng
from chase.core.weights import Array, Arrays

FOURIER = 64
GREY = 255.0
"""Brightness is measured in grey values, which the grid of the moments resolves."""


@dataclass(frozen=True)
class Levels:
    """Features of brightness of pictures with ``channels`` channels."""

    channels: int
    share: float
    seed: int = 0

    @property
    def width(self) -> int:
        """Numbers per picture; none without a share."""
        return FOURIER if self.share else 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The standardisation of brightness, and the directions and phases of its Fourier features."""
        if not self.share:
            return {}
        count = 2 * self.channels
        scale = {"level_mean": (count,), "level_std": (count,)}
        return {**scale, "level_directions": (count, FOURIER), "level_phases": (FOURIER,)}

    def sums(self, images: Tensor) -> dict[str, Array]:
        """Moments of the brightness of images (images, c, h, w), pixels from 0 to 1."""
        if not self.share:
            return {}
        parts = [self._measure(image[None]).numpy() for image in images]
        return moments(np.concatenate(parts) if parts else np.zeros((0, 2 * self.channels)))

    def solve(self, total: Arrays) -> dict[str, Array]:
        """From those moments to the parameters."""
        if not self.share:
            return {}
        draw, count, found = rng(self.seed, "levels"), 2 * self.channels, standard(total)
        return {
            "level_mean": found["mean"],
            "level_std": found["std"],
            "level_directions": (draw.standard_normal((count, FOURIER)) / np.sqrt(count)).astype(np.float32),
            "level_phases": draw.uniform(0.0, 2.0 * np.pi, FOURIER).astype(np.float32),
        }

    def kept(self, params: Arrays) -> dict[str, Array]:
        """The parameters that stay after all steps."""
        return {name: params[name] for name in self.shapes}

    def weighed(self, std: Array) -> Array:
        """The deviations of all features, with those of brightness, the last ones, divided by their weight."""
        if not self.share:
            return std
        others = std.size - FOURIER
        weight = np.sqrt(self.share / (1.0 - self.share) * others / FOURIER)
        return np.concatenate([std[:others], std[others:] / weight]).astype(np.float32)

    def embed(self, params: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """Features (images, width) of images (images, c, h, w), pixels from 0 to 1."""
        seen = (self._measure(images) - params["level_mean"]) / params["level_std"]
        return torch.cos(seen @ params["level_directions"] + params["level_phases"])

    def raw(self, params: Arrays, images: Tensor) -> Tensor:
        """The same, picture by picture."""
        ready = {name: torch.from_numpy(np.array(array)) for name, array in self.kept(params).items()}
        return torch.cat([self.embed(ready, image[None]) for image in images])

    @staticmethod
    def _measure(images: Tensor) -> Tensor:
        """Mean and deviation of every channel, in grey values (images, 2 * channels)."""
        mean, square = images.mean(dim=(2, 3)), images.square().mean(dim=(2, 3))
        return torch.cat([mean, (square - mean.square()).clamp(min=0.0).sqrt()], dim=1) * GREY
