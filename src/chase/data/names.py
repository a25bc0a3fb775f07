"""Many short texts in two arrays: the users' own names of samples, or their texts.

They are kept on disk and memory-mapped like the samples themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray


class Names(Sequence[str]):
    """Texts by row."""

    def __init__(self, octets: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.octets, self.ends = octets, ends
        if ends.size and int(ends[-1]) != octets.size:
            raise ValueError("texts and their end positions do not match")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """Pack texts; what is no valid Unicode is replaced."""
        blobs = [text.encode("utf-8", "replace") for text in texts]
        ends = np.cumsum([len(blob) for blob in blobs], dtype=np.int64)
        return cls(np.frombuffer(b"".join(blobs), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return int(self.ends.size)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[r] for r in range(*row.indices(len(self)))]
        row = row + len(self) if row < 0 else row
        if not 0 <= row < len(self):
            raise IndexError(row)
        start = int(self.ends[row - 1]) if row else 0
        return self.octets[start : int(self.ends[row])].tobytes().decode("utf-8")

    def take(self, rows: NDArray[np.int64]) -> Names:
        """Only these rows, in this order."""
        return Names.of(self[row] for row in rows.tolist())
