"""BatchNormalization with its running statistics."""

from typing import Final

from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError


class BatchNormalization(onnx_frontend.BatchNormalization):
    """BatchNormalization in inference."""

    @classmethod
    def _impl_v15(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        if attr.get("training_mode", 0):
            raise ModelError("BatchNormalization with training_mode is not supported")
        return super()._impl_v15(bb, inputs, attr, params)


OPERATORS: Final = (
    Operator(
        name="BatchNormalization",
        since=15,
        converter=BatchNormalization,
        weights={1: "scale", 2: "shift", 3: "mean", 4: "variance"},
        traits=Trait.NORMALIZES,
    ),
)
