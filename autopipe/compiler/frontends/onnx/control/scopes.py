"""Names in graphs inside graphs: what a body reads from outside, and bodies in other names."""

from collections.abc import Mapping, Sequence

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.onnx.reading.tensors import list_bodies, list_graphs

KINDS = frozenset({"If", "Loop", "Scan"})
"""Operators with graphs inside."""


def find_body(node: NodeProto, name: str = "body") -> GraphProto:
    """Return the graph of a node that is called `name`."""
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


def has_control(graph: GraphProto) -> bool:
    """Tell whether a node of a graph has graphs inside."""
    return any(node.op_type in KINDS for node in graph.node)


def list_captured(graph: GraphProto) -> list[str]:
    """Return the names that a graph, or one inside it, reads from outside, in order."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        read = [
            *node.input,
            *(name for inner in list_bodies(node) for name in list_captured(inner)),
        ]
        found.update((name, None) for name in read if name and name not in own)
        own.update(node.output)
    found.update((value.name, None) for value in graph.output if value.name not in own)
    return list(found)


def rename_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Give other names to what a graph and those inside it read from outside."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    names = {old: new for old, new in names.items() if old not in own}
    if not names:
        return
    for node in graph.node:
        redirect_inputs(node, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)


class Names:
    """Gives names that no graph of a model has."""

    def __init__(self, graph: GraphProto) -> None:
        self._taken: set[str] = set()
        for inner in list_graphs(graph):
            self._taken.update(value.name for value in (*inner.input, *inner.output))
            self._taken.update(tensor.name for tensor in inner.initializer)
            self._taken.update(name for node in inner.node for name in node.output)
        self._counts: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """Return a new name that begins like the given one."""
        while True:
            self._counts[name] = count = self._counts.get(name, 0) + 1
            if (new := f"{name}__{count}") not in self._taken:
                self._taken.add(new)
                return new


def instantiate_body(
    graph: GraphProto, inputs: Sequence[str], names: Names
) -> tuple[list[NodeProto], list[str]]:
    """Return the nodes of a body for the given inputs, and the names of its results.

    What the nodes compute has new names. The body has no tensors of its own.
    """
    known = {value.name: given for value, given in zip(graph.input, inputs, strict=True)}
    nodes = []
    for original in graph.node:
        node = type(original)()
        node.CopyFrom(original)
        redirect_inputs(node, known)
        if node.name:
            node.name = names.fresh(node.name)
        for index, name in enumerate(node.output):
            if name:
                known[name] = node.output[index] = names.fresh(name)
        nodes.append(node)
    return nodes, [known.get(value.name, value.name) for value in graph.output]


def redirect_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    """Have a node, and what is inside it, read under other names."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for inner in list_bodies(node):
        rename_captured(inner, names)
