"""The one reader of picture files: training, prediction and the labelling page all go through it.

    read_picture(raw)            a file -> its values as they are: (channels, height, width), full range
    reshape, rescale             those values -> what a network takes, by ONE scale for the whole data set
    to_png(picture, window)      those values -> an 8-bit PNG for a screen, by a window (lowest, highest value)

Rules: 8-bit pictures stay uint8, 16-bit grey ones uint16, anything wider float32. The EXIF rotation is applied. Grey
pictures have one channel, all others three (red, green, blue); transparent parts become white. Of several frames
the first is read. Colour with 16 bits per channel is read with 8. DICOM values are rescaled as their header says. A
WAV recording is a picture of its spectrum (see ``audio``).
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from chase.core.errors import DataError
from chase.data.audio import is_wave, read_wave

RAW = bytes | Path
"""An encoded picture: its bytes or where it is."""
Scale = tuple[float, float]
"""The lowest and the highest value; they become 0 and 255."""
Size = tuple[int, int]
"""Height and width."""
BYTE: Scale = (0.0, 255.0)
"""The scale of 8-bit pictures."""
Values = NDArray[Any]

MOST_PIXELS = 100_000_000
"""A larger picture is refused: it would fill the memory."""
_ORIENTATION = 0x0112
_GREY = frozenset({"1", "L", "LA", "La", "I", "F"})
_UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


class PictureError(DataError):
    """A picture cannot be read; the message says why, without naming it."""


@dataclass(frozen=True)
class Header:
    """What a file says of its picture before it is decoded."""

    width: int
    height: int
    colour: bool
    depth: int
    """Bits per value."""
    frames: int = 1


def read_picture(raw: RAW | None) -> Values:
    """The values of a picture, (channels, height, width) as uint8, uint16 or float32; 1 or 3 channels."""
    if is_dicom(raw):
        from chase.data.dicom import read_dicom

        return read_dicom(raw)
    try:
        if raw is not None and is_wave(raw):
            return read_wave(raw)
        with _open(raw) as image:
            _check_size(image)
            return _values(image)
    except _UNREADABLE as error:
        raise PictureError(_reason(error)) from None


def read_header(raw: RAW | None) -> Header:
    """Size, colour and depth of a picture; only the beginning of the file is read."""
    if is_dicom(raw):
        from chase.data.dicom import read_dicom_header

        return read_dicom_header(raw)
    if is_wave(raw):
        return Header(0, 0, False, 32)
    try:
        with _open(raw) as image:
            _check_size(image)
            turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
            size = image.size[::-1] if turned else image.size
            return Header(*size, not _is_grey(image), _depth(image.mode), int(getattr(image, "n_frames", 1)))
    except _UNREADABLE as error:
        raise PictureError(_reason(error)) from None


def reshape(picture: Values, channels: int = 0, size: int | Size = 0) -> Values:
    """The picture in grey (1) or colour (3), resized to a square or (height, width); values keep their range.

    Only resizing makes 16-bit values float32: between two values there are others.
    """
    channels = channels or picture.shape[0]
    height, width = (size, size) if isinstance(size, int) else size
    resized = bool(height) and picture.shape[1:] != (height, width)
    if picture.dtype == np.uint8:
        if channels == picture.shape[0] and not resized:
            return picture
        image = as_image(picture).convert("L" if channels == 1 else "RGB")
        if resized:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        return _first_channels(np.asarray(image, dtype=np.uint8))
    if picture.shape[0] == 3 and channels == 1:
        picture = np.tensordot(np.array([0.299, 0.587, 0.114], dtype=np.float32), picture.astype(np.float32), axes=1)[
            None
        ]
    elif picture.shape[0] == 1 and channels == 3:
        picture = np.repeat(picture, 3, axis=0)
    if resized:
        planes = [Image.fromarray(plane.astype(np.float32)) for plane in picture]
        picture = np.stack([np.asarray(p.resize((width, height), Image.Resampling.BILINEAR)) for p in planes])
    return picture


def rescale(values: Values, scale: Scale) -> Values:
    """Values by one scale: 0 for the lowest, 255 for the highest, what lies beyond is clipped."""
    if scale == BYTE:
        return values if values.dtype == np.uint8 else np.clip(np.rint(values), 0, 255).astype(np.uint8)
    low, high = scale
    out = (values.astype(np.float32) - np.float32(low)) * np.float32(255.0 / (high - low))
    return np.clip(out, 0, 255, out=out)


def to_png(picture: Values, window: Scale | None = None, longest: int = 0) -> bytes:
    """An 8-bit PNG for a screen; without a window 8-bit values stay and wider ones span the picture's own range.

    ``longest`` shrinks it so that no side is longer.
    """
    if window is None:
        window = BYTE if picture.dtype == np.uint8 else range_of(picture)
    shown = np.rint(rescale(picture, window)).astype(np.uint8)
    image = as_image(shown)
    if longest and max(image.size) > longest:
        image.thumbnail((longest, longest))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def range_of(picture: Values) -> Scale:
    """The lowest and the highest value, which differ."""
    low, high = float(picture.min()), float(picture.max())
    return low, (high if high > low else low + 1.0)


def as_image(picture: Values) -> Image.Image:
    """uint8 (1 or 3, height, width) as a Pillow image."""
    return Image.fromarray(picture[0] if picture.shape[0] == 1 else np.ascontiguousarray(picture.transpose(1, 2, 0)))


def is_dicom(raw: RAW | None) -> bool:
    """Whether a file is DICOM: by its name, or by the mark in its bytes."""
    if isinstance(raw, Path):
        return raw.suffix.lower() in (".dcm", ".dicom")
    return raw is not None and raw[128:132] == b"DICM"


def _open(raw: RAW | None) -> Image.Image:
    if raw is None or raw == b"":
        raise ValueError("it is empty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # sizes are checked here
        return Image.open(raw if isinstance(raw, Path) else io.BytesIO(raw))


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"it has {image.width}x{image.height} pixels, more than {MOST_PIXELS:,}: make it smaller")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than {MOST_PIXELS:,} pixels: make it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower() if error.strerror != "No such file or directory" else "there is no such file"
    return str(error) or type(error).__name__


def _values(image: Image.Image) -> Values:
    """(c, h, w) of an open image, upright."""
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        return np.asarray(image).astype(np.uint16)[None]
    if image.mode in ("I", "F"):
        wide = np.asarray(image, dtype=np.float32)[None]
        if not np.isfinite(wide).all():
            raise ValueError("it holds values that are not numbers (NaN or infinite)")
        return wide
    grey = _is_grey(image)
    if image.has_transparency_data:
        whole = image.convert("RGBA")
        white = Image.new("RGBA", whole.size, "white")
        image = Image.alpha_composite(white, whole)
    return _first_channels(np.asarray(image.convert("L" if grey else "RGB"), dtype=np.uint8))


def _first_channels(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(h, w) or (h, w, 3) -> (c, h, w)."""
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _is_grey(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.array(image.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in _GREY or image.mode.startswith("I;16")


def _depth(mode: str) -> int:
    return 16 if mode.startswith("I;16") else 32 if mode in ("I", "F") else 8
