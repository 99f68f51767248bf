"""Sign."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class Sign(onnx_frontend.Sign):
    """Sign that propagates NaN."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data = inputs[0]
        sign = bb.normalize(super()._impl_v9(bb, inputs, attr, params))
        if not str(data.ty.dtype).startswith("float"):
            return sign
        return relax.op.where(bb.normalize(relax.op.isnan(data)), data, sign)


OPERATORS: Final = (
    Operator(name="Sign", since=13, converter=Sign, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
)
