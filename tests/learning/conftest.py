"""Tests of the fused steps run with each of their kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compiled_kernel import kernel_with

from chase.learning.fused import network
from chase.learning.native.choice import Kernels, Wanted
from chase.learning.native.kernel import PATHS


@pytest.fixture(params=["fused", *PATHS.values()])
def each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``auto`` means, one after the other."""
    kind: Kernels = "fused" if request.param == "fused" else "compiled"

    def chosen(wanted: Wanted) -> Kernels:
        return kind if wanted == "auto" else wanted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "chosen", chosen)
        if kind == "compiled":
            found = kernel_with(next(path for path, name in PATHS.items() if name == request.param))
            patch.setattr(network, "kernel", lambda: found)
        yield
