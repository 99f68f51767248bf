"""Apply operators between dequantization and quantization to int8 tensors directly.

A statically quantized model dequantizes before each operator and quantizes after it. An operator
that only moves elements or takes a maximum can read int8 instead: rounding is monotonic. Inputs
of another scale than the result's are requantized first.

    DequantizeLinear(s) -> MaxPool -> QuantizeLinear(s)
becomes
    MaxPool

    DequantizeLinear(s), DequantizeLinear(t) -> Concat -> QuantizeLinear(s)
becomes
    the int8 tensor of s, DequantizeLinear(t) -> QuantizeLinear(s) -> Concat

If dequantized tensors are added and quantized again, their scales are divided by that of the
result, instead of each sum: (3 * s + 5 * t) / u is 3 * (s / u) + 5 * (t / u).
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np
from onnx import GraphProto, NodeProto, helper

from autopipe.compiler.frontends.onnx.operator import Trait
from autopipe.compiler.frontends.onnx.operators import has_trait
from autopipe.compiler.frontends.onnx.rewriting.quantization_graph import QuantizedGraph

_ALSO = frozenset({"MaxPool", "Concat"})
"""Monotonic operators, besides those that only move elements."""

_TO_BYTES, _TO_FLOATS = "QuantizeLinear", "DequantizeLinear"


def move_bytes(graph: GraphProto) -> None:
    """Move int8 instead of dequantized floats, and fold output scales into added operands."""
    for change in (_move_operator, _sum_scaled):
        view = QuantizedGraph(graph)
        view.replace_results(dict(chain.from_iterable(change(view, node) for node in graph.node)))


def _find_dequantizers(
    graph: QuantizedGraph, data: list[str], after: NodeProto | None
) -> list[NodeProto] | None:
    """Return the DequantizeLinear nodes of an operator's inputs, if its result is quantized again.

    `after` is the reader of its result.
    """
    producers = [graph.find_producer(name, _TO_FLOATS) for name in data]
    plain = [node for node in (*producers, after) if node is not None and graph.is_plain(node)]
    bytes_again = after is not None and after.op_type == _TO_BYTES
    return plain[:-1] if bytes_again and len(plain) > len(data) else None


def _move_operator(graph: QuantizedGraph, node: NodeProto) -> Iterator[tuple[str, list[NodeProto]]]:
    """Yield (output, replacement) for an operator that moves elements and its quantization."""
    moves = has_trait(node, Trait.KEEPS_ELEMENTS | Trait.MOVES_ELEMENTS)
    if not (moves or node.op_type in _ALSO) or len(node.output) > 1:
        return
    after = graph.find_only_reader(node.output[0])
    data = list(node.input) if node.op_type == "Concat" else list(node.input[:1])
    producers = _find_dequantizers(graph, data, after)
    if producers is not None and after is not None:
        yield node.output[0], list(_rewrite_on_int8(graph, node, after, producers))
        yield after.output[0], []


def _rewrite_on_int8(
    graph: QuantizedGraph, node: NodeProto, after: NodeProto, producers: list[NodeProto]
) -> Iterator[NodeProto]:
    """Yield the operator on int8 of the result's scale, after requantization of its inputs."""
    new_node = type(node)()
    new_node.CopyFrom(node)
    new_node.output[0] = after.output[0]
    for at, producer in enumerate(producers):
        new_node.input[at] = producer.input[0]
        if not graph.alike(producer, after):
            new_node.input[at] = f"{after.output[0]}/{at}"
            names = [node.input[at], *after.input[1:]]
            yield helper.make_node(_TO_BYTES, names, [new_node.input[at]], name=new_node.input[at])
    yield new_node


def _sum_scaled(graph: QuantizedGraph, node: NodeProto) -> Iterator[tuple[str, list[NodeProto]]]:
    """Yield (output, replacement) for a sum of dequantized tensors and its quantization."""
    after = graph.find_only_reader(node.output[0]) if node.op_type == "Add" else None
    if after is not None and after.op_type == "Relu":
        after = graph.find_only_reader(after.output[0])
    producers = _find_dequantizers(graph, list(node.input), after)
    if producers is None or after is None:
        return
    scales = [
        graph.number(producer.input[1]) / graph.number(after.input[1]) for producer in producers
    ]
    if not all(map(np.isfinite, scales)):
        return
    dequantizers = [
        _scale_bytes(graph, producer, f"{node.output[0]}/{at}", scale)
        for at, (producer, scale) in enumerate(zip(producers, scales, strict=True))
    ]
    total = helper.make_node(
        "Add", [one.output[0] for one in dequantizers], list(node.output), node.name
    )
    yield node.output[0], [*dequantizers, total]
    unit_scale = graph.store_as(f"{after.output[0]}/one", np.ones((), np.float32))
    names = [after.input[0], unit_scale, *after.input[2:]]
    quantizer = helper.make_node(_TO_BYTES, names, list(after.output), after.name)
    yield after.output[0], [quantizer]


def _scale_bytes(
    graph: QuantizedGraph, producer: NodeProto, name: str, scale: np.float32
) -> NodeProto:
    """Build a DequantizeLinear of another scale."""
    names = [
        producer.input[0],
        graph.store_as(f"{name}/scale", np.asarray(scale)),
        *producer.input[2:],
    ]
    return helper.make_node(_TO_FLOATS, names, [name], name=name)
