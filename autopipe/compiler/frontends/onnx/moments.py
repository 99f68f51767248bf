"""Expected mean and square of the values in a network of random weights, and each weight's role.

A rough model (independent, normal) is enough: each layer's weights are scaled by the expectation.
Results are rounded, so that the C library of a machine has no say in the weights.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from autopipe.compiler.frontends.onnx.tensors import Proto

Kind = Literal["kernel", "scale", "shift", "mean", "variance", "table"]
Shapes = Mapping[str, tuple[int, ...]]


class Moments(NamedTuple):
    """The first two moments of a value's elements."""

    mean: float
    square: float

    @property
    def variance(self) -> float:
        """The square of the deviation from the mean."""
        return max(self.square - self.mean * self.mean, 0.0)


@dataclass(frozen=True)
class Role:
    """What a weight is for, and what it works on."""

    kind: Kind
    data: Moments
    """Of the values the layer is given."""
    fan_in: int = 1
    """Products that one output element sums over."""


_SLOTS: Mapping[str, Mapping[int, Kind]] = {
    "Conv": {1: "kernel", 2: "shift"},
    "ConvTranspose": {1: "kernel", 2: "shift"},
    "Gemm": {0: "kernel", 1: "kernel", 2: "shift"},
    "MatMul": {0: "kernel", 1: "kernel"},
    "BatchNormalization": {1: "scale", 2: "shift", 3: "mean", 4: "variance"},
    "InstanceNormalization": {1: "scale", 2: "shift"},
    "LayerNormalization": {1: "scale", 2: "shift"},
    "GroupNormalization": {1: "scale", 2: "shift"},
    "RMSNormalization": {1: "scale"},
    "Add": {0: "shift", 1: "shift"},
    "Sub": {1: "shift"},
    "Mul": {0: "scale", 1: "scale"},
    "Gather": {0: "table"},
}
_VIEWS = frozenset({"Identity", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Cast"})
_NORMS = frozenset(op for op in _SLOTS if op.endswith("Normalization")) | {
    "MeanVarianceNormalization"
}
_SHIFT_SQUARE = 0.01
_NORMAL = Moments(0.0, 1.0)
_LIMIT = 1e6


def roles(
    graph: Proto, weights: frozenset[str], shapes: Shapes, scalars: Mapping[str, float]
) -> dict[str, Role]:
    """Return the role of each weight that has one; `scalars` are the constants of the graph."""
    found: dict[str, Role] = {}
    origin = {name: name for name in weights}
    moments = {name: Moments(value, value * value) for name, value in scalars.items()}
    for node in graph.node:
        inputs = list(node.input)
        if node.op_type in _VIEWS and inputs[0] in origin:
            origin[node.output[0]] = origin[inputs[0]]
            continue
        slots = {
            slot: kind
            for slot, kind in _SLOTS.get(node.op_type, {}).items()
            if slot < len(inputs) and inputs[slot] in origin
        }
        data = [moments.get(name, _NORMAL) for name in inputs if name not in origin]
        for slot, kind in slots.items():
            role = Role(kind, data[0] if data else _NORMAL, _fan_in(node, slot, shapes))
            found.setdefault(origin[inputs[slot]], role)
        moments.update(dict.fromkeys(node.output, _after(node, data, slots, shapes)))
    return found


def _after(node: Proto, data: list[Moments], slots: Mapping[int, Kind], shapes: Shapes) -> Moments:
    """Return the moments of a node's output from those of its inputs but weights."""
    shift = _SHIFT_SQUARE if "shift" in slots.values() else 0.0
    if not data or "kernel" in slots.values() or node.op_type in _NORMS:
        mean, square = _NORMAL
    elif node.op_type == "MatMul":
        count = _fan_in(node, 1, shapes)
        mean, square = _product(data)
        mean, square = mean * count, square * count
    elif node.op_type == "Softmax":
        count = shapes.get(node.output[0], (1,))[-1]
        mean, square = 1 / count, 3 / count**2
    else:
        mean, square = _RULES.get(node.op_type, _same)(data)
    bound = min(max(square + shift, 1 / _LIMIT), _LIMIT)
    return Moments(round(mean, 9), round(bound, 9))


def _same(data: list[Moments]) -> Moments:
    return data[0]


def _rectified(data: list[Moments]) -> Moments:
    """Return the moments of max(x, 0) for a normal x."""
    mean, square = data[0]
    deviation = math.sqrt(data[0].variance) or 1e-9
    ratio = mean / deviation
    above = (1 + math.erf(ratio / math.sqrt(2))) / 2
    density = math.exp(-ratio * ratio / 2) / math.sqrt(2 * math.pi) * deviation
    return Moments(mean * above + density, square * above + mean * density)


def _largest(data: list[Moments]) -> Moments:
    """Return the moments of the largest of a few values, which in an image are much alike."""
    mean = data[0].mean + 0.5 * math.sqrt(data[0].variance)
    return Moments(mean, mean * mean + 0.8 * data[0].variance)


def _averaged(data: list[Moments]) -> Moments:
    mean = data[0].mean
    return Moments(mean, mean * mean + 0.6 * data[0].variance)


def _total(data: list[Moments]) -> Moments:
    mean = sum(each.mean for each in data)
    return Moments(mean, mean * mean + sum(each.variance for each in data))


def _difference(data: list[Moments]) -> Moments:
    mean = data[0].mean - sum(each.mean for each in data[1:])
    return Moments(mean, mean * mean + sum(each.variance for each in data))


def _product(data: list[Moments]) -> Moments:
    return Moments(math.prod(x.mean for x in data), math.prod(x.square for x in data))


def _quotient(data: list[Moments]) -> Moments:
    divisor = math.prod(each.square for each in data[1:])
    return Moments(data[0].mean / math.sqrt(divisor), data[0].square / divisor)


def _mixed(data: list[Moments]) -> Moments:
    count = len(data)
    return Moments(sum(x.mean for x in data) / count, sum(x.square for x in data) / count)


def _squared(data: list[Moments]) -> Moments:
    return Moments(data[0].square, 3 * data[0].square ** 2)


def _rooted(data: list[Moments]) -> Moments:
    return Moments(math.sqrt(abs(data[0].mean)), abs(data[0].mean))


def _bounded(data: list[Moments]) -> Moments:  # noqa: ARG001  takes what all rules take
    return Moments(0.5, 0.3)


_RULES: Mapping[str, Callable[[list[Moments]], Moments]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Gelu", "Mish"), _rectified),
    **dict.fromkeys(("HardSwish", "Softplus", "Selu"), _rectified),
    **dict.fromkeys(("MaxPool", "GlobalMaxPool", "ReduceMax"), _largest),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean"), _averaged),
    **dict.fromkeys(("Add", "Sum"), _total),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), _bounded),
    "Sub": _difference,
    "Mul": _product,
    "Div": _quotient,
    "Concat": _mixed,
    "Pow": _squared,
    "Sqrt": _rooted,
}


def _fan_in(node: Proto, slot: int, shapes: Shapes) -> int:
    """Return how many products one output element sums over."""
    shape = shapes.get(node.input[slot], (1,))
    if node.op_type == "Conv":
        return max(1, math.prod(shape[1:]))
    if node.op_type == "ConvTranspose":
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        return max(1, shape[0] // group * math.prod(shape[2:]))
    flag = "transA" if slot == 0 else "transB"
    flipped = any(a.i for a in node.attribute if a.name == flag)
    last = (slot == 0) != flipped
    return max(1, shape[-1] if last or len(shape) == 1 else shape[-2])
