"""An index of a graph for rewrites: constants, producers, readers and types by name."""

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, NodeProto
from onnx.helper import np_dtype_to_tensor_dtype

from autopipe.compiler.frontends.onnx.control.scopes import Names
from autopipe.compiler.frontends.onnx.reading.graph_index import GraphIndex
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    list_bodies,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.reading.value_types import UNKNOWN, ValueType, read_types

STANDARD = ("", "ai.onnx")
"""Names of the standard domain."""


class GraphView(GraphIndex):
    """An index of a graph's values by name, with their types, shared by a round of rewrites.

    Types are those noted before the round: rewrites change none.
    """

    def __init__(self, graph: GraphProto, opset: int) -> None:
        super().__init__(graph)
        self.opset = opset
        self.results = {value.name for value in graph.output}
        self.dimensions = {
            dim.dim_param for each in graph.input for dim in each.type.tensor_type.shape.dim
        } - {""}
        """Names of the inputs' dynamic dimensions."""
        self.types = read_types(graph)
        self._names: Names | None = None

    def type_of(self, name: str) -> ValueType:
        """Return the type of a value as far as it is known."""
        return self.types.get(name, UNKNOWN)

    def is_stored(self, names: Iterable[str]) -> bool:
        """Whether all values are constants; absent inputs are ignored."""
        return all(name in self.stored for name in names if name)

    def store(self, values: Array, name: str) -> str:
        """Add an initializer under a new name with prefix `name`; returns the name."""
        return self.store_as(self.make_name(name), values)

    def make_name(self, name: str) -> str:
        """Return a name with a prefix that no value of the graph or its inner graphs has."""
        self._names = self._names or Names(self.graph)
        return self._names.fresh(name)

    def store_as(self, name: str, values: Array) -> str:
        """Add an initializer as `GraphIndex` does, and note its type."""
        self.types[name] = ValueType(np_dtype_to_tensor_dtype(values.dtype), values.shape)
        return super().store_as(name, values)


def name_operand(node: NodeProto, index: int) -> str:
    """Return the name of an input of a node, empty if it is absent."""
    return node.input[index] if len(node.input) > index else ""


def find_attribute(node: NodeProto, name: str) -> AttributeProto | None:
    """Return an attribute of a node, None if it is absent."""
    return next((each for each in node.attribute if each.name == name), None)


def drop_dead(graph: GraphProto) -> None:
    """Remove dead nodes, also in inner graphs, and dead initializers."""
    live = _drop_dead_nodes(graph)
    for index, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name not in live:
            del graph.initializer[index]


def _drop_dead_nodes(graph: GraphProto) -> set[str]:
    """Remove dead nodes; returns the names of live values."""
    live = {value.name for value in graph.output}
    live_nodes: list[NodeProto] = []
    for node in reversed(graph.node):
        if not live.isdisjoint(filter(None, node.output)):
            live_nodes.append(node)
            live.update(node.input)
            for body in list_bodies(node):
                live |= _drop_dead_nodes(body)
    if len(live_nodes) < len(graph.node):
        replace_nodes(graph, reversed(live_nodes))
    return live
