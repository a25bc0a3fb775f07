"""The compiled kernel for tests; skipped where it was not built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chase.learning.native.kernel import AVX2, Kernel, NoKernel, kernel


def kernel_with(path: int) -> Kernel:
    """The compiled kernel with these instructions; skipped where it is not there."""
    try:
        found = kernel()
    except NoKernel as error:
        pytest.skip(f"the compiled kernel {error}")
    if path == AVX2 and found.path != AVX2:
        pytest.skip("this processor has no AVX2")
    return replace(found, path=path)
