"""Types of what TVM's importer passes to a converter, and of what a converter returns."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.reading.tensors import Array

BlockBuilder = relax.BlockBuilder

Inputs = Sequence[Expr]
"""Operands of a node. One that is left out is None: read it by `find_optional_input`, never by
index. Those that ONNX requires are there, as `reading.check_operators` checks."""

Attributes = dict[str, Any]
"""Attributes of a node by name: numbers, bytes, tensors or lists of them. TVM adds `tvm_custom`,
with the name of the node and the number of its outputs."""

Parameters = Sequence[dict[str, Any]]
"""Values of the graph by name, and those of its parameters that are constants."""

Numbers = Sequence[Array | None]
"""The numbers in each operand, objects of which some depend on dynamic sizes; None where they
depend on data."""

Size = int | Expr
"""A size, an integer where it is fixed."""

Convert = Callable[[BlockBuilder, Inputs, Attributes, Parameters], Expr]
"""Makes Relax of a node."""


class Converter(Protocol):
    """A class like TVM's `OnnxOpConverter`, or an object that takes the place of one."""

    def get_converter(self, opset: int, /) -> Convert:
        """Return the function that converts a node."""


def find_optional_input(inputs: Inputs, index: int) -> Expr | None:
    """Return an operand that ONNX allows to leave out, None if it is."""
    return inputs[index] if index < len(inputs) else None
