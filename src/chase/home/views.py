"""What a person sees of a sample: an image as PNG, a text as text.

Where a home keeps original files, those are shown; otherwise the decoded sample is.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, safe_open

from chase.core.errors import LabelError
from chase.data.resident import Column, row_cells
from chase.home.home import Home
from chase.home.originals import find_original

AS_IS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
"""Files that browsers show as they are; other images become PNG."""
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Shown:
    """A sample ready for the screen."""

    media: str
    body: bytes


class SampleView(Protocol):
    """Shows samples by id."""

    def show(self, sample: int) -> Shown:
        """The sample, or ``LabelError`` if there is none."""
        ...


def png(image: NDArray[np.uint8]) -> bytes:
    """A uint8 image (channels, height, width) as PNG: grey for one channel, colour for three."""
    channels = image.shape[0]
    if channels not in (1, 3):
        raise LabelError(f"an image of {channels} channels cannot be shown; 1 or 3 can")
    picture = Image.fromarray(image[0] if channels == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def plain_text(tokens: NDArray[Any], alphabet: str) -> str:
    """Tokens (length,) as characters; one beyond the alphabet is shown as a replacement character."""
    return "".join(alphabet[t] if 0 <= t < len(alphabet) else "\N{REPLACEMENT CHARACTER}" for t in tokens.tolist())


def original(home: Path, root: Path, name: str) -> Shown | None:
    """The original file of a sample, None if there is none below ``root``."""
    path = find_original(home, root, name)
    if path is None:
        return None
    suffix = path.suffix.lower()
    if suffix in AS_IS:
        return Shown(AS_IS[suffix], path.read_bytes())
    if suffix in (".txt", ".md", ".csv"):
        return Shown(TEXT, path.read_text(encoding="utf-8", errors="replace").encode())
    file = io.BytesIO()
    try:
        with Image.open(path) as picture:
            picture.convert("RGB").save(file, "PNG")
    except (OSError, ValueError) as error:
        raise LabelError(f"{path} cannot be shown: {error}") from None
    return Shown("image/png", file.getvalue())


class HomeView:
    """Shows the samples of a home, one row read at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open()
        self.show = lru_cache(maxsize=512)(self._show)

    def _open(self) -> None:
        file = self._home.path / "samples.safetensors"
        try:
            held: Any = safe_open(file, framework="numpy")
            self._file, self._ids = held, held.get_tensor("ids")
        except (SafetensorError, OSError) as error:
            raise LabelError(f"cannot read {file}: {error}") from None

    def _show(self, sample: int) -> Shown:
        card, name = self._home.card, self._home.inbox.sample_name(sample)
        row = int(np.searchsorted(self._ids, sample))
        if name is not None and (row >= self._ids.size or self._ids[row] != sample):
            self._open()  # the sample may have been added since the file was opened
            row = int(np.searchsorted(self._ids, sample))
        if name is None or row >= self._ids.size or self._ids[row] != sample:
            raise LabelError(f"there is no sample {sample} here")
        if card.originals:
            found = original(self._home.path, Path(card.originals), name)
            if found is not None:
                return found
        inputs = self._file.get_slice("inputs")[row : row + 1][0]
        if card.kind in ("table", "vectors"):
            columns = tuple(Column.from_json(column) for column in card.columns)
            return Shown(TEXT, "\n".join(f"{key}: {value}" for key, value in row_cells(inputs, columns)).encode())
        if card.kind == "text":
            return Shown(TEXT, plain_text(inputs, card.alphabet).encode())
        return Shown("image/png", png(inputs))
