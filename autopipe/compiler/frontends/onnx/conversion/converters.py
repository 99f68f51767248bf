"""Install the converters of `operators/` in TVM's ONNX importer."""

import contextlib
from collections.abc import Iterator
from typing import Final

from autopipe.compiler.frontends.onnx.control.converters import (
    HIDDEN_NAMES,
    ControlFlowConverter,
)
from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions
from autopipe.compiler.frontends.onnx.conversion.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.conversion.failing_node import name_errors
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.dynamic_sizes.node_converter import DynamicConverter
from autopipe.compiler.frontends.onnx.operator import ONNX
from autopipe.compiler.frontends.onnx.operators import OPERATORS
from autopipe.compiler.patches import replace_converters

_BY_NAME: Final = {
    operator.name: operator
    for operator in sorted(OPERATORS.values(), key=lambda one: one.domain == ONNX)
    if operator.converter is not None or operator.convert_control is not None
}
"""Operators with a converter by name: TVM's importer ignores domains. ONNX's own come last, so that
they override others of that name."""


@contextlib.contextmanager
def install_converters(extents: Extents, recorder: ConvertedNodes) -> Iterator[None]:
    """Install these converters in TVM's importer; their errors name the node.

    Args:
        extents: The dynamic sizes of the model, with the recorded elements of shape tensors.
        recorder: Records the result of each node.
    """
    functions = BodyFunctions()
    converters = {}
    for name, operator in _BY_NAME.items():
        static = operator.converter
        if operator.convert_control is not None:
            static = ControlFlowConverter(functions, operator.convert_control)
        if static is not None:
            converters[HIDDEN_NAMES.get(name, name)] = DynamicConverter(operator, static, extents)
    with replace_converters(name_errors(converters, recorder)):
        yield
