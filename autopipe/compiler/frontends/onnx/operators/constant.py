"""Constant."""

from typing import Final

from tvm import relax, te, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


class Constant(onnx_frontend.Constant):
    """Constant; an empty one becomes a kernel: TVM's runtime does not load empty tensors."""

    @classmethod
    def _impl_v13(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        constant = super()._impl_v13(bb, inputs, attr, params)
        array = constant.value.numpy()
        if array.size:
            return constant
        number = tirx.const(0, str(array.dtype))

        def nothing(_: te.Tensor) -> te.Tensor:
            return te.compute(array.shape, lambda *_: number, name="nothing")

        source = next(value for value in params[0].values() if isinstance(value, relax.Var))
        return bb.emit_te(nothing, source, primfunc_name_hint="nothing")


OPERATORS: Final = (
    Operator(name="Constant", since=25, converter=Constant, traits=Trait.EXACT_SPECIALS),
)
