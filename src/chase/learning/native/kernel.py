"""The compiled kernel: a C library without Python in it, called through ctypes.

It is built when the package is installed, where there is a C compiler (``setup.py``); everything works without it, by
the fused steps in torch. ``net.h`` says what the structures mean.
"""

from __future__ import annotations

import ctypes
import hashlib
from ctypes import POINTER, Structure, c_double, c_float, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NATIVE = Path(__file__).parent
LIBRARY = "_kernel.so"
SLACK = 64
"""Floats of room after every buffer of the kernel: vectors may be read beyond its end."""
MOST_FLOATS = 1 << 30
"""A buffer is smaller than this: places in it are numbers of 32 bits."""
AVX512, AVX2, ANY = 2, 1, 0
PATHS = {AVX512: "AVX-512", AVX2: "AVX2", ANY: "portable"}
"""Sets of instructions. The first two give the same bits: a run may begin with one and continue with the other."""


class Convolution(Structure):
    """One pooled convolution."""

    _fields_ = (
        *((name, c_int64) for name in ("channels", "height", "width", "out", "kernel", "rows", "columns", "stride")),
        *((name, c_void_p) for name in ("weight", "bias", "packed", "gradient", "bias_gradient", "chosen", "bytes")),
    )


class Linear(Structure):
    """One linear layer."""

    _fields_ = (
        *((name, c_int64) for name in ("in", "out")),
        *((name, c_void_p) for name in ("weight", "bias", "velocity", "bias_gradient", "values", "gradient")),
    )


class Net(Structure):
    """A network with the buffers of one batch size."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "pad", "image_stride", "linears", "small")),
        ("first", Convolution),
        ("second", Convolution),
        ("linear", POINTER(Linear)),
        *((name, c_void_p) for name in ("images", "middle", "middle_images", "middle_gradient", "flat")),
        *((name, c_void_p) for name in ("flat_gradient", "row", "sums", "wide", "dropped", "planes", "own_planes")),
        *((name, c_void_p) for name in ("places", "window_places", "counts", "channel_bytes", "unit_bytes")),
        *((name, c_void_p) for name in ("small_theta", "small_velocity", "small_gradient")),
        *((name, c_float) for name in ("flat_scale", "first_scale", "second_scale")),
    )


class Sgd(Structure):
    """Learning rate, momentum, weight decay."""

    _fields_ = (("rate", c_float), ("momentum", c_float), ("decay", c_float))


class SoftStructure(Structure):
    """A teacher's softened outputs."""

    _fields_ = (("targets", c_void_p), ("weight", c_float), ("temperature", c_float))


class Steps(Structure):
    """Several steps of one size."""

    _fields_ = (
        *((name, c_int64) for name in ("count", "labelled", "watched")),
        *((name, c_void_p) for name in ("samples", "others")),
        *((name, c_int64) for name in ("total", "others_total")),
        *((name, c_void_p) for name in ("positions", "labels", "picks", "directions", "aligned", "masks", "masks_to")),
        ("mask_bytes", c_int64),
        ("losses", c_void_p),
        ("soft", SoftStructure),
        ("mu", c_float),
    )


SIGNATURES = {
    "chase_best_path": ([], c_int64),
    "chase_fill": ([c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_int64], c_int64),
    "chase_pack": ([c_void_p, c_int64], None),
    "chase_forward": ([c_void_p, c_int64, c_int64, c_int64], None),
    "chase_loss": ([c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p, c_float, c_void_p, c_void_p], c_double),
    "chase_backward": ([c_void_p, c_int64, c_void_p, c_void_p, c_int64], None),
    "chase_steps": ([c_void_p, c_int64, c_void_p, c_void_p], c_int64),
    "chase_prepare": ([c_void_p, c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p], None),
    "chase_lay_out": ([c_void_p, c_int64, c_void_p, c_int64, c_void_p], None),
    "chase_passes": ([c_void_p, c_int64, c_void_p, c_int64, c_void_p], None),
}


@dataclass(frozen=True)
class Kernel:
    """The library and the instructions that it uses on this machine."""

    library: ctypes.CDLL
    path: int

    @property
    def name(self) -> str:
        """For people: which instructions it uses."""
        return PATHS[self.path]


class NoKernel(Exception):
    """Why there is no compiled kernel; the text continues 'the compiled kernel ...'."""


def sources_hash(native: Path = NATIVE) -> str:
    """What the sources of the kernel are, for ``setup.py`` and for the check of what was built."""
    found = hashlib.sha256()
    for path in sorted([*native.glob("*.c"), *native.glob("*.h")]):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def load(path: Path) -> Kernel:
    """The kernel in a file; raises ``NoKernel``."""
    if not path.exists():
        raise NoKernel("was not built: install chase again on a machine with a C compiler (gcc or clang)")
    try:
        library = ctypes.CDLL(str(path))
        library.chase_sources.restype = ctypes.c_char_p
        if library.chase_sources().decode() != sources_hash():
            raise NoKernel("was built from other sources than those that are here: install chase again")
        for name, (arguments, result) in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, result
    except (OSError, AttributeError) as error:
        raise NoKernel(f"cannot be loaded ({error}): install chase again on this machine") from None
    return Kernel(library, int(library.chase_best_path()))


@cache
def _looked_up() -> Kernel | NoKernel:
    try:
        return load(Path(__file__).with_name(LIBRARY))
    except NoKernel as error:
        return error


def kernel() -> Kernel:
    """The compiled kernel of this installation; raises ``NoKernel`` with the reason where there is none."""
    found = _looked_up()
    if isinstance(found, NoKernel):
        raise NoKernel(*found.args)
    return found
