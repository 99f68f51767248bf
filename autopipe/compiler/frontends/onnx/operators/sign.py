"""Sign."""

from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ANN401  TVM's converters have no types, and one signature


class Sign(onnx_frontend.Sign):
    """Sign, also of what is not a number."""

    @classmethod
    def _impl_v9(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data = inputs[0]
        sign = bb.normalize(super()._impl_v9(bb, inputs, attr, params))
        if not str(data.ty.dtype).startswith("float"):
            return sign
        return relax.op.where(bb.normalize(relax.op.isnan(data)), data, sign)


OPERATORS: Final = (
    Operator(
        name="Sign",
        since=13,
        converter=Sign,
        traits=Trait.FOLDABLE | Trait.EXACT_SPECIALS,
    ),
)
