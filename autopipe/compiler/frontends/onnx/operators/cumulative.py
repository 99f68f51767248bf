"""CumSum and CumProd: prefix sums and products along an axis."""

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
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class CumProd(onnx_frontend.OnnxOpConverter):
    """CumProd: cumulative products along an axis."""

    @classmethod
    def _impl_v26(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data = inputs[0]
        axis = int(
            operand_facts.require_values(
                inputs[1], params, f"axis of {operand_facts.quote_node_name(attr)}"
            ).item()
        )
        if attr.get("reverse", 0):
            data = bb.normalize(relax.op.flip(data, axis))
        product = bb.normalize(
            relax.op.cumprod(data, axis, exclusive=bool(attr.get("exclusive", 0)))
        )
        return bb.normalize(relax.op.flip(product, axis)) if attr.get("reverse", 0) else product


OPERATORS: Final = (
    Operator(name="CumProd", since=26, converter=CumProd),
    Operator(name="CumSum", since=14, converter=onnx_frontend.CumSum, traits=Trait.FOLDABLE),
)
