"""An index of a graph for rewrites: producers, readers, types and initializers by name."""

from collections.abc import Iterable

from onnx import AttributeProto, GraphProto, NodeProto
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.control.scopes import Names
from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    count_uses,
    list_bodies,
    replace_nodes,
)
from autopipe.compiler.frontends.onnx.rewriting.simplify.value_types import (
    UNKNOWN,
    ValueType,
    read_types,
)

STANDARD = ("", "ai.onnx")
"""Names of the standard domain."""


class GraphView:
    """An index of a graph's values by name, shared by a round of rewrites.

    A rewrite changes nodes by `replace_nodes`, or calls `index_nodes` after its changes; it adds
    tensors by `store` and `store_as`. Types are those noted before the round: rewrites change none.
    """

    def __init__(self, graph: GraphProto, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.index_nodes()
        self.results = {value.name for value in graph.output}
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.dimensions = {
            dim.dim_param for each in graph.input for dim in each.type.tensor_type.shape.dim
        } - {""}
        """Names of the inputs' dynamic dimensions."""
        self._types = read_types(graph)
        self._names: Names | None = None

    def index_nodes(self) -> None:
        """Rebuild the index of producers and readers."""
        self.makers = {name: node for node in self.graph.node for name in node.output if name}
        self.readers = count_uses(self.graph)

    def replace_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Replace the nodes of the graph by others, which may be some of its own."""
        replace_nodes(self.graph, nodes)
        self.index_nodes()

    def type_of(self, name: str) -> ValueType:
        """Return the type of a value as far as it is known."""
        return self._types.get(name, UNKNOWN)

    def is_stored(self, names: Iterable[str]) -> bool:
        """Whether all values are initializers; absent inputs are ignored."""
        return all(name in self.stored for name in names if name)

    def constant(self, name: str) -> Array | None:
        """Return the values of an initializer, None if the value is computed."""
        return to_array(self.stored[name]) if name in self.stored else None

    def maker(self, name: str, kind: str) -> NodeProto | None:
        """Return the node that computes a value, if it is the standard operator `kind`."""
        node = self.makers.get(name)
        if node is None or node.op_type != kind or node.domain not in STANDARD:
            return None
        return node

    def store(self, values: Array, name: str) -> str:
        """Add an initializer under a new name with prefix `name`; returns the name."""
        self._names = self._names or Names(self.graph)
        new = self._names.fresh(name)
        self.store_as(new, values)
        return new

    def store_as(self, name: str, values: Array) -> None:
        """Add an initializer, possibly in place of the node that computed the value."""
        tensor = self.graph.initializer.add()
        tensor.CopyFrom(from_array(values, name))
        self.stored[name] = tensor
        self._types[name] = ValueType(tensor.data_type, tuple(tensor.dims))


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
