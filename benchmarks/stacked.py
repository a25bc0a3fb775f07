"""Would one batched computation over many small clients be faster than clients one after another?

`torch.func.vmap` over the stacked parameters of ``clients`` clients, a batch of ten each, against the plain steps
of the same clients in turn. Run: python -m benchmarks.stacked
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap

from chase.learning.fused import fused_for
from chase.learning.optimisers import FlatSGD
from chase.models.catalog import NetSpec, build
from chase.models.layers import MaskSource

NETS = (("tiny-cnn", (1, 8, 8)), ("mnist-cnn", (1, 28, 28)), ("cifar-cnn", (3, 32, 32)))


def seconds(run: object, repeats: int = 15) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(name: str, shape: tuple[int, ...], clients: int) -> dict[str, float]:
    """Seconds of one step of all clients: one after another (autograd, and fused where there is one) and stacked."""
    nets = [build(NetSpec(name, shape, 10, 0.0), seed) for seed in range(clients)]
    x, y = torch.randn(clients, 10, *shape), torch.randint(0, 10, (clients, 10))
    optimisers = [FlatSGD(list(net.parameters()), 1e-3, 0.5, 0.0) for net in nets]

    def in_turn() -> None:
        for net, optimiser, xs, ys in zip(nets, optimisers, x, y, strict=True):
            F.cross_entropy(net(xs), ys).backward()
            optimiser.step()

    parameters, buffers = stack_module_state(nets)  # type: ignore[arg-type]
    velocity = {key: torch.zeros_like(value) for key, value in parameters.items()}

    def loss(p: dict[str, Tensor], b: dict[str, Tensor], xs: Tensor, ys: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(nets[0], (p, b), (xs,)), ys)

    gradients = vmap(grad(loss))

    def stacked() -> None:
        found = gradients(parameters, buffers, x, y)
        with torch.no_grad():
            for key, value in parameters.items():
                velocity[key].mul_(0.5).add_(found[key])
                value.sub_(velocity[key], alpha=1e-3)

    result = {"in_turn": seconds(in_turn), "stacked": seconds(stacked)}
    fused = fused_for(build(NetSpec(name, shape, 10, 0.0), 0))
    if fused is not None:
        bits, prepared = MaskSource(0), [fused.prepare(xs) for xs in x]
        take = torch.arange(10).numpy()

        def fused_in_turn() -> None:
            for xs, ys in zip(prepared, y, strict=True):
                fused.step([(xs, take)], ys, bits, None, 0.0, (1e-3, 0.5, 0.0), False)

        result["fused"] = seconds(fused_in_turn)
    return result


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, shape in NETS:
        for clients in (10, 100):
            row = compare(name, shape, clients)
            best = min(row["in_turn"], row.get("fused", row["in_turn"]))
            print(
                f"{name:10} {clients:4d} clients ",
                {k: f"{1e6 * v / clients:.0f} us a step" for k, v in row.items()},
                f"stacked is {best / row['stacked']:.2f} times the best in turn",
            )
