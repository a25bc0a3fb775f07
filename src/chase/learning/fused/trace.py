"""Own networks that have the form of the fused ones: found by tracing them once.

The forms: two convolutions of one odd kernel size and one padding, each with ReLU and 2x2 max-pooling in either order,
then two or more linear layers with ReLU between them; or such linear layers alone. Dropout of 1/2, if any, is after the
first hidden layer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from chase.models.layers import Dropout


class OtherForm(Exception):
    """The network has something that the fused steps do not know."""


@dataclass(frozen=True)
class OwnNet:
    """The layers of an own network that can be fused."""

    convolutions: list[nn.Conv2d]
    linears: list[nn.Linear]
    pad: int
    drops: bool
    """Dropout after the first hidden layer."""


@dataclass(frozen=True)
class Perceptron:
    """Linear layers with ReLU between them."""

    linears: list[nn.Linear]
    drops: bool
    """Dropout after the first hidden layer."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Dropout) or super().is_leaf_module(m, module_qualified_name)


def _pool(kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: bool) -> str:
    def pair(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, tuple | list) else (value, value)

    stride = kernel if stride is None or stride == [] else stride
    if pair(kernel) != (2, 2) or pair(stride) != (2, 2) or pair(padding) != (0, 0) or pair(dilation) != (1, 1):
        raise OtherForm("a pooling other than 2x2")
    if ceil or indices:
        raise OtherForm("a pooling that rounds up or gives places")
    return "pool"


def _flat(start: int = 0, end: int = -1) -> str:
    if start != 1 or end != -1:
        raise OtherForm("a flattening that joins samples")
    return "flat"


def _drop(p: float, training: Any = True) -> str:
    if p == 0.0:
        return ""
    if p != 0.5 or training is not True:
        raise OtherForm("dropout of another rate")
    return "drop"


def _pooled(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> str:
    return _pool(kernel_size, stride, padding, dilation, ceil_mode, return_indices)


MODULES: dict[type[nn.Module], Callable[[Any], str]] = {
    nn.Linear: lambda m: "linear",
    nn.Conv2d: lambda m: "conv",
    nn.MaxPool2d: lambda m: _pool(m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices),
    nn.ReLU: lambda m: "relu",
    nn.Dropout: lambda m: _drop(m.p),
    Dropout: lambda m: _drop(m.p) if not m.channelwise else "channels",
    nn.Identity: lambda m: "",
    nn.Flatten: lambda m: _flat(m.start_dim, m.end_dim),
}
FUNCTIONS: dict[Any, Callable[..., str]] = {
    F.relu: lambda input, inplace=False: "relu",
    torch.relu: lambda input: "relu",
    "relu": lambda input: "relu",
    F.dropout: lambda input, p=0.5, training=True, inplace=False: _drop(p, training),
    F.max_pool2d: _pooled,
    torch.max_pool2d: _pooled,
    torch.flatten: lambda input, start_dim=0, end_dim=-1: _flat(start_dim, end_dim),
    "flatten": lambda input, start_dim=0, end_dim=-1: _flat(start_dim, end_dim),
}
SIZES = {"size", getattr, operator.getitem}
"""What reads the size of a batch before a map is flattened by ``view`` or ``reshape``."""


def steps_of(net: nn.Module) -> list[tuple[str, nn.Module | None]]:
    """The kinds of operation of a network without branches, in order, with their layers."""
    was_training = net.training
    net.train()
    try:
        graph = _Tracer().trace(net)
    except Exception as error:  # whatever a network does that cannot be traced, autograd can still train it
        raise OtherForm(str(error)) from None
    finally:
        net.train(was_training)
    found: list[tuple[str, nn.Module | None]] = []
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder":
            if last is not None:
                raise OtherForm("several inputs")
            last = node
        elif node.op == "output":
            if node.args[0] is not last:
                raise OtherForm("an output that is not the last layer's")
        elif not _reads_size(node):
            found.append(_step(net, node, last))
            last = node
    return [(kind, layer) for kind, layer in found if kind]


def _reads_size(node: fx.Node) -> bool:
    """Whether a node only tells a ``view`` or ``reshape`` how many samples there are."""
    if node.op not in ("call_method", "call_function") or node.target not in SIZES:
        return False
    return all(user.target in SIZES or user.target in ("view", "reshape") for user in node.users)


def _step(net: nn.Module, node: fx.Node, last: fx.Node | None) -> tuple[str, nn.Module | None]:
    tensors = [a for a in node.args if isinstance(a, fx.Node) and not _reads_size(a)]
    if tensors != [last] or node.args[0] is not last or any(isinstance(v, fx.Node) for v in node.kwargs.values()):
        raise OtherForm("a branch")
    if node.op == "call_module":
        module = net.get_submodule(str(node.target))
        if type(module) not in MODULES or has_hooks(module):
            raise OtherForm(f"a layer of kind {type(module).__name__}")
        return MODULES[type(module)](module), module
    if node.op == "call_method" and node.target in ("view", "reshape"):
        if len(node.args) != 3 or node.args[2] != -1 or not isinstance(node.args[1], fx.Node):
            raise OtherForm("a change of shape")
        return "flat", None
    if node.op not in ("call_method", "call_function") or node.target not in FUNCTIONS:
        raise OtherForm(f"an operation {node.target}")
    try:
        return FUNCTIONS[node.target](*node.args, **node.kwargs), None
    except TypeError as error:
        raise OtherForm(str(error)) from None


def has_hooks(module: nn.Module) -> bool:
    """Whether something looks on at a layer."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def own_form(net: nn.Module, size: tuple[int, int]) -> OwnNet | None:
    """The layers of an own network for images of this height and width, if it has the form of the fused ones."""
    if has_hooks(net) or any(True for _ in net.buffers()):
        return None
    try:
        steps = steps_of(net)
    except OtherForm:
        return None
    kinds = [kind for kind, _ in steps]
    linears = _linear_end(steps, 7)
    pooled = (["conv", "relu", "pool"], ["conv", "pool", "relu"])
    if kinds[:3] not in pooled or kinds[3:6] not in pooled or kinds[6:7] != ["flat"] or linears is None:
        return None
    convolutions = [layer for _, layer in steps if isinstance(layer, nn.Conv2d)]
    if not _all_weights(net, [*convolutions, *linears.linears]) or not _fits(convolutions, size):
        return None
    return OwnNet(convolutions, linears.linears, int(convolutions[0].padding[0]), linears.drops)


def perceptron_form(net: nn.Module, shape: tuple[int, ...]) -> Perceptron | None:
    """The layers of an own network for samples of this shape, if it is linear layers with ReLU between them."""
    if has_hooks(net) or any(True for _ in net.buffers()):
        return None
    try:
        steps = steps_of(net)
    except OtherForm:
        return None
    flattens = steps[:1] != [] and steps[0][0] == "flat"
    found = _linear_end(steps, 1 if flattens else 0)
    if found is None or (len(shape) > 1 and not flattens) or found.linears[0].in_features != math.prod(shape):
        return None
    return found if _all_weights(net, [*found.linears]) else None


def _linear_end(steps: list[tuple[str, nn.Module | None]], first: int) -> Perceptron | None:
    """The steps from ``first`` on, if they are two or more linear layers with ReLU between them."""
    rest = [kind for kind, _ in steps[first:]]
    drops = rest[2:3] == ["drop"]
    if drops:
        del rest[2]
    if len(rest) < 3 or rest != ["linear", "relu"] * (len(rest) // 2) + ["linear"]:
        return None
    return Perceptron([layer for _, layer in steps if isinstance(layer, nn.Linear)], drops)


def _all_weights(net: nn.Module, layers: list[nn.Module]) -> bool:
    """Whether these layers have all parameters of the network, each once, with a bias, and all are trained."""
    inside = [parameter for layer in layers for parameter in layer.parameters()]
    own = list(net.parameters())
    same = len(inside) == 2 * len(layers) == len(own) and {id(p) for p in inside} == {id(p) for p in own}
    return same and all(p.requires_grad and p.dtype == torch.float32 for p in own)


def _fits(convolutions: list[nn.Conv2d], size: tuple[int, int]) -> bool:
    """Whether both convolutions are alike and every map has an even number of rows and columns."""
    first, second = convolutions
    k, pad = int(first.kernel_size[0]), first.padding
    for layer in convolutions:
        usual = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.groups == 1
        if not usual or layer.padding_mode != "zeros" or not isinstance(layer.padding, tuple):
            return False
        if layer.kernel_size != (k, k) or layer.padding != pad or pad[0] != pad[1]:
            return False
    if k % 2 == 0 or int(pad[0]) >= k or second.in_channels != first.out_channels:
        return False
    for side in size:
        for _ in convolutions:
            padded = side + 2 * int(pad[0])
            if padded % 2 or padded - k + 1 < 2:
                return False
            side = (padded - k + 1) // 2
    return True
