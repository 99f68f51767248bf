"""The role of each weight of an ONNX graph, and the moments of the values in between."""

import math
from collections.abc import Callable, Mapping

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.moments import NORMAL, Kind, Moments, Role, bounded
from autopipe.compiler.frontends.onnx.tensors import Proto, graphs

Shapes = Mapping[str, tuple[int, ...]]

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


def roles(
    graph: Proto, weights: frozenset[str], shapes: Shapes, scalars: Mapping[str, float]
) -> dict[str, Role]:
    """Return the role of each weight that has one; `scalars` are the constants of the graph."""
    found: dict[str, Role] = {}
    origin = {name: name for name in weights}
    moments = {name: Moments(value, value * value) for name, value in scalars.items()}
    for node in (node for inner in graphs(graph) for node in inner.node):
        inputs = list(node.input)
        if node.op_type in _VIEWS and inputs[0] in origin:
            origin[node.output[0]] = origin[inputs[0]]
            continue
        slots = {
            slot: kind
            for slot, kind in _SLOTS.get(node.op_type, {}).items()
            if slot < len(inputs) and inputs[slot] in origin
        }
        data = [moments.get(name, NORMAL) for name in inputs if name not in origin]
        for slot, kind in slots.items():
            role = Role(kind, data[0] if data else NORMAL, _fan_in(node, slot, shapes))
            found.setdefault(origin[inputs[slot]], role)
        moments.update(dict.fromkeys(node.output, _after(node, data, slots, shapes)))
    return found


def _after(node: Proto, data: list[Moments], slots: Mapping[int, Kind], shapes: Shapes) -> Moments:
    """Return the moments of a node's output from those of its inputs but weights."""
    shift = _SHIFT_SQUARE if "shift" in slots.values() else 0.0
    if not data or "kernel" in slots.values() or node.op_type in _NORMS:
        mean, square = NORMAL
    elif node.op_type == "MatMul":
        count = _fan_in(node, 1, shapes)
        mean, square = rules.product(data)
        mean, square = mean * count, square * count
    elif node.op_type == "Softmax":
        count = shapes.get(node.output[0], (1,))[-1]
        mean, square = 1 / count, 3 / count**2
    else:
        mean, square = _RULES.get(node.op_type, _same)(data)
    return bounded(mean, square + shift)


def _same(data: list[Moments]) -> Moments:
    return data[0]


def _averaged(data: list[Moments]) -> Moments:
    mean = data[0].mean
    return Moments(mean, mean * mean + 0.6 * data[0].variance)


def _mixed(data: list[Moments]) -> Moments:
    count = len(data)
    return Moments(sum(x.mean for x in data) / count, sum(x.square for x in data) / count)


def _bounded(data: list[Moments]) -> Moments:  # noqa: ARG001  takes what all rules take
    return Moments(0.5, 0.3)


_RULES: Mapping[str, Callable[[list[Moments]], Moments]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Gelu", "Mish"), rules.rectified),
    **dict.fromkeys(("HardSwish", "Softplus", "Selu"), rules.rectified),
    **dict.fromkeys(("MaxPool", "GlobalMaxPool", "ReduceMax"), rules.largest),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean"), _averaged),
    **dict.fromkeys(("Add", "Sum"), rules.total),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), _bounded),
    "Sub": rules.difference,
    "Mul": rules.product,
    "Div": rules.quotient,
    "Concat": _mixed,
    "Pow": rules.squared,
    "Sqrt": rules.rooted,
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
