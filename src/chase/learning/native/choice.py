"""Which kernels compute the steps of a small network: compiled, fused in torch, or autograd's; of which own ones."""

from __future__ import annotations

from typing import Literal

from chase.learning.native.kernel import ANY, NoKernel, kernel

Kernels = Literal["compiled", "fused", "plain"]
Wanted = Literal["auto", "compiled", "fused", "plain"]
OWN_FORMS = 2
"""Version of the forms of own networks that have hand-written steps (``chase.learning.fused.trace``).

1: two convolutions of one kernel size and padding (in numbers) with even sides of all maps, two or more linear layers,
dropout after the first hidden layer only, a flattening that does not name the width; and perceptrons of that kind.
2: all that ``trace`` says. Networks of later forms were trained by autograd before, which rounds differently, so a run
keeps the version that it began with.
"""

AUTOGRAD_ONLY = frozenset({"vgg19", "vgg19-projection", "resnet-gn", "char-lstm", "mlp", "text-bag"})
"""Networks of ``models.catalog`` that no kernel computes."""


def chosen(wanted: Wanted) -> Kernels:
    """What is used on this machine; raises ``NoKernel`` where the compiled kernel is wanted and there is none.

    ``auto`` takes the compiled kernel on processors with AVX2 and FMA; on others the products of torch are faster.
    """
    if wanted == "auto":
        try:
            return "fused" if kernel().path == ANY else "compiled"
        except NoKernel:
            return "fused"
    if wanted == "compiled":
        kernel()
    return wanted


def here() -> str:
    """What ``auto`` means on this machine, and why, as a sentence without a full stop."""
    try:
        found = kernel()
    except NoKernel as error:
        return f"auto = fused, because the compiled kernel {error}"
    if found.path == ANY:
        return "auto = fused, because this processor has no AVX2, without which the compiled kernel is slower"
    return f"auto = compiled, for processors with {found.name}"
