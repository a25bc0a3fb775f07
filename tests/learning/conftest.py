"""Tests of the fused steps run with each of their kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compiled_kernel import kernel_with

from chase.learning.fused import network
from chase.learning.native.choice import Kernels, Wanted
from chase.learning.native.kernel import ANY, AVX2


@pytest.fixture(params=["fused", "compiled, AVX2", "compiled, portable"])
def each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``auto`` means, one after the other."""
    kind: Kernels = "fused" if request.param == "fused" else "compiled"

    def chosen(wanted: Wanted) -> Kernels:
        return kind if wanted == "auto" else wanted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "chosen", chosen)
        if kind == "compiled":
            found = kernel_with(AVX2 if request.param.endswith("AVX2") else ANY)
            patch.setattr(network, "kernel", lambda: found)
        yield
