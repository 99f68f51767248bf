"""Types of the parameters and results of converters to Relax."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.reading.tensors import Array

BlockBuilder = relax.BlockBuilder

Inputs = Sequence[Expr]
"""Operands of a node. An absent one is None: read it by `NodeSite.find_input`, never by index.
Required ones are present, as `reading.check_operators` checks."""

Attributes = dict[str, Any]
"""Attributes of a node by name: numbers, bytes, tensors or lists of them. TVM adds `tvm_custom`,
with the name of the node and the number of its outputs."""

Parameters = Sequence[dict[str, Any]]
"""Values of the graph by name, and those of its parameters that are constants."""

Numbers = Sequence[Array | None]
"""The elements of each operand, possibly expressions of dynamic sizes; None if they depend on
data."""

Size = int | Expr
"""A size, an integer if it is static."""

TvmConvert = Callable[[BlockBuilder, Inputs, Attributes, Parameters], Expr]
"""Converts a node to Relax, as TVM's converters do."""
