"""An index of an ONNX graph: constants, producers and readers by name."""

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import GraphProto, NodeProto
from onnx.numpy_helper import from_array, to_array

from autopipe.compiler.frontends.onnx.reading.tensors import (
    Array,
    count_uses,
    read_stored,
    replace_nodes,
)


class GraphIndex:
    """An index of a graph's values by name.

    Changes of nodes go through `replace_nodes` or `replace_results`, or `index_nodes` follows them.
    """

    def __init__(self, graph: GraphProto) -> None:
        self.graph = graph
        self.stored = read_stored(graph)
        self.index_nodes()

    def index_nodes(self) -> None:
        """Rebuild the index of producers and readers."""
        self.producers = {name: node for node in self.graph.node for name in node.output if name}
        self.readers = count_uses(self.graph)
        self._last_readers = {name: node for node in self.graph.node for name in node.input}

    def replace_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Replace the nodes of the graph by others, which may be some of its own."""
        replace_nodes(self.graph, nodes)
        self.index_nodes()

    def replace_results(self, nodes: Mapping[str, list[NodeProto]]) -> None:
        """Replace the nodes that compute the named values; an index of no changes stays."""
        if not nodes:
            return
        old_nodes = self.graph.node
        self.replace_nodes(new for old in old_nodes for new in nodes.get(old.output[0], [old]))

    def find_constant(self, name: str) -> Array | None:
        """Return the values of a constant, None if the value is computed."""
        return np.asarray(to_array(self.stored[name])) if name in self.stored else None

    def find_producer(self, name: str, *kinds: str) -> NodeProto | None:
        """Return the node that computes a value, if it is one of some standard operators."""
        node = self.producers.get(name)
        return node if node is not None and node.op_type in kinds and not node.domain else None

    def find_only_reader(self, name: str) -> NodeProto | None:
        """Return the only reader of a value, None if it has several or is an output."""
        return self._last_readers.get(name) if self.readers[name] == 1 else None

    def store_as(self, name: str, values: Array) -> str:
        """Add an initializer, possibly in place of the node that computed it; returns the name."""
        self.stored[name] = tensor = self.graph.initializer.add()
        tensor.CopyFrom(from_array(np.asarray(values), name))
        return name
