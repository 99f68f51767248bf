"""Derive from the operators of an ONNX graph what the model promises of its outputs.

A sigmoid is rounded as a number up to 1, however small it is: onnxruntime's is off by 1.4 units in
the last place of 1, its tanh by 2.3, and below -15.8 its sigmoid is 0. A quantized output moves
in steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from onnx import numpy_helper

from autopipe.artifacts.promises import COMMON_CASES, SPECIAL_CASES, OutputPromises
from autopipe.compiler.frontends.onnx.tensors import Array, Proto, graphs

_SATURATION_SLOPES: Final = {
    "Sigmoid": 0.25, "Tanh": 1.0, "Softmax": 1.0, "Erf": 1.13, "Softsign": 1.0,
}  # fmt: skip
"""Functions that saturate at 0, 1 or -1, with their steepest slope: it bounds how much of an error
of the operand is in the result."""

_MOVEMENT: Final = {
    "AveragePool", "Clip", "Flatten", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Identity",
    "MaxPool", "Neg", "Pad", "ReduceMax", "ReduceMean", "ReduceMin", "Relu", "Reshape", "Resize",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Expand",
}  # fmt: skip
"""Operators that amplify no error of their first operand."""

_SELECTION: Final = {"Concat", "Max", "Min", "Where"}
"""Operators whose elements are elements of any operand, with its error."""

_SUMS: Final = {"Add", "Identity", "Neg", "Sub", "Sum"}
"""Operators whose results are sums of their operands."""

_QUANTIZING_PREFIXES: Final = (
    "DynamicQuantize", "QAttention", "QGemm", "QLinear", "QuantizeLinear",
)  # fmt: skip
"""How the names of operators begin that round to integer steps."""

_ROW_CHOICES: Final = {"Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
"""Operators that select elements by their values, or sort them."""

_EXACT_SPECIALS: Final = _MOVEMENT - {
    "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize",
} | {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "Div", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "HardSigmoid", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mod",
    "Mul", "Not", "Or", "Reciprocal", "Round", "Sign", "Sqrt", "Sub", "Sum", "ThresholdedRelu",
    "Where", "Xor",
}  # fmt: skip
"""Operators that are promised to treat infinities and NaN as the reference does, whatever
`numerics`."""

_SINGULAR_AT_ZERO: Final = {
    "Acosh", "Atanh", "Log", "LogSoftmax", "Pow", "ReduceLogSum", "ReduceLogSumExp",
}  # fmt: skip
"""Operators that amplify errors near zero, or are undefined for negative numbers."""

_NAN_LOST: Final = {"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin"}
"""Operators that propagate NaN in builds and in NumPy; onnxruntime drops it in some, and `onnx` in
MaxPool."""

_COMPARISONS: Final = _NAN_LOST | {"Clip", "Max", "Min", "Relu"}
"""Operators that propagate NaN on processors alone: GPUs return the other operand."""

_FLOAT16_TYPES: Final = {10, 16}
"""ONNX's numbers of float16 and bfloat16."""
_WIDE_FLOAT_TYPES: Final = {1, 11}
"""ONNX's numbers of float32 and float64."""
_INEXACT_CAST: Final = "inexact Cast"

_SATURATION_UNITS: Final = 4.0
"""Units in the last place of 1 that two correct programs may differ by where a function
saturates."""
_QUANTIZATION_STEPS: Final = 2.0
"""Steps that a quantized output may differ by: one rounding up, one down."""


def derive_promises(
    graph: Proto, weights: Mapping[str, Array], output_dtypes: Mapping[str, str]
) -> OutputPromises:
    """Return what a graph promises of its outputs, given by name and dtype.

    `weights` are the tensors that are not stored in the graph.
    """
    indexed = _IndexedGraph.of(graph, weights)
    operators = {indexed.classify(node) for inner in graphs(graph) for node in inner.node}
    floors = {name: indexed.error_floor(name, dtype) for name, dtype in output_dtypes.items()}
    exact = COMMON_CASES if any(map(indexed.cancels, graph.node)) else SPECIAL_CASES
    return OutputPromises(
        chooses_rows=not operators.isdisjoint(_ROW_CHOICES),
        rounds_to_steps=any(name.startswith(_QUANTIZING_PREFIXES) for name in operators),
        error_floors={name: floor for name, floor in floors.items() if 0 < floor < math.inf},
        exact_cases=exact if operators and operators <= _EXACT_SPECIALS else (),
        finite_cases=COMMON_CASES if operators.isdisjoint(_SINGULAR_AT_ZERO) else (),
        nan_only_on_cpu=not operators.isdisjoint(_COMPARISONS),
        references_lose_nan=not operators.isdisjoint(_NAN_LOST),
    )


def _is_saturating(node: Proto) -> bool:
    return node.op_type in _SATURATION_SLOPES


def _is_movement(node: Proto) -> bool:
    return node.op_type in _MOVEMENT


def _is_selection(node: Proto) -> bool:
    return node.op_type in _SELECTION


def _is_sum(node: Proto) -> bool:
    return node.op_type in _SUMS


@dataclass(frozen=True, slots=True)
class _IndexedGraph:
    """The nodes of a graph by what they produce, and its constants by name."""

    producers: Mapping[str, Proto]
    initializers: Mapping[str, Proto]
    weights: Mapping[str, Array]

    @classmethod
    def of(cls, graph: Proto, weights: Mapping[str, Array]) -> Self:
        producers = {name: node for node in graph.node for name in node.output}
        return cls(producers, {tensor.name: tensor for tensor in graph.initializer}, weights)

    def classify(self, node: Proto) -> str:
        """Return a node's operator; casts whose result two correct programs may differ in apart.

        An infinity is no integer, and 16-bit floats are computed in float32: a sum of them that
        overflows may be cast to float32 before it does.
        """
        if node.op_type != "Cast":
            return str(node.op_type)
        dtype = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)
        producer = self.producers.get(node.input[0])
        is_exact = dtype in _FLOAT16_TYPES or (
            dtype in _WIDE_FLOAT_TYPES and (producer is None or producer.op_type == "Cast")
        )
        return "Cast" if is_exact else _INEXACT_CAST

    def cancels(self, node: Proto) -> bool:
        """Return whether a node subtracts a part of its own operands, as `x - (x + 1)` does.

        ONNX defines no order of roundings, and -1 is a correct result at every number: TVM computes
        it at an infinity, too, where onnxruntime computes NaN.
        """
        if node.op_type != "Sub":
            return False
        left, right = (self._summands(name) for name in node.input)
        return not left.isdisjoint(right)

    def _summands(self, name: str) -> set[str]:
        """Return the computed values that a value is a sum of, itself among them."""
        summands, waiting = set[str](), [name]
        while waiting:
            value = waiting.pop()
            if value in summands or value in self.initializers or value in self.weights:
                continue
            summands.add(value)
            node = self.producers.get(value)
            if node is not None and _is_sum(node):
                waiting += node.input
        return summands

    def error_floor(self, output: str, dtype: str) -> float:
        """Return the absolute error of an output that its last operators do not resolve."""
        if np.dtype(dtype).kind != "f":
            return 0.0
        floors: dict[str, float] = {}
        unit = float(np.finfo(dtype).eps) * _SATURATION_UNITS
        for name in self._sort_operands(output):
            floors[name] = self._propagate_floor(self.producers[name], unit, floors)
        return floors.get(output, 0.0)

    def _sort_operands(self, output: str) -> list[str]:
        """Return the values that an output's error comes from, operands before results."""
        ordered: dict[str, None] = {}
        waiting = [(output, False)]
        while waiting:
            name, is_expanded = waiting.pop()
            node = self.producers.get(name)
            if node is None or name in ordered:
                continue
            if is_expanded:
                ordered[name] = None
            else:
                waiting.append((name, True))
                waiting += [(operand, False) for operand in _error_operands(node)]
        return list(ordered)

    def _propagate_floor(self, node: Proto, unit: float, floors: Mapping[str, float]) -> float:
        """Return the error floor of a node's result from those of its operands."""
        operands = [floors.get(name, 0.0) for name in node.input]
        if node.op_type == "DequantizeLinear":
            scale = self._largest_magnitude(node.input[1])
            return _QUANTIZATION_STEPS * scale if math.isfinite(scale) else 0.0
        if _is_saturating(node):
            return unit + _SATURATION_SLOPES[node.op_type] * operands[0]
        if node.op_type == "Mul":
            left, right = (self._largest_magnitude(name) for name in node.input)
            return operands[0] * right + operands[1] * left
        if node.op_type in {"Add", "Sub", "Sum"}:
            return sum(operands)
        return max(operands, default=0.0) if _is_movement(node) or _is_selection(node) else 0.0

    def _largest_magnitude(self, name: str) -> float:
        """Return the largest absolute value of a constant, 0 for other values."""
        values = self._constant(name)
        if values is None or not values.size:
            return 0.0
        return max(abs(float(values.min())), abs(float(values.max())))

    def _constant(self, name: str) -> Array | None:
        if name in self.weights:
            return self.weights[name]
        tensor, node = self.initializers.get(name), self.producers.get(name)
        if tensor is None and node is not None and node.op_type == "Constant":
            tensor = next((part.t for part in node.attribute if part.name == "value"), None)
        return None if tensor is None else numpy_helper.to_array(tensor)


def _error_operands(node: Proto) -> list[str]:
    """Return the operands whose errors are in a node's result."""
    if node.op_type in {"Add", "Mul", "Sub", "Sum"} or _is_selection(node):
        return list(node.input)
    return list(node.input[:1]) if _is_movement(node) or _is_saturating(node) else []
