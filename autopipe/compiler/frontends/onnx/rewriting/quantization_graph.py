"""An index of an ONNX graph for the rewrites of quantized models."""

from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, numpy_helper

from autopipe.compiler.frontends.onnx.reading.tensors import Array, count_uses, replace_nodes

BYTES: Final = frozenset({"int8", "uint8"})
_STEPS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
_WITHOUT_ZERO: Final = 2


class QuantizedGraph:
    """A graph with an index of constants, producers and readers."""

    def __init__(self, graph: GraphProto) -> None:
        self.proto = graph
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._readers = {name: node for node in graph.node for name in node.input}
        self._uses = count_uses(graph)

    def constant(self, name: str) -> Array | None:
        """Return the values of a constant, None if the value is computed."""
        maker = self._makers.get(name)
        if maker is not None and maker.op_type == "Constant" and maker.attribute[0].HasField("t"):
            return np.asarray(numpy_helper.to_array(maker.attribute[0].t))
        return (
            np.asarray(numpy_helper.to_array(self._stored[name])) if name in self._stored else None
        )

    def maker(self, name: str, kind: str) -> NodeProto | None:
        """Return the node that computes a value, if its operator is `kind`."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type == kind else None

    def reader(self, name: str) -> NodeProto | None:
        """Return the only reader of a value, None if it has several or is an output."""
        return self._readers.get(name) if self._uses[name] == 1 else None

    def store(self, name: str, values: Array) -> str:
        """Add an initializer and return its name."""
        self.proto.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def replace(self, nodes: dict[str, list[NodeProto]]) -> None:
        """Replace the nodes that compute the named values."""
        old_nodes = self.proto.node
        replace_nodes(self.proto, (n for old in old_nodes for n in nodes.get(old.output[0], [old])))

    def is_plain(self, node: NodeProto) -> bool:
        """Whether a node quantizes or dequantizes by a constant scalar scale and zero point."""
        if node.op_type not in _STEPS or len(node.input) <= _WITHOUT_ZERO:
            return False
        scale, zero = self.constant(node.input[1]), self.zero(node)
        if scale is None or scale.dtype != np.float32 or zero is None:
            return False
        special = {each.name for each in node.attribute} - {"axis"}
        if scale.size * zero.size != 1 or str(zero.dtype) not in BYTES or special:
            return False
        return 0 < scale.item() < np.inf

    def number(self, name: str) -> np.float32:
        """Return a scalar constant."""
        return np.float32(np.asarray(self.constant(name)).item())

    def zero(self, node: NodeProto) -> Array | None:
        """Return a node's constant zero point, None if it is absent or computed."""
        return self.constant(node.input[2]) if len(node.input) > _WITHOUT_ZERO else None

    def alike(self, first: NodeProto, second: NodeProto) -> bool:
        """Whether two plain nodes have the same scale and zero point."""
        zeros = [np.asarray(self.zero(node)) for node in (first, second)]
        return (
            self.number(first.input[1]) == self.number(second.input[1])
            and zeros[0].dtype == zeros[1].dtype
            and zeros[0].item() == zeros[1].item()
        )
