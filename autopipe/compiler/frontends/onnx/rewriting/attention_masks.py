"""Rewrite tests for fully masked rows of attention masks.

The rewritten tests are exact in TVM, and are dropped if no row can be fully masked.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading.shapes import read_static_shapes
from autopipe.compiler.frontends.onnx.reading.tensors import read_constant, replace_nodes

_PASSES_ON: Final = ("Cast", "CastLike", "Identity")
"""Operators that preserve minus infinity."""


def rewrite_mask_tests(graph: GraphProto) -> None:
    """Replace `ReduceMax(x) == -inf` by a test of all elements.

    TVM's maximum of minus infinities is the lowest finite number.
    """
    makers = {name: node for node in graph.node for name in node.output}
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        sides = _match_row_maximum(node, makers, initializers) if node.op_type == "Equal" else None
        if sides is None:
            nodes.append(node)
            continue
        reduction, least = sides
        nodes += _make_questions(reduction, least, node.output[0])
    replace_nodes(graph, nodes)


def _match_row_maximum(
    equal: NodeProto, makers: Mapping[str, NodeProto], initializers: Mapping[str, TensorProto]
) -> tuple[NodeProto, str] | None:
    """Return (the ReduceMax node compared with minus infinity, the name of the latter) or None."""
    for largest, operand in (equal.input, reversed(equal.input)):
        reduction = makers.get(largest)
        if (
            reduction is not None
            and reduction.op_type == "ReduceMax"
            and _is_least(operand, makers, initializers)
        ):
            return reduction, operand
    return None


def _is_least(
    name: str, makers: Mapping[str, NodeProto], initializers: Mapping[str, TensorProto]
) -> bool:
    """Whether a value is a single constant minus infinity."""
    while name in makers and makers[name].op_type in _PASSES_ON:
        name = makers[name].input[0]
    tensor = initializers.get(name) or (read_constant(makers[name]) if name in makers else None)
    if tensor is None or any(dim != 1 for dim in tensor.dims):
        return False
    return bool(np.isneginf(numpy_helper.to_array(tensor).astype(np.float64)).all())


def _make_questions(reduction: NodeProto, least: str, result: str) -> list[NodeProto]:
    """Build the nodes that compare each element and reduce the results by minimum."""
    equal, number, lowest = (f"{result}_{part}" for part in ("equal", "number", "least"))
    minimum = helper.make_node("ReduceMin", [number, *reduction.input[1:]], [lowest])
    minimum.attribute.extend(reduction.attribute)
    return [
        helper.make_node("Equal", [reduction.input[0], least], [equal]),
        helper.make_node("Cast", [equal], [number], to=TensorProto.INT32),
        minimum,
        helper.make_node("Cast", [lowest], [result], to=TensorProto.BOOL),
    ]


def drop_empty(graph: GraphProto) -> None:
    """Replace each Where with an all-false condition by its third input."""
    never = {
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.BOOL and not numpy_helper.to_array(tensor).any()
    }
    shapes = read_static_shapes(graph)
    for node in graph.node:
        if node.op_type != "Where" or node.input[0] not in never:
            continue
        source, result = node.input[2], node.output[0]
        if result in shapes and shapes.get(source) == shapes[result]:
            node.CopyFrom(helper.make_node("Identity", [source], [result], name=node.name))
