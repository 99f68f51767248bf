"""Scoping of names in nested graphs: captured names, renaming, and copies of bodies."""

from collections.abc import Mapping, Sequence

from onnx import GraphProto, NodeProto

from autopipe.compiler.frontends.onnx.reading.tensors import list_bodies, list_graphs

KINDS = frozenset({"If", "Loop", "Scan"})
"""Operators with inner graphs."""


def find_body(node: NodeProto, name: str = "body") -> GraphProto:
    """Return the inner graph of a node by attribute name."""
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


def has_control(graph: GraphProto) -> bool:
    """Whether a node of a graph has inner graphs."""
    return any(node.op_type in KINDS for node in graph.node)


def list_captured(graph: GraphProto) -> list[str]:
    """List the outer names that a graph and its inner graphs read, in order."""
    local_names = {value.name for value in graph.input} | {
        tensor.name for tensor in graph.initializer
    }
    captured_names: dict[str, None] = {}
    for node in graph.node:
        input_names = [
            *node.input,
            *(name for inner in list_bodies(node) for name in list_captured(inner)),
        ]
        captured_names.update(
            (name, None) for name in input_names if name and name not in local_names
        )
        local_names.update(node.output)
    captured_names.update(
        (value.name, None) for value in graph.output if value.name not in local_names
    )
    return list(captured_names)


def rename_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename the captured values of a graph and its inner graphs."""
    local_names = {value.name for value in graph.input} | {
        tensor.name for tensor in graph.initializer
    }
    local_names.update(name for node in graph.node for name in node.output)
    names = {old: new for old, new in names.items() if old not in local_names}
    if not names:
        return
    for node in graph.node:
        redirect_inputs(node, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)


class Names:
    """A generator of names that no graph of the model uses."""

    def __init__(self, graph: GraphProto) -> None:
        self._taken: set[str] = set()
        for inner in list_graphs(graph):
            self._taken.update(value.name for value in (*inner.input, *inner.output))
            self._taken.update(tensor.name for tensor in inner.initializer)
            self._taken.update(name for node in inner.node for name in node.output)
        self._counts: dict[str, int] = {}

    def fresh(self, name: str) -> str:
        """Return a new name with the given prefix."""
        while True:
            self._counts[name] = count = self._counts.get(name, 0) + 1
            if (new := f"{name}__{count}") not in self._taken:
                self._taken.add(new)
                return new


def instantiate_body(
    graph: GraphProto, inputs: Sequence[str], names: Names
) -> tuple[list[NodeProto], list[str]]:
    """Copy the nodes of a body for the given inputs; returns (nodes, names of the results).

    The outputs of the nodes have new names. The body has no initializers.
    """
    new_names = {value.name: given for value, given in zip(graph.input, inputs, strict=True)}
    nodes = []
    for original in graph.node:
        node = type(original)()
        node.CopyFrom(original)
        redirect_inputs(node, new_names)
        if node.name:
            node.name = names.fresh(node.name)
        for index, name in enumerate(node.output):
            if name:
                new_names[name] = node.output[index] = names.fresh(name)
        nodes.append(node)
    return nodes, [new_names.get(value.name, value.name) for value in graph.output]


def redirect_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename the inputs of a node and the captured values of its bodies."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for inner in list_bodies(node):
        rename_captured(inner, names)
