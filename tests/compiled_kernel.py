"""The compiled kernel for tests; skipped where it was not built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chase.learning.native.kernel import PATHS, Kernel, NoKernel, kernel


def kernel_with(path: int) -> Kernel:
    """The compiled kernel with these instructions; skipped where it is not there."""
    try:
        found = kernel()
    except NoKernel as error:
        pytest.skip(f"the compiled kernel {error}")
    if path > found.path:
        pytest.skip(f"this processor has no {PATHS[path]}")
    return replace(found, path=path)
