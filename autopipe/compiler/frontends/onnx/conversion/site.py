"""An ONNX node in its graph, as converters to Relax see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.control.functions import BodyFunctions
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
    Size,
    TvmConvert,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.errors import ModelError


@dataclass(frozen=True, slots=True)
class NodeSite:
    """A node and its context while it is converted to Relax."""

    kind: str
    """The name of its operator."""
    bb: BlockBuilder
    """TVM's builder of the function that contains it."""
    inputs: Inputs
    attr: Attributes
    params: Parameters
    """All values of the function so far, by their names in the model, and constant parameters."""
    opset: int
    extents: Extents
    """The dynamic dimensions of the model."""
    functions: BodyFunctions
    numbers: Numbers = ()
    """The elements of each input, if shapes are dynamic."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return str(self.attr["tvm_custom"]["name"])

    @property
    def label(self) -> str:
        """Operator and name of the node, for messages."""
        return f"{self.kind} {self.name!r}"

    @property
    def output_count(self) -> int:
        """The number of its outputs."""
        return int(self.attr["tvm_custom"]["num_outputs"])

    def find_input(self, index: int) -> Expr | None:
        """Return an optional input, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def read_sizes(self, index: int = 0) -> list[Size]:
        """Return the sizes of an input, integers if static; raises `ModelError` if unknown."""
        return self.extents.shape(self.inputs[index], self.label)

    def read_values(self, index: int) -> Array | None:
        """Return the values of an input, None if it is computed, a model input or absent."""
        return operand_facts.read_values(self.find_input(index), self.params)

    def require_values(self, index: int, label: str) -> Array:
        """Return the values of an input; raises `ModelError` with `label` if they are computed."""
        values = self.read_values(index)
        if values is None:
            raise ModelError(f"{label} is not constant")
        return values

    def convert_by_tvm(
        self, inputs: Sequence[Expr | None] | None = None, attr: Attributes | None = None
    ) -> Expr:
        """Convert the node by TVM's converter of its operator, possibly with other inputs."""
        return self.convert_by(getattr(onnx_frontend, self.kind), inputs, attr)

    def convert_by(
        self,
        converter: "Converter",
        inputs: Sequence[Expr | None] | None = None,
        attr: Attributes | None = None,
    ) -> Expr:
        """Convert the node by a converter of TVM or ours, possibly with other inputs."""
        operands = self.inputs if inputs is None else onnx_frontend.onnx_input(inputs)
        attributes = self.attr if attr is None else attr
        if isinstance(converter, type):
            tvm_converter: Any = converter
            convert: TvmConvert = tvm_converter.get_converter(self.opset)
            return convert(self.bb, operands, attributes, self.params)
        return converter(replace(self, inputs=operands, attr=attributes))


Converter = type[onnx_frontend.OnnxOpConverter] | Callable[[NodeSite], Expr]
"""Converts a node to Relax: a class of TVM's importer, or a function of ours."""
