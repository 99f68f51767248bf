"""How much an ONNX model asks for, as far as that is known before it runs: memory, and rounds."""

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
    """Raise `ModelError`, with the node, for a graph whose tensors take absurdly much memory.

    Or for one that takes absurdly many rounds over constants alone, which the build runs once.
    `inputs` and `weights` are names. The types of the graph's values have been inferred; a size
    that depends on data counts nothing.
    """
    known = count_bytes(graph)
    given = {name: known.get(name, 0) for name in inputs}
    stored = sum(known.get(name, 0) for name in weights)
    varying = set(given)
    bounds.check_memory(
        list(_list_steps(graph, known, varying)),
        given=given,
        stored=stored,
        returned={value.name for value in graph.output},
        bounds=limits,
    )
    numbers = trips.read_scalars(graph)
    for node in graph.node:
        if any(list_bodies(node)) and varying.isdisjoint(node.output):
            bounds.check_rounds(describe_node(node), _count_rounds(node, numbers), limits)


def _list_steps(
    graph: GraphProto, known: Mapping[str, int], varying: set[str]
) -> Iterator[Computation]:
    """Yield the nodes of a graph, those of inner graphs in front of the node that has them.

    `varying` grows by the results of what depends on the inputs.
    """
    for index, node in enumerate(graph.node):
        inner = [body for each in node.attribute for body in (each.g, *each.graphs) if body.node]
        for body in inner:
            yield from _list_steps(body, known, varying)
        read = {*node.input, *(name for body in inner for name in _list_read_values(body))}
        constant = varying.isdisjoint(read)
        if not constant:
            varying |= set(node.output)
        is_alias = node.op_type == "Identity" and constant  # clean-up gives it no memory
        what = f"{node.op_type} {node.name!r}" if node.name else f"node {index}, {node.op_type}"
        yield Computation(
            what,
            tuple(filter(None, read)),
            {name: 0 if is_alias else known.get(name, 0) for name in node.output if name},
            constant,
        )


def _count_rounds(node: NodeProto, numbers: trips.Known) -> int:
    """Return how often the innermost loop in a node runs, as far as it is known."""
    inner = (each for body in list_bodies(node) for each in body.node)
    within = max((_count_rounds(each, numbers) for each in inner), default=1)
    own = trips.find_node_trips(node, numbers).exactly if node.op_type == "Loop" else None
    return within if own is None else own * within


def _list_read_values(body: GraphProto) -> set[str]:
    return {name for graph in list_graphs(body) for node in graph.node for name in node.input}
