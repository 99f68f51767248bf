"""How much memory an ONNX model asks for, as far as its shapes are known before it runs."""

from collections.abc import Collection, Iterator, Mapping

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.bounds import BOUNDS, Bounds, Computation
from autopipe.compiler.frontends.onnx.shapes import sizes
from autopipe.compiler.frontends.onnx.tensors import Proto, graphs


def check(
    graph: Proto, inputs: Collection[str], weights: Collection[str], limits: Bounds = BOUNDS
) -> None:
    """Raise `ModelError`, with the node, for a graph whose tensors take absurdly much memory.

    `inputs` and `weights` are names. The types of the graph's values have been inferred; a size
    that depends on data counts nothing.
    """
    known = sizes(graph)
    given = {name: known.get(name, 0) for name in inputs}
    stored = sum(known.get(name, 0) for name in weights)
    bounds.check(
        list(_steps(graph, known, set(given))),
        given=given,
        stored=stored,
        returned={value.name for value in graph.output},
        bounds=limits,
    )


def _steps(graph: Proto, known: Mapping[str, int], varying: set[str]) -> Iterator[Computation]:
    """Yield the nodes of a graph, those of inner graphs in front of the node that has them.

    `varying` grows by the results of what depends on the inputs.
    """
    for index, node in enumerate(graph.node):
        inner = [body for each in node.attribute for body in (each.g, *each.graphs) if body.node]
        for body in inner:
            yield from _steps(body, known, varying)
        read = {*node.input, *(name for body in inner for name in _read(body))}
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


def _read(body: Proto) -> set[str]:
    return {name for graph in graphs(body) for node in graph.node for name in node.input}
