"""Rewrite tests for fully masked rows of attention masks.

The rewritten tests are exact in TVM, and are dropped if no row can be fully masked.
"""

from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from autopipe.compiler.frontends.onnx.reading.graph_index import GraphIndex
from autopipe.compiler.frontends.onnx.reading.shapes import read_static_shapes

_PASSES_ON: Final = ("Cast", "CastLike", "Identity")
"""Operators that preserve minus infinity."""


def rewrite_mask_tests(graph: GraphProto) -> None:
    """Replace `ReduceMax(x) == -inf` by a test of all elements.

    TVM's maximum of minus infinities is the lowest finite number.
    """
    index = GraphIndex(graph)
    questions: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        sides = _match_row_maximum(index, node) if node.op_type == "Equal" else None
        if sides is not None:
            questions[node.output[0]] = _make_questions(*sides, node.output[0])
    index.replace_results(questions)


def _match_row_maximum(index: GraphIndex, equal: NodeProto) -> tuple[NodeProto, str] | None:
    """Return (the ReduceMax node compared with minus infinity, the name of the latter) or None."""
    for largest, operand in (equal.input, reversed(equal.input)):
        reduction = index.find_producer(largest, "ReduceMax")
        if reduction is not None and _is_least(index, operand):
            return reduction, operand
    return None


def _is_least(index: GraphIndex, name: str) -> bool:
    """Whether a value is a single constant minus infinity."""
    while (producer := index.find_producer(name, *_PASSES_ON)) is not None:
        name = producer.input[0]
    values = index.find_constant(name)
    return (
        values is not None
        and values.size == 1
        and bool(np.isneginf(values.astype(np.float64)).all())
    )


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
