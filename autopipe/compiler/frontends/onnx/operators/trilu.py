"""Trilu: the upper or lower triangle of a matrix."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class Trilu(onnx_frontend.Trilu):
    """Trilu with a diagonal that may lie outside of the matrix and exceed int32."""

    @classmethod
    def _impl_v14(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, diagonal = inputs[0], find_optional_input(inputs, 1)
        offset = operand_facts.read_values(diagonal, params)
        sizes = operand_facts.read_extents(
            data.ty, f"input of Trilu {operand_facts.quote_node_name(attr)}"
        )[-2:]
        if offset is not None and min(sizes) >= 0:
            rows, columns = sizes
            nearest = min(max(int(offset.item()), -rows), columns)
            diagonal = relax.const(nearest, "int64")
        return super()._impl_v14(bb, [data, diagonal], attr, params)


OPERATORS: Final = (Operator(name="Trilu", since=14, converter=Trilu, traits=Trait.FOLDABLE),)
