"""Evaluate nodes with constant inputs: mostly shapes and conditions."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.reading.tensors import Array, read_attributes

_OPERATORS: Final = frozenset({
    "Abs", "Add", "And", "Cast", "Concat", "Constant", "Div", "Equal", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not",
    "Or", "Reshape", "Size", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
    "Xor",
})  # fmt: skip
"""Operators of shape computations and conditions with outputs of bounded size."""
_TYPES: Final = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
_MOST: Final = 64
"""Maximum number of elements, above any rank."""

_KINDS: Final = "biuf"
"""NumPy dtype kinds of model tensors."""

Values = Mapping[str, Array]
"""Values by name."""


def read_short_lists(graph: GraphProto) -> dict[str, Array]:
    """Return the short integer constants of a graph by name."""
    return {
        tensor.name: to_array(tensor)
        for tensor in graph.initializer
        if tensor.data_type in _TYPES and math.prod(tensor.dims) <= _MOST
    }


def evaluate_short(node: NodeProto, constants: Values, opset: int) -> dict[str, Array]:
    """Evaluate a node of short constants to its outputs by name; {} if a result is not short."""
    if node.domain or node.op_type not in _OPERATORS:
        return {}
    if not all(name in constants for name in node.input if name):
        return {}
    values = evaluate_node(node, constants, opset) or {}
    return values if all(_is_short(array) for array in values.values()) else {}


def evaluate_node(node: NodeProto, constants: Values, opset: int) -> dict[str, Array] | None:
    """Evaluate a node by onnx's reference implementation; None if that fails.

    `constants` has at least the inputs of the node. Invalid nodes are left to the checker.
    """
    from onnx.reference import ReferenceEvaluator

    input_names = list(dict.fromkeys(name for name in node.input if name))
    output_names = [name for name in node.output if name]
    input_infos, output_infos = (
        [helper.make_empty_tensor_value_info(name) for name in names]
        for names in (input_names, output_names)
    )
    model = helper.make_model(
        helper.make_graph([node], "one", input_infos, output_infos),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(
                None, {name: constants[name] for name in input_names}
            )
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the evaluator raises anything
        return None
    arrays = dict(zip(output_names, map(np.asarray, results), strict=True))
    return None if any(array.dtype.kind not in _KINDS for array in arrays.values()) else arrays


def evaluate_shape(node: NodeProto, shape: Sequence[int]) -> Array:
    """Evaluate Shape or Size of a tensor of known shape."""
    sizes, ends = np.array(shape, np.int64), read_attributes(node)
    if node.op_type == "Size":
        return np.array(np.prod(sizes, dtype=np.int64))
    return sizes[slice(ends.get("start"), ends.get("end"))]


def store_shapes(graph: GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Convert graph outputs computed by Shape to constants; TVM cannot return shapes."""
    results = {value.name for value in graph.output}
    for node in graph.node:
        if node.op_type != "Shape" or node.domain or results.isdisjoint(node.output):
            continue
        if node.input[0] in shapes:
            value = from_array(evaluate_shape(node, shapes[node.input[0]]))
            node.CopyFrom(helper.make_node("Constant", [], [node.output[0]], value=value))


def _is_short(array: Array) -> bool:
    return array.size <= _MOST and array.dtype.kind in "ib"
