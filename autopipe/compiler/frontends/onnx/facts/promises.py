"""Derive the numeric promises of a model's outputs from the operators of its ONNX graph.

A sigmoid is rounded as a number up to 1, however small it is: onnxruntime's is off by 1.4 units in
the last place of 1, its tanh by 2.3, and below -15.8 its sigmoid is 0. A quantized output moves
in steps.
"""

import math
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto

from autopipe.artifacts.promises import COMMON_CASES, SPECIAL_CASES, OutputPromises
from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import find_operator, has_trait
from autopipe.compiler.frontends.onnx.reading.graph_index import GraphIndex
from autopipe.compiler.frontends.onnx.reading.tensors import Array, list_nodes, read_attributes

_FLOAT16_TYPES: Final = {10, 16}
"""The element types float16 and bfloat16."""
_WIDE_FLOAT_TYPES: Final = {1, 11}
"""The element types float32 and float64."""

_SATURATION_UNITS: Final = 4.0
"""Units in the last place of 1 that two correct programs may differ by where a function
saturates."""
_QUANTIZATION_STEPS: Final = 2.0
"""Steps that a quantized output may differ by: one rounding up, one down."""


def derive_promises(
    graph: GraphProto, weights: Mapping[str, Array], output_dtypes: Mapping[str, str]
) -> OutputPromises:
    """Derive the promises of a graph for outputs given by name and dtype.

    `weights` are the tensors that are not stored in the graph.
    """
    graph_index = _PromisedGraph(graph, weights)
    traits = [graph_index.find_traits(node) for node in list_nodes(graph)]
    floors = {
        name: graph_index.compute_error_floor(name, dtype) for name, dtype in output_dtypes.items()
    }
    exact = COMMON_CASES if any(map(graph_index.cancels, graph.node)) else SPECIAL_CASES
    some = reduce(or_, traits, Trait.NONE)
    is_exact = bool(traits) and all(one & Trait.EXACT_SPECIALS for one in traits)
    return OutputPromises(
        chooses_rows=bool(some & Trait.CHOOSES_ROWS),
        rounds_to_steps=bool(some & Trait.ROUNDS_TO_STEPS),
        error_floors={name: floor for name, floor in floors.items() if 0 < floor < math.inf},
        exact_cases=exact if is_exact else (),
        finite_cases=() if some & Trait.SINGULAR_AT_ZERO else COMMON_CASES,
        nan_only_on_cpu=bool(some & Trait.COMPARES),
        references_lose_nan=bool(some & Trait.LOSES_NAN),
    )


def _is_error_preserving(node: NodeProto) -> bool:
    return has_trait(node, Trait.KEEPS_ELEMENTS | Trait.MOVES_ELEMENTS | Trait.KEEPS_ERROR)


def _read_slope(node: NodeProto) -> float:
    """Return the slope of a saturating function, 0 for others."""
    operator = find_operator(node)
    return 0.0 if operator is None else operator.saturation_slope


class _PromisedGraph(GraphIndex):
    """A graph, with the tensors that are not stored in it."""

    def __init__(self, graph: GraphProto, weights: Mapping[str, Array]) -> None:
        super().__init__(graph)
        self._weights = weights

    def find_traits(self, node: NodeProto) -> Trait:
        """Return the traits of a node; a cast is only exact where two correct programs agree.

        An infinity is no integer, and 16-bit floats are computed in float32: a sum of them that
        overflows may be cast to float32 before it does.
        """
        operator = find_operator(node)
        if operator is None:
            return Trait.NONE
        if operator.name != "Cast":
            return operator.traits
        dtype = read_attributes(node).get("to", 0)
        producer = self.producers.get(node.input[0])
        is_exact = dtype in _FLOAT16_TYPES or (
            dtype in _WIDE_FLOAT_TYPES and (producer is None or producer.op_type == "Cast")
        )
        return operator.traits if is_exact else operator.traits & ~Trait.EXACT_SPECIALS

    def cancels(self, node: NodeProto) -> bool:
        """Whether the operands of a Sub share a summand, as in `x - (x + 1)`.

        ONNX defines no order of roundings, and -1 is a correct result at every number: TVM computes
        it at an infinity, too, where onnxruntime computes NaN.
        """
        if node.op_type != "Sub":
            return False
        left, right = (self._find_summands(name) for name in node.input)
        return not left.isdisjoint(right)

    def _find_summands(self, name: str) -> set[str]:
        """Return the computed summands of a value, itself included."""
        summands, pending = set[str](), [name]
        while pending:
            value = pending.pop()
            if value in summands or value in self.stored or value in self._weights:
                continue
            summands.add(value)
            node = self.producers.get(value)
            is_sum = node is not None and (
                has_trait(node, Trait.ADDS) or node.op_type in {"Identity", "Neg"}
            )
            if node is not None and is_sum:
                pending += node.input
        return summands

    def compute_error_floor(self, output: str, dtype: str) -> float:
        """Return the absolute error of an output that its last operators do not resolve."""
        if np.dtype(dtype).kind != "f":
            return 0.0
        floors: dict[str, float] = {}
        unit = float(np.finfo(dtype).eps) * _SATURATION_UNITS
        for name in self._sort_operands(output):
            floors[name] = self._propagate_floor(self.producers[name], unit, floors)
        return floors.get(output, 0.0)

    def _sort_operands(self, output: str) -> list[str]:
        """Return the values that contribute to an output's error, in topological order."""
        order: dict[str, None] = {}
        pending = [(output, False)]
        while pending:
            name, is_expanded = pending.pop()
            node = self.producers.get(name)
            if node is None or name in order:
                continue
            if is_expanded:
                order[name] = None
            else:
                pending.append((name, True))
                pending += [(operand, False) for operand in _list_error_operands(node)]
        return list(order)

    def _propagate_floor(self, node: NodeProto, unit: float, floors: Mapping[str, float]) -> float:
        """Return the error floor of a node's result from those of its operands."""
        operands = [floors.get(name, 0.0) for name in node.input]
        if node.op_type == "DequantizeLinear":
            scale = self._find_magnitude(node.input[1])
            return _QUANTIZATION_STEPS * scale if math.isfinite(scale) else 0.0
        if slope := _read_slope(node):
            return unit + slope * operands[0]
        if node.op_type == "Mul":
            left, right = (self._find_magnitude(name) for name in node.input)
            return operands[0] * right + operands[1] * left
        if has_trait(node, Trait.ADDS):
            return sum(operands)
        keeps = _is_error_preserving(node) or has_trait(node, Trait.SELECTS)
        return max(operands, default=0.0) if keeps else 0.0

    def _find_magnitude(self, name: str) -> float:
        """Return the largest absolute value of a constant, 0 for other values."""
        values = self._weights[name] if name in self._weights else self.find_constant(name)
        if values is None or not values.size:
            return 0.0
        return max(abs(float(values.min())), abs(float(values.max())))


def _list_error_operands(node: NodeProto) -> list[str]:
    """List the operands that propagate errors to a node's result."""
    if node.op_type == "Mul" or has_trait(node, Trait.ADDS | Trait.SELECTS):
        return list(node.input)
    return list(node.input[:1]) if _is_error_preserving(node) or _read_slope(node) else []
