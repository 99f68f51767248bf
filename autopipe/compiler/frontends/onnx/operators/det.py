"""Det: determinants of small matrices."""

import itertools
from typing import Final

from tvm import te
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError

# ruff: noqa: ARG003  TVM's converters have one signature

_LARGEST: Final = 4
"""Maximum number of rows; the number of products is its factorial."""


class Det(onnx_frontend.OnnxOpConverter):
    """Det of small matrices, as sums of products."""

    @classmethod
    def _impl_v11(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        size = operand_facts.require_shape(
            inputs[0], f"input of Det {operand_facts.quote_node_name(attr)}"
        )[-1]
        if not 1 <= size <= _LARGEST:
            raise ModelError(
                f"Det {operand_facts.quote_node_name(attr)} is of {size} rows; "
                f"up to {_LARGEST} are supported"
            )

        def determinant(data: te.Tensor) -> te.Tensor:
            def at(*index: Expr) -> Size:
                total: Size = 0
                for columns in itertools.permutations(range(size)):
                    product = data[*index, 0, columns[0]]
                    for row, column in list(enumerate(columns))[1:]:
                        product = product * data[*index, row, column]
                    total = total + product if _is_even(columns) else total - product
                return total

            return te.compute(data.shape[:-2], at, name="det")

        return bb.emit_te(determinant, inputs[0], primfunc_name_hint="det")


def _is_even(order: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(order, 2)) % 2 == 0


OPERATORS: Final = (Operator(name="Det", since=22, converter=Det),)
