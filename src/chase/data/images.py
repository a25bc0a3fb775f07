"""Images to uint8 arrays: decoded, turned to grey or colour and resized, once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from chase.core.errors import DataError
from chase.data.options import DataOptions

GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16", "F"})
RAW = bytes | Path
"""An encoded image: its bytes or where it is."""


@dataclass(frozen=True)
class Images:
    """Decoded images (n, c, h, w), which of the given ones they are, and what was wrong with the rest."""

    pixels: NDArray[np.uint8]
    kept: NDArray[np.int64]
    problems: tuple[str, ...]


def open_image(raw: RAW | None) -> Image.Image:
    """An image that is not decoded yet."""
    if raw is None:
        raise ValueError("it is empty")
    return Image.open(raw if isinstance(raw, Path) else io.BytesIO(raw))


def _unreadable(name: str, error: Exception) -> str:
    reason = "it is not an image" if isinstance(error, UnidentifiedImageError) else (str(error) or type(error).__name__)
    return f"cannot read image {name}: {reason}"


def decode(raws: Sequence[RAW | None], names: Sequence[str], options: DataOptions) -> Images:
    """All images at one size and number of channels; an unreadable one is refused or, on request, skipped."""
    if not raws:
        raise DataError("the data has no images")
    channels = options.channels or _channels(raws)
    mode = "L" if channels == 1 else "RGB"
    size = options.image_size
    pixels: NDArray[np.uint8] | None = None
    kept: list[int] = []
    problems: list[str] = []
    for row, raw in enumerate(raws):
        try:
            with open_image(raw) as image:
                array = _pixels(image, mode, size)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            problem = _unreadable(names[row], error)
            if options.bad_images == "fail":
                raise DataError(f"{problem}; mend or remove it, or set bad_images=skip") from None
            problems.append(f"{problem} (skipped)")
            continue
        if pixels is None:
            pixels = np.empty((len(raws), *array.shape), dtype=np.uint8)
        elif pixels.shape[1:] != array.shape:
            raise DataError(
                f"image {names[row]} is {array.shape[2]}x{array.shape[1]} and the first is "
                f"{pixels.shape[3]}x{pixels.shape[2]}: set image_size, for example image_size=64, to resize all"
            )
        pixels[len(kept)] = array
        kept.append(row)
    if pixels is None:
        raise DataError(f"none of the {len(raws)} images can be read; the first: {problems[0]}")
    return Images(pixels[: len(kept)], np.array(kept, dtype=np.int64), tuple(problems))


def _channels(raws: Sequence[RAW | None]) -> int:
    """1 if every image that opens is grey, else 3; only headers are read."""
    for raw in raws:
        try:
            with open_image(raw) as image:
                if image.mode not in GREY_MODES:
                    return 3
        except (OSError, ValueError, SyntaxError):
            continue
    return 1


def _pixels(image: Image.Image, mode: str, size: int) -> NDArray[np.uint8]:
    """(c, h, w) of one image."""
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        image = Image.fromarray(np.clip(wide / max(255.0, wide.max()) * 255.0, 0, 255).astype(np.uint8))
    image = image.convert(mode)
    if size and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    array: NDArray[Any] = np.asarray(image, dtype=np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def channel_statistics(pixels: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of values scaled to 0..1, from the counts of the 256 values."""
    means, stds = [], []
    values = np.arange(256) / 255.0
    for channel in range(pixels.shape[1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, pixels.shape[0], 4096):
            counts += np.bincount(pixels[start : start + 4096, channel].reshape(-1), minlength=256)
        share = counts / counts.sum()
        mean = float((share * values).sum())
        means.append(mean)
        stds.append(max(1e-3, float(np.sqrt((share * (values - mean) ** 2).sum()))))
    return tuple(means), tuple(stds)
