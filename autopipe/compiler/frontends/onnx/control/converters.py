"""Converters of control flow for TVM's importer of ONNX.

TVM's own converter of If computes both branches beforehand and prevents fusion in the whole model;
TVM has none for Loop and Scan. These nodes are therefore renamed to operators of our own, with our
converters, before TVM's importer runs.
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
"""Names of control flow operators that hide them from TVM's importer."""


def hide_control_nodes(model: ModelProto) -> None:
    """Rename control flow nodes to their hidden names."""
    for graph in list_graphs(model.graph):
        for node in graph.node:
            if node.op_type in HIDDEN_NAMES:
                node.op_type = HIDDEN_NAMES[node.op_type]
                node.name = node.name or next(filter(None, node.output), "")


@dataclass(frozen=True, slots=True)
class ControlFlowConverter:
    """A converter of control flow with the interface of TVM's converter classes."""

    functions: BodyFunctions
    function: Callable[[BodyFunctions, ControlSite], Expr]

    def get_converter(self, opset: int) -> Convert:
        """Return the function that converts a node to Relax."""

        def convert(
            builder: BlockBuilder, inputs: Inputs, attrs: Attributes, params: Parameters
        ) -> Expr:
            self.functions.within(builder)
            site = ControlSite(builder, list(inputs), attrs, params[0], opset)
            return self.function(self.functions, site)

        return convert
