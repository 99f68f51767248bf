"""Converters of control flow for TVM's importer of ONNX.

TVM handles If itself, in a way of its own: both branches are computed beforehand, as far as their
converters emit anything, and nothing of such a model is fused. It has no Loop and no Scan. So nodes
of these kinds get other names before TVM sees them, and names and converters are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onnx import ModelProto
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions, ControlSite
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.reading.tensors import list_graphs

HIDDEN_NAMES: Final = {"If": "autopipe_If", "Loop": "autopipe_Loop"}
"""What nodes of control flow are called before TVM sees them."""


def hide_control_nodes(model: ModelProto) -> None:
    """Give the nodes of control flow their hidden names."""
    for graph in list_graphs(model.graph):
        for node in graph.node:
            if node.op_type in HIDDEN_NAMES:
                node.op_type = HIDDEN_NAMES[node.op_type]
                node.name = node.name or next(filter(None, node.output), "")


@dataclass(frozen=True, slots=True)
class ControlFlowConverter:
    """What TVM's importer takes for one of its classes of converters."""

    functions: BodyFunctions
    function: Callable[[BodyFunctions, ControlSite], Expr]

    def get_converter(self, opset: int) -> Convert:
        """Return the function that makes Relax of a node."""

        def convert(
            builder: BlockBuilder, inputs: Inputs, attrs: Attributes, params: Parameters
        ) -> Expr:
            self.functions.within(builder)
            site = ControlSite(builder, list(inputs), attrs, params[0], opset)
            return self.function(self.functions, site)

        return convert
