"""FusedMatMul of onnxruntime: alpha times a matrix product of optionally transposed factors."""

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
)
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator
from autopipe.errors import ModelError

# ruff: noqa: ARG003  TVM's converters have one signature


class FusedMatMul(onnx_frontend.OnnxOpConverter):
    """A matrix product of any float."""

    @classmethod
    def _impl_v1(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        flags = [name for name in ("transBatchA", "transBatchB") if attr.get(name, 0)]
        if flags:
            raise ModelError(
                f"FusedMatMul {operand_facts.quote_node_name(attr)} with {' and '.join(flags)} "
                "is not supported"
            )
        left = _swap_last_axes(bb, inputs[0], attr.get("transA", 0))
        right = _swap_last_axes(bb, inputs[1], attr.get("transB", 0))
        product = bb.normalize(relax.op.matmul(left, right))
        alpha = float(attr.get("alpha", 1.0))
        if alpha == 1.0:
            return product
        return relax.op.multiply(product, relax.const(alpha, product.ty.dtype))


def _swap_last_axes(bb: BlockBuilder, factor: Expr, is_asked: int) -> Expr:
    """Transpose the last two axes if the flag is set; as in onnxruntime, a vector is unchanged."""
    rank = int(factor.ty.ndim)
    if not is_asked or rank == 1:
        return factor
    return bb.normalize(relax.op.permute_dims(factor, [*range(rank - 2), rank - 1, rank - 2]))


OPERATORS: Final = (
    Operator(
        name="FusedMatMul",
        domain=MICROSOFT,
        inputs=("A", "B"),
        converter=FusedMatMul,
        empty_result=0,
        weights={0: "kernel", 1: "kernel"},
    ),
)
