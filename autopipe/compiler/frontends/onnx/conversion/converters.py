"""Install the converters of `operators/` in TVM's ONNX importer."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onnx import ModelProto
from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions
from autopipe.compiler.frontends.onnx.conversion.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    TvmConvert,
)
from autopipe.compiler.frontends.onnx.conversion.failing_node import name_errors
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.dynamic_sizes.node_converter import convert_node
from autopipe.compiler.frontends.onnx.operator import ONNX, Operator
from autopipe.compiler.frontends.onnx.operators import OPERATORS
from autopipe.compiler.frontends.onnx.reading.tensors import HIDDEN_NAMES, list_nodes
from autopipe.compiler.patches import replace_converters

_BY_NAME: Final = {
    operator.name: operator
    for operator in sorted(OPERATORS.values(), key=lambda one: one.domain == ONNX)
    if operator.converter is not None
}
"""Operators with a converter by name: TVM's importer ignores domains. ONNX's own come last, so that
they override others of that name."""


def hide_control_nodes(model: ModelProto) -> None:
    """Rename control flow nodes to their hidden names."""
    for node in list_nodes(model.graph):
        if node.op_type in HIDDEN_NAMES:
            node.op_type = HIDDEN_NAMES[node.op_type]
            node.name = node.name or next(filter(None, node.output), "")


@dataclass(frozen=True, slots=True)
class NodeConverter:
    """A converter of an operator's nodes with the interface of TVM's converter classes."""

    operator: Operator
    extents: Extents
    functions: BodyFunctions
    recorder: ConvertedNodes

    def get_converter(self, opset: int) -> TvmConvert:
        """Return the conversion function, as TVM's importer requests it."""

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            self.functions.within(bb)
            site = NodeSite(
                self.operator.name, bb, inputs, attr, params, opset, self.extents, self.functions
            )
            with name_errors(site):
                result = convert_node(self.operator, site)
                result = bb.normalize(result) if isinstance(result, relax.Expr) else result
            self.recorder.record(attr, result)
            return result

        return convert


@contextlib.contextmanager
def install_converters(extents: Extents, recorder: ConvertedNodes) -> Iterator[None]:
    """Install these converters in TVM's importer; their errors name the node.

    Args:
        extents: The dynamic sizes of the model, with the recorded elements of shape tensors.
        recorder: Records the result of each node.
    """
    functions = BodyFunctions()
    converters = {
        HIDDEN_NAMES.get(name, name): NodeConverter(operator, extents, functions, recorder)
        for name, operator in _BY_NAME.items()
    }
    with replace_converters(converters):
        yield
