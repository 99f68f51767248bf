"""IsNaN and IsInf."""

from typing import Final

import numpy as np
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


class IsInf(onnx_frontend.IsInf):
    """IsInf of both signs or of one."""

    @classmethod
    def _impl_v10(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        negative, positive = (attr.get(f"detect_{sign}", 1) for sign in ("negative", "positive"))
        if negative and positive:
            return super()._impl_v10(bb, inputs, attr, params)
        if not negative and not positive:
            return relax.op.zeros(inputs[0].ty.shape, "bool")
        infinity = np.inf if positive else -np.inf
        return relax.op.equal(inputs[0], relax.const(infinity, inputs[0].ty.dtype))


OPERATORS: Final = (
    Operator(name="IsInf", since=20, converter=IsInf, traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS),
    Operator(
        name="IsNaN",
        since=20,
        converter=onnx_frontend.IsNaN,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
)
