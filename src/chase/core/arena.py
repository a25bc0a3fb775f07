"""Named arrays in memory that several processes share.

The memory belongs to an unnamed file: it is handed to a child by its descriptor and is gone when
the last process that has it ends, however that ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from chase.core.weights import Array, Arrays

ALIGN = 64
Layout = dict[str, dict[str, Any]]
"""Per array: dtype, shape, offset; plain values, so that it can be sent as JSON."""


def _unnamed_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("chase", 0)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _layout(arrays: Arrays) -> tuple[Layout, int]:
    layout: Layout = {}
    at = 0
    for name, array in arrays.items():
        layout[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": at}
        at += -(-array.nbytes // ALIGN) * ALIGN
    return layout, max(at, ALIGN)


@dataclass(frozen=True)
class Arena:
    """A descriptor, what lies where, and the arrays as views."""

    descriptor: int
    layout: Layout
    arrays: dict[str, Array]

    @classmethod
    def holding(cls, arrays: Arrays) -> Arena:
        """New shared memory with a copy of the arrays."""
        layout, size = _layout(arrays)
        arena = cls.attach(_unnamed_file(size), layout)
        for name, array in arrays.items():
            arena.arrays[name][...] = array
        return arena

    @classmethod
    def attach(cls, descriptor: int, layout: Layout) -> Arena:
        """The arrays behind a descriptor."""
        memory = mmap.mmap(descriptor, 0)
        views = {
            name: np.ndarray(tuple(at["shape"]), np.dtype(at["dtype"]), memory, at["offset"])
            for name, at in layout.items()
        }
        return cls(descriptor, layout, views)

    def close(self) -> None:
        """Give the descriptor back; views stay valid until they are gone."""
        os.close(self.descriptor)
