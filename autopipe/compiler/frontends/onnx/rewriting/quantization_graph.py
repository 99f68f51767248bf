"""An index of an ONNX graph for the rewrites of quantized models."""

from typing import Final

import numpy as np
from onnx import NodeProto

from autopipe.compiler.frontends.onnx.reading.graph_index import GraphIndex
from autopipe.compiler.frontends.onnx.reading.tensors import Array

BYTES: Final = frozenset({"int8", "uint8"})
_STEPS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})
_WITHOUT_ZERO: Final = 2


class QuantizedGraph(GraphIndex):
    """A graph with its quantizations."""

    def is_plain(self, node: NodeProto) -> bool:
        """Whether a node quantizes or dequantizes by a constant scalar scale and zero point."""
        if node.op_type not in _STEPS or len(node.input) <= _WITHOUT_ZERO:
            return False
        scale, zero = self.find_constant(node.input[1]), self.zero(node)
        if scale is None or scale.dtype != np.float32 or zero is None:
            return False
        special = {each.name for each in node.attribute} - {"axis"}
        if scale.size * zero.size != 1 or str(zero.dtype) not in BYTES or special:
            return False
        return 0 < scale.item() < np.inf

    def number(self, name: str) -> np.float32:
        """Return a scalar constant."""
        return np.float32(np.asarray(self.find_constant(name)).item())

    def zero(self, node: NodeProto) -> Array | None:
        """Return a node's constant zero point, None if it is absent or computed."""
        return self.find_constant(node.input[2]) if len(node.input) > _WITHOUT_ZERO else None

    def alike(self, first: NodeProto, second: NodeProto) -> bool:
        """Whether two plain nodes have the same scale and zero point."""
        zeros = [np.asarray(self.zero(node)) for node in (first, second)]
        return (
            self.number(first.input[1]) == self.number(second.input[1])
            and zeros[0].dtype == zeros[1].dtype
            and zeros[0].item() == zeros[1].item()
        )
