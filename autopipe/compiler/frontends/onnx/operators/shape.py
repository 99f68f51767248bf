"""Shape and Size of a tensor."""

import math
from typing import Any, Final

from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ANN401  TVM's converters have no types, and one signature


class TensorSize(onnx_frontend.Size):
    """Size as a number, where the shape is known."""

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        dims = getattr(inputs[0].ty.shape, "values", None)
        if dims is None or not all(isinstance(dim, tirx.IntImm) for dim in dims):
            return super()._impl_v1(bb, inputs, attr, params)
        return relax.const(math.prod(int(dim) for dim in dims), "int64")


OPERATORS: Final = (
    Operator(
        name="Shape",
        since=25,
        converter=onnx_frontend.Shape,
        traits=Trait.FOLDABLE | Trait.READS_SIZES,
    ),
    Operator(
        name="Size",
        since=25,
        converter=TensorSize,
        traits=Trait.FOLDABLE | Trait.READS_SIZES,
    ),
)
