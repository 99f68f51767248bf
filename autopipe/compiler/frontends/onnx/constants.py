"""Whole numbers that a graph computes of constants: shapes and conditions, mostly."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.tensors import Array, Proto

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

Values = Mapping[str, Array]
"""Values by name."""


def short(graph: Proto) -> dict[str, Array]:
    """Return the short lists of whole numbers that a graph holds."""
    return {
        tensor.name: to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type in _TYPES and math.prod(tensor.dims) <= _MOST
    }


def evaluate(node: Proto, known: Values, opset: int) -> dict[str, Array]:
    """Return what a node computes of what is known, by name; nothing of others and of mistakes."""
    from onnx.reference import ReferenceEvaluator

    if node.domain or node.op_type not in _OPERATORS:
        return {}
    given = [name for name in node.input if name]
    if not all(name in known for name in given):
        return {}
    named = [
        [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names)]
        for names in (given, node.output)
    ]
    made = helper.make_model(
        helper.make_graph([node], "one", *named), opset_imports=[helper.make_opsetid("", opset)]
    )
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(made).run(None, {name: known[name] for name in given})
    except Exception:  # noqa: BLE001 - of an evaluator; the model's checker says what is wrong
        return {}
    arrays = dict(zip(node.output, map(np.asarray, found), strict=True))
    return arrays if all(_is_short(array) for array in arrays.values()) else {}


def fold(graph: Proto, opset: int) -> bool:
    """Put the numbers into the place of the nodes that compute them; tell whether there are any."""
    known, kept, results = short(graph), [], {value.name for value in graph.output}
    for node in graph.node:
        stays = not node.input or not results.isdisjoint(node.output)
        values = {} if stays else evaluate(node, known, opset)
        known.update(values)
        graph.initializer.extend(from_array(array, name) for name, array in values.items())
        if not values:
            kept.append(type(node).FromString(node.SerializeToString()))
    changed = len(kept) < len(graph.node)
    del graph.node[:]
    graph.node.extend(kept)
    return changed


def store_shapes(graph: Proto, shapes: Mapping[str, Sequence[int]]) -> None:
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
