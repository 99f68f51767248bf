"""Rows of an attention mask that hide everything.

They are found in a way that TVM computes exactly, and not looked for where there are none.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading.shapes import read_static_shapes
from autopipe.compiler.frontends.onnx.reading.tensors import read_constant

_PASSES_ON: Final = ("Cast", "CastLike", "Identity")
"""Operators that leave minus infinity as it is."""


def rewrite_mask_tests(graph: GraphProto) -> None:
    """Ask whether all elements of a row are minus infinity, not whether the largest is.

    To TVM the largest of minus infinities alone is the least finite number.
    """
    makers = {name: node for node in graph.node for name in node.output}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        sides = _match_row_maximum(node, makers, stored) if node.op_type == "Equal" else None
        if sides is None:
            nodes.append(node)
            continue
        reduction, least = sides
        nodes += _make_questions(reduction, least, node.output[0])
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _match_row_maximum(
    equal: NodeProto, makers: Mapping[str, NodeProto], stored: Mapping[str, TensorProto]
) -> tuple[NodeProto, str] | None:
    """Return the reduction that is compared with minus infinity, and the name of the latter."""
    for largest, other in (equal.input, reversed(equal.input)):
        reduction = makers.get(largest)
        if (
            reduction is not None
            and reduction.op_type == "ReduceMax"
            and _is_least(other, makers, stored)
        ):
            return reduction, other
    return None


def _is_least(
    name: str, makers: Mapping[str, NodeProto], stored: Mapping[str, TensorProto]
) -> bool:
    """Whether a value is one minus infinity, and nothing else."""
    while name in makers and makers[name].op_type in _PASSES_ON:
        name = makers[name].input[0]
    tensor = stored.get(name) or (read_constant(makers[name]) if name in makers else None)
    if tensor is None or any(dim != 1 for dim in tensor.dims):
        return False
    return bool(np.isneginf(numpy_helper.to_array(tensor).astype(np.float64)).all())


def _make_questions(reduction: NodeProto, least: str, result: str) -> list[NodeProto]:
    """Return what asks of each element, and then of the least answer of a row."""
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
    """Drop each choice between two tensors that always falls on the second."""
    never = {
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.BOOL and not numpy_helper.to_array(tensor).any()
    }
    shapes = read_static_shapes(graph)
    for node in graph.node:
        if node.op_type != "Where" or node.input[0] not in never:
            continue
        kept, result = node.input[2], node.output[0]
        if result in shapes and shapes.get(kept) == shapes[result]:
            node.CopyFrom(helper.make_node("Identity", [kept], [result], name=node.name))
