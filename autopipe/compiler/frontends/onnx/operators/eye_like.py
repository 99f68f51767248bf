"""EyeLike: an identity matrix of another tensor's shape."""

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


class EyeLike(onnx_frontend.EyeLike):
    """EyeLike with the dtype of its attribute."""

    @classmethod
    def _impl_v9(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if "dtype" not in attr:
            return super()._impl_v9(bb, inputs, attr, params)
        rows, columns = inputs[0].ty.shape.values
        dtype = onnx_frontend.get_type(attr["dtype"])
        return relax.op.eye(rows, columns, attr.get("k", 0), dtype)


OPERATORS: Final = (Operator(name="EyeLike", since=22, converter=EyeLike, traits=Trait.FOLDABLE),)
