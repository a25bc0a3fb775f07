"""Pictures of a data set to one array: one number of channels, one size, one scale, decoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chase.core.errors import DataError
from chase.data.audio import BANDS, HOP, RATE, is_wave, to_length
from chase.data.options import DataOptions
from chase.data.pictures import (
    BYTE,
    RAW,
    Header,
    PictureError,
    Scale,
    Values,
    range_of,
    read_header,
    read_picture,
    rescale,
    reshape,
)

MOST_SECONDS = 10.0
"""Recordings are not longer than this unless ``audio_seconds`` says so."""


@dataclass(frozen=True)
class Images:
    """Decoded images (n, c, h, w), which of the given ones they are, and what was wrong with the rest."""

    pixels: Values
    """uint8, or float32 from 0 to 255 where the scale is not that of 8-bit pictures."""
    kept: Values
    problems: tuple[str, ...]
    scale: Scale = BYTE
    seconds: float = 0.0
    """Recordings: the length to which all were brought."""

    @property
    def channels(self) -> int:
        """1 grey, 3 colour."""
        return int(self.pixels.shape[1])


def decode(raws: Sequence[RAW | None], names: Sequence[str], options: DataOptions) -> Images:
    """All images at one size, number of channels and scale; an unreadable one is refused or, on request, skipped."""
    if not raws:
        raise DataError("the data has no images")
    headers = [_header(raw) for raw in raws]
    channels = options.channels or found_channels(headers)
    arrays: list[Values] = []
    kept: list[int] = []
    skipped: list[str] = []
    waves: list[int] = []
    seconds = 0.0
    low, high = np.inf, -np.inf
    for row, raw in enumerate(raws):
        try:
            picture = read_picture(raw)
        except PictureError as error:
            problem = f"cannot read image {names[row]}: {error}"
            if options.bad_images == "fail":
                raise DataError(f"{problem}; repair or remove it, or set bad_images=skip") from None
            skipped.append(f"{problem} (skipped)")
            continue
        if not options.scale and picture.dtype != np.uint8:
            bottom, top = range_of(picture)
            low, high = min(low, bottom), max(high, top)
        if is_wave(raw):
            waves.append(row)
            arrays.append(picture)
            kept.append(row)
            continue
        arrays.append(reshape(picture, channels, options.image_size))
        if arrays[-1].shape != arrays[0].shape:
            raise DataError(_other_size(names[row], arrays[-1], names[kept[0]], arrays[0]))
        kept.append(row)
    if not arrays:
        raise DataError(f"none of the {len(raws)} images can be read; the first: {skipped[0]}")
    if waves:
        if len(waves) < len(arrays):
            raise DataError(
                f"{names[waves[0]]} is a recording among images: keep recordings and images in separate data sets"
            )
        seconds, cut = one_length(arrays, channels, options)
        skipped += cut
    scale = options.scale or (BYTE if high < low else _with_bytes(arrays, low, high))
    problems = (*skipped, *mixture(headers, names, channels, bool(options.scale)))
    return Images(_stack(arrays, scale), np.array(kept, dtype=np.int64), problems, scale, seconds)


def one_length(recordings: list[Values], channels: int, options: DataOptions) -> tuple[float, list[str]]:
    """Turn spectra in place into square pictures of one length; returns it in seconds, and what was cut."""
    frames = [picture.shape[2] for picture in recordings]
    per_second = RATE / HOP
    length = round(options.audio_seconds * per_second) or min(max(frames), round(MOST_SECONDS * per_second))
    size = options.image_size or BANDS
    for row, picture in enumerate(recordings):
        recordings[row] = reshape(to_length(picture, length), channels, size)
    longer = sum(count > length for count in frames)
    seconds = length / per_second
    if not longer:
        return seconds, []
    return seconds, [f"{longer} of {len(frames)} recordings were cut at {seconds:.1f} s: set audio_seconds to change"]


def _stack(arrays: list[Values], scale: Scale) -> Values:
    """All pictures by one scale in one array; each is given up as it is copied."""
    out = np.empty((len(arrays), *arrays[0].shape), dtype=np.uint8 if scale == BYTE else np.float32)
    for row in range(len(arrays)):
        out[row], arrays[row] = rescale(arrays[row], scale), arrays[0][:0]
    return out


def _with_bytes(arrays: Sequence[Values], low: float, high: float) -> Scale:
    """The range of wide pictures, widened by that of 8-bit ones among them."""
    narrow = [a for a in arrays if a.dtype == np.uint8]
    return min([low, *(float(a.min()) for a in narrow)]), max([high, *(float(a.max()) for a in narrow)])


def _header(raw: RAW | None) -> Header | None:
    try:
        return read_header(raw)
    except PictureError:
        return None


def found_channels(headers: Sequence[Header | None]) -> int:
    """3 if more than half of the images that open are in colour, else 1."""
    known = [header.colour for header in headers if header is not None]
    return 3 if 2 * sum(known) > len(known) else 1


def mixture(headers: Sequence[Header | None], names: Sequence[str], channels: int, scaled: bool) -> tuple[str, ...]:
    """What is not alike among the images: colour, depth, frames."""
    known = [(header, name) for header, name in zip(headers, names, strict=True) if header is not None]
    found: list[str] = []
    other = [name for header, name in known if header.colour != (channels == 3)]
    if other and len(other) < len(known):
        now, was = ("colour", "grey") if channels == 3 else ("grey", "colour")
        found.append(
            f"{len(other)} of {len(known)} images are in {was} and were converted to {now} like the others "
            f"(first: {other[0]}); channels={1 if channels == 3 else 3} converts the others instead"
        )
    depths = {header.depth for header, _ in known}
    if len(depths) > 1:
        listed = " and ".join(f"{sum(h.depth == d for h, _ in known)} of {d}" for d in sorted(depths))
        how = "the given pixel_range" if scaled else "one range found over all, so 8-bit ones may look dark"
        found.append(f"images of different bit depth ({listed} bits) were scaled by {how}; see pixel_range")
    several = [name for header, name in known if header.frames > 1]
    if several:
        found.append(f"{len(several)} images have several frames; the first one is used (first: {several[0]})")
    return tuple(found)


def _other_size(name: str, image: Values, first_name: str, first: Values) -> str:
    return (
        f"image {name} is {image.shape[2]}x{image.shape[1]} and {first_name} is {first.shape[2]}x{first.shape[1]}: "
        "set image_size, for example image_size=64, to resize all"
    )


def channel_statistics(pixels: Values) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of values scaled to 0..1 (for uint8 from the counts of the values)."""
    means, stds = [], []
    for channel in range(pixels.shape[1]):
        plane = pixels[:, channel]
        mean, deviation = _counted(plane) if pixels.dtype == np.uint8 else _summed(plane)
        means.append(mean)
        stds.append(max(1e-3, deviation))
    return tuple(means), tuple(stds)


def _counted(plane: Values) -> tuple[float, float]:
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, plane.shape[0], 4096):
        counts += np.bincount(plane[start : start + 4096].reshape(-1), minlength=256)
    share, values = counts / counts.sum(), np.arange(256) / 255.0
    mean = float((share * values).sum())
    return mean, float(np.sqrt((share * (values - mean) ** 2).sum()))


def _summed(plane: Values) -> tuple[float, float]:
    first = second = 0.0
    for start in range(0, plane.shape[0], 1024):
        part = plane[start : start + 1024].astype(np.float64) / 255.0
        first, second = first + float(part.sum()), second + float((part**2).sum())
    mean = first / plane.size
    return mean, float(np.sqrt(max(0.0, second / plane.size - mean**2)))
