"""Own networks that have the form of the fused ones: found by tracing them once.

The forms: two convolutions of odd kernel sizes, each with ReLU and 2x2 max-pooling in either order, then one or more
linear layers with ReLU between them; or two or more such linear layers alone. Dropout of 1/2, if any, is after the
first hidden layer, of elements of a convolution before they are pooled, or of whole channels of the second convolution.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import fx, nn

from chase.learning.fused.form import Form
from chase.learning.fused.sizes import Pair, sizes_read
from chase.models.layers import Dropout

LATER = {"flat to a width": "flat", "no channels": ""}
"""Kinds of operation that version 1 of the forms did not know, and what they do."""
MOST_SECOND = 1 << 16
"""Weights of the second convolution with which hand-written steps gain; with 73,728 they can be slower without the
compiled kernel."""
MOST_WEIGHTS = 1 << 21
"""The same for all weights."""
Steps = list[tuple[str, nn.Module | None]]
"""Kinds of operation, with their layers."""


class OtherForm(Exception):
    """The network has something that the fused steps do not know."""


@dataclass(frozen=True)
class OwnNet:
    """The layers of an own network that can be fused."""

    convolutions: list[nn.Conv2d]
    linears: list[nn.Linear]
    pads: Pair
    form: Form
    since: int
    """The first version of the forms (``OWN_FORMS``) that has this one."""


@dataclass(frozen=True)
class Perceptron:
    """Linear layers with ReLU between them."""

    linears: list[nn.Linear]
    drops: bool
    """Dropout after the first hidden layer."""
    since: int = 1


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


def _drop(p: float, training: Any = True, kind: str = "drop") -> str:
    if p == 0.0:
        return "" if kind == "drop" else "no channels"
    if p != 0.5 or training is not True:
        raise OtherForm("dropout of another rate")
    return kind


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
    nn.Dropout2d: lambda m: _drop(m.p, kind="channels"),
    Dropout: lambda m: _drop(m.p, kind="channels" if m.channelwise else "drop"),
    nn.Identity: lambda m: "",
    nn.Flatten: lambda m: _flat(m.start_dim, m.end_dim),
}
FUNCTIONS: dict[Any, Callable[..., str]] = {
    F.relu: lambda input, inplace=False: "relu",
    torch.relu: lambda input: "relu",
    "relu": lambda input: "relu",
    F.dropout: lambda input, p=0.5, training=True, inplace=False: _drop(p, training),
    F.dropout2d: lambda input, p=0.5, training=True, inplace=False: _drop(p, training, "channels"),
    F.max_pool2d: _pooled,
    torch.max_pool2d: _pooled,
    torch.flatten: lambda input, start_dim=0, end_dim=-1: _flat(start_dim, end_dim),
    "flatten": lambda input, start_dim=0, end_dim=-1: _flat(start_dim, end_dim),
}
SIZES = {"size", getattr, operator.getitem}
"""What reads the size of a batch before a map is flattened by ``view`` or ``reshape``."""


def steps_of(net: nn.Module) -> Steps:
    """The kinds of operation of a network without branches, in order, with their layers."""
    was_training = net.training
    net.train()
    try:
        graph = _Tracer().trace(net)
    except Exception as error:  # whatever a network does that cannot be traced, autograd can still train it
        raise OtherForm(str(error)) from None
    finally:
        net.train(was_training)
    found: Steps = []
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
        if type(module) not in MODULES:
            raise OtherForm(f"a layer of kind {type(module).__name__}")
        return MODULES[type(module)](module), module
    if node.op == "call_method" and node.target in ("view", "reshape"):
        if len(node.args) != 3 or not isinstance(node.args[2], int):
            raise OtherForm("a change of shape")
        rows, width = node.args[1:]
        if isinstance(rows, fx.Node):
            return "flat" if width == -1 else "flat to a width", None
        if rows != -1 or width == -1:
            raise OtherForm("a change of shape")
        return "flat to a width", None
    if node.op not in ("call_method", "call_function") or node.target not in FUNCTIONS:
        raise OtherForm(f"an operation {node.target}")
    try:
        return FUNCTIONS[node.target](*node.args, **node.kwargs), None
    except TypeError as error:
        raise OtherForm(str(error)) from None


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_LOOKED_AT: WeakKeyDictionary[nn.Module, tuple[list[dict[int, Any]], list[nn.Parameter]]] = WeakKeyDictionary()
"""Where the hooks of a network's layers are kept, and its parameters: to collect them takes ten times as long."""


def has_hooks(net: nn.Module) -> bool:
    """Whether something looks on at a layer or a parameter; layers do not change after it is asked."""
    if net not in _LOOKED_AT:
        _LOOKED_AT[net] = [getattr(m, name) for m in net.modules() for name in HOOKS], list(net.parameters())
    hooks, parameters = _LOOKED_AT[net]
    return any(hooks) or any(getattr(p, name) for p in parameters for name in PARAMETER_HOOKS)


def form_of(net: nn.Module, shape: tuple[int, ...]) -> OwnNet | Perceptron | None:
    """The layers of an own network for samples of this shape, if it has one of the forms."""
    if any(True for _ in net.buffers()):
        return None
    try:
        steps = steps_of(net)
    except OtherForm:
        return None
    since = 2 if any(kind in LATER for kind, _ in steps) else 1
    steps = [(LATER.get(kind, kind), layer) for kind, layer in steps if kind != "no channels"]
    found = _perceptron(steps, shape, since) or _with_convolutions(steps, shape, since)
    if found is None or not _all_weights(net, [*getattr(found, "convolutions", ()), *found.linears]):
        return None
    return found


def _perceptron(steps: Steps, shape: tuple[int, ...], since: int) -> Perceptron | None:
    flattens = steps[:1] != [] and steps[0][0] == "flat"
    drops = _dropout_of_linears(steps[1:] if flattens else steps, 2)
    if drops is None or (len(shape) > 1 and not flattens):
        return None
    linears = _linears(steps)
    return Perceptron(linears, drops, since) if linears[0].in_features == math.prod(shape) else None


def _with_convolutions(steps: Steps, shape: tuple[int, ...], since: int) -> OwnNet | None:
    kinds = [kind for kind, _ in steps]
    convolutions = [layer for _, layer in steps if isinstance(layer, nn.Conv2d)]
    if len(shape) != 3 or kinds[:1] != ["conv"] or kinds.count("conv") != 2 or "flat" not in kinds:
        return None
    second, flat = kinds.index("conv", 1), kinds.index("flat")
    first_drop, second_drop = _dropout_of_block(kinds[:second]), _dropout_of_block(kinds[second:flat])
    drops = _dropout_of_linears(steps[flat + 1 :], 1)
    if first_drop in (None, "channel") or second_drop is None or drops is None:
        return None
    linears, pads = _linears(steps), _pads(convolutions)
    sizes = None if pads is None else sizes_read(convolutions, (shape[1], shape[2]), pads)
    if pads is None or sizes is None or convolutions[0].in_channels != shape[0]:
        return None
    if convolutions[1].in_channels != convolutions[0].out_channels:
        return None
    if linears[0].in_features != convolutions[1].out_channels * math.prod(sizes.pooled):
        return None
    form = Form(first_drop == "element", second_drop, drops)
    alike = convolutions[0].kernel_size == convolutions[1].kernel_size
    alike = alike and convolutions[0].padding == convolutions[1].padding == (pads[0], pads[0])
    usual = alike and sizes.whole and len(linears) > 1 and form == Form(False, "none", drops)
    since = since if usual else 2
    return OwnNet(convolutions, linears, pads, form, since) if since == 1 or _small(convolutions, linears) else None


def _small(convolutions: list[nn.Conv2d], linears: list[nn.Linear]) -> bool:
    """Whether hand-written steps are clearly faster than autograd; networks of version 1 have them in any case."""
    second = convolutions[1]
    total = sum(layer.weight.numel() for layer in convolutions) + sum(layer.weight.numel() for layer in linears)
    return second.kernel_size[0] <= 5 and second.weight.numel() <= MOST_SECOND and total <= MOST_WEIGHTS


def _linears(steps: Steps) -> list[nn.Linear]:
    return [layer for _, layer in steps if isinstance(layer, nn.Linear)]


def _dropout_of_block(kinds: list[str]) -> Literal["none", "element", "channel"] | None:
    """Where a convolution drops, None where its block has another form.

    Whole channels can be dropped at any place of the block: the factors 0 and 2 commute with ReLU and pooling.
    """
    places = [i for i, kind in enumerate(kinds) if kind in ("drop", "channels")]
    rest = [kind for kind in kinds if kind not in ("drop", "channels")]
    if rest not in (["conv", "relu", "pool"], ["conv", "pool", "relu"]) or len(places) > 1:
        return None
    if not places:
        return "none"
    if kinds[places[0]] == "channels":
        return "channel"
    return "element" if places[0] < kinds.index("pool") else None


def _dropout_of_linears(steps: Steps, least: int) -> bool | None:
    """Whether these linear layers with ReLU between them drop after the first; None for another form or too few."""
    kinds = [kind for kind, _ in steps]
    drops = kinds[2:3] == ["drop"]
    if drops:
        del kinds[2]
    if len(kinds) < 2 * least - 1 or kinds != ["linear", "relu"] * (len(kinds) // 2) + ["linear"]:
        return None
    return drops


def _all_weights(net: nn.Module, layers: list[nn.Module]) -> bool:
    """Whether these layers have all parameters of the network, each once, with a bias, and all are trained."""
    inside = [parameter for layer in layers for parameter in layer.parameters()]
    own = list(net.parameters())
    same = len(inside) == 2 * len(layers) == len(own) and {id(p) for p in inside} == {id(p) for p in own}
    return same and all(p.requires_grad and p.dtype == torch.float32 for p in own)


def _pads(convolutions: list[nn.Conv2d]) -> Pair | None:
    """The padding of each convolution; None where one has a form that is not known."""
    found = []
    for layer in convolutions:
        k = int(layer.kernel_size[0])
        named: dict[Any, Pair] = {"same": (k // 2, k // 2), "valid": (0, 0)}
        pad = layer.padding if isinstance(layer.padding, tuple) else named[layer.padding]
        usual = layer.stride == (1, 1) and layer.dilation == (1, 1) and layer.groups == 1
        if not usual or layer.padding_mode != "zeros" or layer.kernel_size != (k, k):
            return None
        if k % 2 == 0 or pad[0] != pad[1] or int(pad[0]) >= k:
            return None
        found.append(int(pad[0]))
    return found[0], found[1]
