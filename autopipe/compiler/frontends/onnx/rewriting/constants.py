"""Whole numbers that a graph computes of constants: shapes and conditions, mostly."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.reading.tensors import Array

_OPERATORS: Final = frozenset({
    "Abs", "Add", "And", "Cast", "Concat", "Constant", "Div", "Equal", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Reshape", "Size", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
    "Xor",
})  # fmt: skip
"""What shapes and conditions are made of; none of them makes much of little."""
_TYPES: Final = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
_MOST: Final = 64
"""Elements; no tensor has as many axes."""

_KINDS: Final = "biuf"
"""Kinds of dtypes that a tensor of a model may have, as numpy calls them."""

Values = Mapping[str, Array]
"""Values by name."""


def read_short_lists(graph: GraphProto) -> dict[str, Array]:
    """Return the short lists of whole numbers that a graph holds."""
    return {
        tensor.name: to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type in _TYPES and math.prod(tensor.dims) <= _MOST
    }


def evaluate_short(node: NodeProto, known: Values, opset: int) -> dict[str, Array]:
    """Return what a node computes of known numbers, by name; nothing unless it is as short."""
    if node.domain or node.op_type not in _OPERATORS:
        return {}
    if not all(name in known for name in node.input if name):
        return {}
    values = evaluate_node(node, known, opset) or {}
    return values if all(_is_short(array) for array in values.values()) else {}


def evaluate_node(node: NodeProto, known: Values, opset: int) -> dict[str, Array] | None:
    """Return what the reference of onnx computes of constants, None where it fails.

    `known` has at least the inputs of the node. What is wrong with it is left to the checker.
    """
    from onnx.reference import ReferenceEvaluator

    given = list(dict.fromkeys(name for name in node.input if name))
    made = [name for name in node.output if name]
    read, written = (
        [helper.make_empty_tensor_value_info(name) for name in names] for names in (given, made)
    )
    model = helper.make_model(
        helper.make_graph([node], "one", read, written),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, {name: known[name] for name in given})
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - an evaluator of anything
        return None
    arrays = dict(zip(made, map(np.asarray, results), strict=True))
    return None if any(array.dtype.kind not in _KINDS for array in arrays.values()) else arrays


def store_shapes(graph: GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Make a shape that is a result of the graph a constant; TVM returns no shapes."""
    results = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type != "Shape" or node.domain or results.isdisjoint(node.output):
            continue
        if node.input[0] in shapes:
            ends = {each.name: each.i for each in node.attribute}
            part = slice(ends.get("start"), ends.get("end"))
            value = from_array(np.array(shapes[node.input[0]][part], np.int64))
            node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=value))


def _is_short(array: Array) -> bool:
    return array.size <= _MOST and array.dtype.kind in "ib"
