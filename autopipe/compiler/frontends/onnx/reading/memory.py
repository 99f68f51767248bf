"""Bound the memory and the loop rounds of an ONNX model before it runs."""

from collections.abc import Collection, Iterator, Mapping

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.bounds import BOUNDS, Bounds, Computation
from autopipe.compiler.frontends.onnx.control import trips
from autopipe.compiler.frontends.onnx.reading.shapes import count_bytes
from autopipe.compiler.frontends.onnx.reading.tensors import (
    describe_node,
    list_bodies,
    list_graphs,
)


def check_memory(
    graph: GraphProto, inputs: Collection[str], weights: Collection[str], limits: Bounds = BOUNDS
) -> None:
    """Raise `ModelError`, with the node, if the tensors of a graph exceed the memory bounds.

    Also for a loop over constants, which the build evaluates, that exceeds the bound of rounds.
    `inputs` and `weights` are names. The graph has inferred types; a data-dependent size counts 0.
    """
    byte_counts = count_bytes(graph)
    input_bytes = {name: byte_counts.get(name, 0) for name in inputs}
    weight_bytes = sum(byte_counts.get(name, 0) for name in weights)
    varying = set(input_bytes)
    bounds.check_memory(
        list(_list_steps(graph, byte_counts, varying)),
        input_bytes=input_bytes,
        weight_bytes=weight_bytes,
        output_names={value.name for value in graph.output},
        bounds=limits,
    )
    numbers = trips.read_scalars(graph)
    for node in graph.node:
        if any(list_bodies(node)) and varying.isdisjoint(node.output):
            bounds.check_rounds(describe_node(node), _count_rounds(node, numbers), limits)


def _list_steps(
    graph: GraphProto, byte_counts: Mapping[str, int], varying: set[str]
) -> Iterator[Computation]:
    """Yield the nodes of a graph, those of inner graphs before the node that contains them.

    `varying` collects the results that depend on the inputs.
    """
    for index, node in enumerate(graph.node):
        inner = [body for body in list_bodies(node) if body.node]
        for body in inner:
            yield from _list_steps(body, byte_counts, varying)
        read = {*node.input, *(name for body in inner for name in _list_read_values(body))}
        constant = varying.isdisjoint(read)
        if not constant:
            varying |= set(node.output)
        is_alias = node.op_type == "Identity" and constant  # removed by clean-up
        label = f"{node.op_type} {node.name!r}" if node.name else f"node {index}, {node.op_type}"
        yield Computation(
            label,
            tuple(filter(None, read)),
            {name: 0 if is_alias else byte_counts.get(name, 0) for name in node.output if name},
            constant,
        )


def _count_rounds(node: NodeProto, numbers: trips.Known) -> int:
    """Return the known total rounds of the innermost loop of a node."""
    inner = (each for body in list_bodies(node) for each in body.node)
    inner_rounds = max((_count_rounds(each, numbers) for each in inner), default=1)
    own_rounds = trips.find_node_trips(node, numbers).exactly if node.op_type == "Loop" else None
    return inner_rounds if own_rounds is None else own_rounds * inner_rounds


def _list_read_values(body: GraphProto) -> set[str]:
    return {name for graph in list_graphs(body) for node in graph.node for name in node.input}
