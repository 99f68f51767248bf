"""Has TVM's importer of ONNX use the converters of `operators/`."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from autopipe.compiler.frontends.onnx.control.converters import (
    HIDDEN_NAMES,
    ControlFlowConverter,
)
from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions
from autopipe.compiler.frontends.onnx.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.named import named
from autopipe.compiler.frontends.onnx.open.converters import OpenConverter
from autopipe.compiler.frontends.onnx.open.extents import Extents
from autopipe.compiler.frontends.onnx.operator import ONNX
from autopipe.compiler.frontends.onnx.operators import OPERATORS
from autopipe.compiler.patches import replace_converters

_CONVERTED: Final = {
    operator.name: operator
    for operator in sorted(OPERATORS.values(), key=lambda one: one.domain == ONNX)
    if operator.converter is not None or operator.convert_control is not None
}
"""Operators with a converter by name: TVM's importer knows no domains. ONNX's own come last, and so
take the place of others of that name."""


@contextlib.contextmanager
def replaced(
    extents: Extents | None = None, converted: ConvertedNodes | None = None
) -> Iterator[None]:
    """Have TVM's importer use these converters, and say which node fails.

    `extents` has what is known of open sizes; None where there are none. `converted` records what
    each node becomes.
    """
    functions = BodyFunctions()
    converters: dict[str, Any] = {}
    for name, operator in _CONVERTED.items():
        converter = operator.converter
        if operator.convert_control is not None:
            converter = ControlFlowConverter(functions, operator.convert_control)
        if extents is not None:
            converter = OpenConverter(operator, converter, extents)
        converters[HIDDEN_NAMES.get(name, name)] = converter
    with replace_converters(named(converters, converted or ConvertedNodes())):
        yield
