"""Features of images: responses of learnt patch filters, pooled over four quarters (Coates, Lee and Ng 2011).

    step 0      moments of contrast-normalised patches -> whitening (ZCA)
    step 1..p   spherical k-means in the whitened space, from seeded Gaussian directions: every patch goes to the
                direction with the largest |response| s and adds s * patch to it; directions are normalised
    last step   mean and deviation of the features

The response of a filter at a place is thresholded on both sides, max(0, r - t) and max(0, -r - t), and averaged
over the four quarters of the image: 8 numbers per filter. Patches are seen without their own brightness, so mean and
deviation of every channel in every quarter stand beside them, and more of them where ``levels`` is set
(``chase.closed_form.levels``). The contrast normalisation, the whitening and the filter are one linear map of the
pixels and a division by the patch's deviation, so one matrix product per image does them all.

Every image is its own product of the same shape: its features have the same bits in whatever batch, client or
process they are computed. Patches are chosen by a hash of the sample's id, not by its place among others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from chase.closed_form.feature_map import (
    InputSpec,
    Reals,
    add,
    encode,
    mixed,
    moment_rows,
    moments,
    sample_ids,
    standard,
)
from chase.closed_form.levels import Levels
from chase.core.errors import DataError, SettingsError
from chase.core.randomness import fold, rng
from chase.core.weights import Array, Arrays
from chase.data.resident import Samples

CONTRAST = 10.0 / 255**2
"""Added to a patch's variance (pixels from 0 to 1), so that flat patches stay small."""
WHITEN = 0.1
"""Added to the eigenvalues of the patches' covariance."""
GRID = 2.0**-8
"""Patches are rounded to this grid before they are summed."""
FIRST_PATCHES = 4
"""Patches per image for the whitening."""
PATCHES = 100_000
"""About how many patches, over all clients, one pass of k-means sees."""
LARGEST = 48
"""Larger images are averaged down to at most this many pixels per side."""
CHUNK = 512
"""Images that are looked at at a time."""
AT_ONCE = 16_384
"""Patches that are in memory at a time: about 70 MB with 200 filters."""


@dataclass(frozen=True)
class Patches:
    """Filters for images of one shape."""

    spec: InputSpec
    filters: int = 200
    passes: int = 6
    size: int = 0
    """Side of a patch; 0 is 6, or half of an image smaller than 12."""
    threshold: float = 0.25
    seed: int = 0
    levels: float = 0.0
    """Share of features of brightness in the variance of all."""

    def __post_init__(self) -> None:
        if self.spec.kind != "image":
            raise SettingsError(f"features = 'patches' are for images, and these samples are of kind {self.spec.kind}")
        if min(self.grid) < 2:
            raise DataError(
                f"images of {self.spec.shape[1]}x{self.spec.shape[2]} pixels hold fewer than 2x2 patches of "
                f"{self.side}: use larger images"
            )

    @property
    def steps(self) -> int:
        """Whitening, the passes of k-means, the moments of the features."""
        return self.passes + 2

    @property
    def width(self) -> int:
        """Two signs of four quarters of every filter, mean and deviation of four quarters of every channel, levels."""
        return self.plain + self._levels.width

    @property
    def plain(self) -> int:
        """The width without features of levels."""
        return 8 * self.filters + 8 * self.image[0]

    @property
    def _levels(self) -> Levels:
        return Levels(self.image[0], self.levels, self.seed)

    @property
    def shrink(self) -> int:
        """Factor by which images are averaged down."""
        return -(-max(self.spec.shape[1:]) // LARGEST)

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of the image that patches are cut from."""
        channels, height, width = self.spec.shape
        return channels, height // self.shrink, width // self.shrink

    @property
    def side(self) -> int:
        """Side of a patch."""
        return self.size or max(2, min(6, min(self.image[1:]) // 2))

    @property
    def grid(self) -> tuple[int, int]:
        """Places of a patch: down and across."""
        return self.image[1] - self.side + 1, self.image[2] - self.side + 1

    @property
    def pixels(self) -> int:
        """Numbers in a patch."""
        return self.image[0] * self.side**2

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Filters, what is subtracted from their responses, and the standardisation."""
        moments = {"mean": (self.width,), "std": (self.width,)}
        return {"filters": (self.pixels, self.filters), "offset": (self.filters,), **self._levels.shapes, **moments}

    def embed(self, params: Mapping[str, Tensor], ready: Tensor) -> Tensor:
        """The same by convolutions on normalised images (images, c, h, w)."""
        channels, down, across = self.image[0], *self.grid
        shape = (1, -1, 1, 1)
        pixels = ready * torch.tensor(self.spec.std).view(shape) + torch.tensor(self.spec.mean).view(shape)
        if self.shrink > 1:
            pixels = F.avg_pool2d(pixels, self.shrink)
        bank = params["filters"].T.reshape(self.filters, channels, self.side, self.side)
        box = torch.ones((1, channels, self.side, self.side)) / self.pixels
        mean = F.conv2d(pixels, box)
        scale = ((F.conv2d(pixels.square(), box) - mean.square()).clamp(min=0.0) + CONTRAST).rsqrt()
        response = F.conv2d(pixels, bank) * scale - params["offset"].view(1, -1, 1, 1)
        pool = quarters(down, across)
        sides = [(sign * response - self.threshold).clamp(min=0.0).flatten(2) @ pool.T for sign in (1.0, -1.0)]
        parts = [torch.stack(sides, dim=1).transpose(2, 3).flatten(1), brightness(pixels)]
        return torch.cat([*parts, self._levels.embed(params, pixels)] if self.levels else parts, dim=1)

    def sums(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        """Patch moments, then responses times patches, then moments of features."""
        self._check(samples)
        if step == 0:
            return self._patch_moments(samples, rows)
        if step <= self.passes:
            return self._assigned(step, params, samples, rows)
        chosen = moment_rows(samples, rows, float(params["images"][0]), fold(self.seed, "moments"))
        return moments(self.raw(params, samples, chosen))

    def solve(self, step: int, params: Arrays, total: Arrays) -> dict[str, Array]:
        """Whitening, new directions, or the standardisation."""
        if step == 0:
            return self._whitening(total) | self._levels.solve(total)
        if step <= self.passes:
            summed = total["directions"] * GRID**2
            length = np.linalg.norm(summed, axis=1, keepdims=True)
            used = length[:, 0] > 1e-9
            directions = np.where(used[:, None], summed / np.maximum(length, 1e-12), params["directions"])
            return {**params, "directions": directions} | self._filters(params, directions)
        keep = {name: params[name] for name in ("filters", "offset")} | self._levels.kept(params)
        found = standard(total)
        return keep | found | {"std": self._levels.weighed(found["std"])}

    def raw(self, params: Arrays, samples: Samples, rows: Tensor) -> NDArray[np.float32]:
        """Pooled responses (rows, width), one image at a time."""
        self._check(samples)
        bank, offset = torch.from_numpy(np.array(params["filters"])), torch.from_numpy(np.array(params["offset"]))
        out = torch.empty((rows.numel(), self.width))
        pooled = out[:, : 8 * self.filters].view(-1, 2, 4, self.filters)
        kernel = _Kernel(self, bank, offset)
        with torch.inference_mode():
            for at in range(0, rows.numel(), CHUNK):
                images = self._images(samples, rows[at : at + CHUNK])
                scale = self._inverse_deviation(images)
                for i in range(images.shape[0]):
                    kernel(images[i], scale[i], pooled[at + i])
                out[at : at + CHUNK, 8 * self.filters : self.plain] = brightness(images)
                if self.levels:
                    out[at : at + CHUNK, self.plain :] = self._levels.raw(params, images)
        return out.numpy()

    # the parts

    def _check(self, samples: Samples) -> None:
        if tuple(samples.inputs.shape[1:]) != self.spec.shape:
            raise DataError(
                f"images have shape {list(samples.inputs.shape[1:])}, the features were fitted for "
                f"{list(self.spec.shape)}: all sites must use one image size"
            )

    def _images(self, samples: Samples, rows: Tensor) -> Tensor:
        """Pixels from 0 to 1 (rows, c, h, w), large images averaged down."""
        images = samples.inputs.index_select(0, rows).float().div_(255.0)
        return F.avg_pool2d(images, self.shrink) if self.shrink > 1 else images

    def _inverse_deviation(self, images: Tensor) -> Tensor:
        """1 / deviation of the pixels of every patch (images, places)."""
        ones = torch.full((1, 1, 1, self.side), 1.0)
        channels = self.image[0]
        both = torch.stack([images.sum(1), images.square().sum(1)], dim=1).view(-1, 1, *self.image[1:]).double()
        box = F.conv2d(F.conv2d(both, ones.double()), ones.double().transpose(2, 3)).view(images.shape[0], 2, -1)
        mean = box[:, 0] / (channels * self.side**2)
        variance = (box[:, 1] / (channels * self.side**2) - mean**2).clamp_(min=0.0)
        return (variance + CONTRAST).rsqrt().float()

    def _cut(self, samples: Samples, rows: Tensor, each: int, salt: int) -> Reals:
        """Contrast-normalised patches (rows * each, pixels), their places chosen by the samples' ids."""
        images = self._images(samples, rows)
        down, across = self.grid
        draws = mixed(sample_ids(samples, rows)[:, None] * 1024 + np.arange(each), salt)
        place = (draws % np.uint64(down * across)).astype(np.int64)
        y, x = torch.from_numpy(place // across), torch.from_numpy(place % across)
        reach = torch.arange(self.side)
        index = torch.arange(rows.numel())[:, None, None, None]
        pick = images.permute(0, 2, 3, 1)[
            index, (y[..., None] + reach)[..., :, None], (x[..., None] + reach)[..., None, :]
        ]
        flat = pick.permute(0, 1, 4, 2, 3).reshape(-1, self.pixels).numpy()
        centred = flat - flat.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + CONTRAST)
        return encode(normal, GRID).astype(np.float64)

    def _patch_moments(self, samples: Samples, rows: Tensor) -> dict[str, Array]:
        outer, summed, count = np.zeros((self.pixels, self.pixels)), np.zeros(self.pixels), 0
        levels = [self._levels.sums(self._images(samples, part)) for part in torch.split(rows, CHUNK)]
        for part in torch.split(rows, CHUNK):
            patches = self._cut(samples, part, FIRST_PATCHES, fold(self.seed, "patches", 0))
            outer += patches.T @ patches
            summed += patches.sum(axis=0)
            count += patches.shape[0]
        return {
            "patch.outer": outer,
            "patch.sum": summed,
            "patch.count": np.array([float(count)]),
            "images": np.array([float(rows.numel())]),
            **(add(levels) if self.levels and levels else {}),
        }

    def _whitening(self, total: Arrays) -> dict[str, Array]:
        count = float(total["patch.count"][0])
        if count < 2:
            raise DataError("there are no images to fit features on: add samples")
        mean = total["patch.sum"] / count * GRID
        covariance = total["patch.outer"] / count * GRID**2 - np.outer(mean, mean)
        values, vectors = np.linalg.eigh(covariance)
        whiten = (vectors / np.sqrt(np.maximum(values, 0.0) + WHITEN)) @ vectors.T
        drawn = rng(self.seed, "patch-directions").standard_normal((self.filters, self.pixels))
        directions = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        params = {"whiten": whiten, "patch_mean": mean, "images": total["images"]}
        return {**params, "directions": directions} | self._filters(params, directions)

    @staticmethod
    def _filters(params: Arrays, directions: Reals) -> dict[str, Array]:
        """Filters on raw patches (pixels, filters) and what is subtracted from their responses."""
        whole = params["whiten"] @ directions.T
        plain = whole - whole.mean(axis=0, keepdims=True)  # of a patch minus its own mean
        return {"filters": plain.astype(np.float32), "offset": (params["patch_mean"] @ whole).astype(np.float32)}

    def _assigned(self, step: int, params: Arrays, samples: Samples, rows: Tensor) -> dict[str, Array]:
        down, across = self.grid
        each = int(np.clip(PATCHES // max(1.0, float(params["images"][0])), 1, down * across))
        summed = np.zeros((self.filters, self.pixels))
        for part in torch.split(rows, max(1, min(CHUNK, AT_ONCE // each))):
            patches = self._cut(samples, part, each, fold(self.seed, "patches", step)) * GRID
            white = encode((patches - params["patch_mean"]) @ params["whiten"], GRID).astype(np.float64)
            response = torch.from_numpy(white @ params["directions"].T)
            nearest = response.abs().argmax(dim=1)
            strength = encode(response.gather(1, nearest[:, None])[:, 0].numpy(), 1.0).astype(np.float64)
            chosen = np.zeros((self.filters, strength.size))
            chosen[nearest.numpy(), np.arange(strength.size)] = strength
            summed += chosen @ white
        return {"directions": summed}


def brightness(images: Tensor) -> Tensor:
    """Mean and deviation of every channel in every quarter (images, 8 * channels)."""
    mean, square = F.adaptive_avg_pool2d(images, 2), F.adaptive_avg_pool2d(images.square(), 2)
    return torch.cat([mean.flatten(1), (square - mean.square()).clamp(min=0.0).sqrt().flatten(1)], dim=1)


def quarters(down: int, across: int) -> Tensor:
    """Averages over the four quarters of a grid of places (4, places)."""
    lower, right = (torch.arange(down) >= down // 2).long(), (torch.arange(across) >= across // 2).long()
    pool = F.one_hot((2 * lower[:, None] + right).flatten(), 4).T.float()
    return pool / pool.sum(dim=1, keepdim=True)


class _Kernel:
    """The features of one image, in buffers that stay in the processor's cache."""

    def __init__(self, shape: Patches, bank: Tensor, offset: Tensor) -> None:
        channels, height, width = shape.image
        self._down, self._across = shape.grid
        self._side, self._t = shape.side, shape.threshold
        places = self._down * self._across
        # One more column of ones subtracts the offset inside the product.
        self._bank = torch.cat([bank, -offset[None]]).contiguous()
        self._patches = torch.ones((places, shape.pixels + 1))
        self._view = self._patches[:, :-1].view(self._down, self._across, channels, self._side, self._side)
        self._strides = (width, 1, height * width, width, 1)
        self._responses = torch.empty((places, shape.filters))
        self._clamped = torch.empty_like(self._responses)
        self._pool = quarters(self._down, self._across)

    def __call__(self, image: Tensor, scale: Tensor, out: Tensor) -> None:
        """Pooled two-sided responses of one image (c, h, w) into out (2, 4, filters)."""
        window = image.as_strided(self._view.shape, self._strides, image.storage_offset())
        torch.mul(window, scale.view(self._down, self._across, 1, 1, 1), out=self._view)
        torch.mm(self._patches, self._bank, out=self._responses)
        torch.clamp(self._responses, min=self._t, out=self._clamped)
        torch.mm(self._pool, self._clamped, out=out[0]).sub_(self._t)
        torch.clamp(self._responses, max=-self._t, out=self._clamped)
        torch.mm(self._pool, self._clamped, out=out[1]).add_(self._t).neg_()
