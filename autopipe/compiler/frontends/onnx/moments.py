"""Expected squares of the values in a network of random weights, and the role of each weight.

A rough model (independent, zero-mean, normal) is enough: each layer's weights are scaled by the
expectation, so that errors do not add up. Only exact arithmetic and square roots, so that every
machine comes to the same weights.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from autopipe.compiler.frontends.onnx.tensors import Proto

Kind = Literal["kernel", "scale", "shift", "mean", "variance", "table"]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Role:
    """What a weight is for, and the expected square it should have or fit."""

    kind: Kind
    square: float = 1.0
    """Of a kernel's elements; of the values that a mean or variance describes."""


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
_GAINS = {
    "Relu": 0.5, "LeakyRelu": 0.5, "PRelu": 0.5, "Clip": 0.5, "Elu": 0.6, "Selu": 1.0,
    "Gelu": 0.43, "HardSwish": 0.35, "Mish": 0.45, "Tanh": 0.4, "Erf": 0.4, "Sigmoid": 0.3,
    "MaxPool": 1.5, "AveragePool": 0.6, "GlobalAveragePool": 0.4, "ReduceMean": 0.5,
    "GlobalMaxPool": 3.0,
}  # fmt: skip
_RULES: Mapping[str, Callable[[list[float]], float]] = {
    "Add": sum,
    "Sum": sum,
    "Sub": sum,
    "Mul": math.prod,
    "Concat": lambda data: sum(data) / len(data),
    "Div": lambda data: data[0] / math.prod(data[1:]),
    "Pow": lambda data: 3.0 * data[0] * data[0],
    "Sqrt": lambda data: math.sqrt(data[0]),
}
_SHIFT_SQUARE = 0.01
_LIMIT = 1e6


def roles(
    graph: Proto, weights: frozenset[str], shapes: Shapes, scalars: Mapping[str, float]
) -> dict[str, Role]:
    """Return the role of each weight that has one; `scalars` are the constants of the graph."""
    found: dict[str, Role] = {}
    origin = {name: name for name in weights}
    squares = {name: value * value for name, value in scalars.items()}
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
        data = [squares.get(name, 1.0) for name in inputs if name not in origin]
        for slot, kind in slots.items():
            square = data[0] if data else 1.0
            if kind == "kernel":
                square = 1.0 / (_fan_in(node, slot, shapes) * square)
            found.setdefault(origin[inputs[slot]], Role(kind, square))
        square = _square(node, data, slots, shapes)
        for name in node.output:
            squares[name] = min(max(square, 1 / _LIMIT), _LIMIT)
    return found


def _square(node: Proto, data: list[float], slots: Mapping[int, Kind], shapes: Shapes) -> float:
    """Return the expected square of a node's output from those of its inputs but weights."""
    shift = _SHIFT_SQUARE if "shift" in slots.values() else 0.0
    if not data or "kernel" in slots.values() or node.op_type in _NORMS:
        return 1.0 + shift
    if node.op_type == "MatMul":
        return math.prod(data) * _fan_in(node, 1, shapes)
    if node.op_type == "Softmax":
        return 3.0 / shapes.get(node.output[0], (1,))[-1] ** 2
    if node.op_type in _RULES:
        return _RULES[node.op_type](data) + shift
    return data[0] * _GAINS.get(node.op_type, 1.0)


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
