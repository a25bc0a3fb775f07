"""What a person sees of a sample: an image as a picture, a text as text, a table row as lines of text.

Where a home keeps original files, those are shown, read by the same code as for training (``chase.data.pictures``):
upright, transparent parts white, the first frame, and pictures of more than 8 bits in a window of their values, by
default the scale that training uses. Otherwise the decoded sample is shown.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, safe_open

from chase.core.errors import LabelError
from chase.data.kinds import Column, row_cells
from chase.data.pictures import BYTE, PictureError, Scale, range_of, read_picture, to_png
from chase.home.home import Home, HomeCard
from chase.home.originals import find_original

AS_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Files that browsers show as training reads them, if they are 8-bit, opaque and of one frame."""
HELD_BYTES = 16_000_000
READERS = 2
"""Pictures read at once: the page's process stays small also where pictures are large."""
TEXT = "text/plain; charset=utf-8"
TEXTS = (".txt", ".md", ".csv")


@dataclass(frozen=True)
class Shown:
    """A sample ready for the screen."""

    media: str
    body: bytes
    range: tuple[float, float, float, float] | None = None
    """For pictures of more than 8 bits: lowest and highest value, and the window that is shown."""

    @property
    def mark(self) -> str:
        """A short hash of what is shown."""
        return hashlib.sha256(self.body).hexdigest()[:16]


class SampleView(Protocol):
    """Shows samples by id."""

    def show(self, sample: int, window: Scale | None = None) -> Shown:
        """The sample, or ``LabelError`` if there is none."""
        ...


def plain_text(tokens: NDArray[Any], alphabet: str) -> str:
    """Tokens (length,) as characters; one beyond the alphabet is shown as a replacement character."""
    return "".join(alphabet[t] if 0 <= t < len(alphabet) else "\N{REPLACEMENT CHARACTER}" for t in tokens.tolist())


def original(home: Path, root: Path, name: str, scale: Scale = BYTE, window: Scale | None = None) -> Shown | None:
    """The original file of a sample, None if there is none below ``root``."""
    path = find_original(home, root, name)
    if path is None:
        return None
    if path.suffix.lower() in TEXTS:
        return Shown(TEXT, path.read_text(encoding="utf-8", errors="replace").encode())
    media = _as_is(path)
    if media:
        return Shown(media, path.read_bytes())
    try:
        return picture(read_picture(path), scale, window)
    except PictureError as error:
        raise LabelError(f"{name} cannot be shown: {error}") from None


def _as_is(path: Path) -> str:
    """The media type of a file that a browser shows as training reads it, else nothing."""
    try:
        with Image.open(path) as image:
            plain = image.mode in ("L", "RGB") and not image.has_transparency_data
            if not plain or getattr(image, "n_frames", 1) != 1:
                return ""
            image.draft("L", (image.width // 8, image.height // 8))  # JPEG: all of the file, little of the memory
            image.load()  # browsers show half of a file that was cut short, training refuses it
            return AS_IS.get(str(image.format), "")
    except Exception:  # Pillow raises many kinds; the one reader of pictures says what is wrong
        return ""


def picture(values: NDArray[Any], scale: Scale = BYTE, window: Scale | None = None) -> Shown:
    """Values (channels, height, width) as PNG; wider than 8 bits in a window, by default the scale of training."""
    if values.shape[0] not in (1, 3):
        raise LabelError(f"an image of {values.shape[0]} channels cannot be shown; 1 or 3 can")
    if values.dtype == np.uint8:
        return Shown("image/png", to_png(values))
    whole = range_of(values)
    used = window or (scale if scale != BYTE else whole)
    return Shown("image/png", to_png(values, used), (*whole, *used))


class HomeView:
    """Shows the samples of a home, one row read at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open()
        self._held: OrderedDict[tuple[int, Scale | None], Shown] = OrderedDict()
        self._lock, self._reading = Lock(), BoundedSemaphore(READERS)

    def _open(self) -> None:
        file = self._home.path / "samples.safetensors"
        try:
            held: Any = safe_open(file, framework="numpy")
            self._file, self._ids = held, held.get_tensor("ids")
        except (SafetensorError, OSError) as error:
            raise LabelError(f"cannot read {file}: {error}") from None

    def show(self, sample: int, window: Scale | None = None) -> Shown:
        """The sample; the last ones are held in memory, as many as fit into ``HELD_BYTES``."""
        with self._lock:
            if (sample, window) in self._held:
                self._held.move_to_end((sample, window))
                return self._held[sample, window]
        with self._reading:
            found = self._show(sample, window)
        with self._lock:
            self._held[sample, window] = found
            while sum(len(one.body) for one in self._held.values()) > HELD_BYTES and len(self._held) > 1:
                self._held.popitem(last=False)
        return found

    def _show(self, sample: int, window: Scale | None = None) -> Shown:
        card, name = self._home.card, self._home.inbox.sample_name(sample)
        row = int(np.searchsorted(self._ids, sample))
        if name is not None and (row >= self._ids.size or self._ids[row] != sample):
            self._open()  # the sample may have been added since the file was opened
            row = int(np.searchsorted(self._ids, sample))
        if name is None or row >= self._ids.size or self._ids[row] != sample:
            raise LabelError(f"there is no sample {sample}")
        if card.originals:
            found = original(self._home.path, Path(card.originals), name, card.scale, window)
            if found is not None:
                return found
        return decoded(card, self._file.get_slice("inputs")[row : row + 1][0], window)


def decoded(card: HomeCard, inputs: NDArray[Any], window: Scale | None = None) -> Shown:
    """A sample as training holds it, made visible."""
    if card.kind == "image":
        return picture(inputs, BYTE if inputs.dtype == np.uint8 else (0.0, 255.0), window)
    if card.kind == "text":
        return Shown(TEXT, plain_text(inputs, card.alphabet).encode())
    columns = tuple(Column.from_json(column) for column in card.columns)
    return Shown(TEXT, "\n".join(f"{key}: {value}" for key, value in row_cells(inputs, columns)).encode())
