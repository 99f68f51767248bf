"""BatchNormalization with the statistics of training."""

from typing import Any, Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

# ruff: noqa: ANN401  TVM's converters have no types, and one signature


class BatchNormalization(onnx_frontend.BatchNormalization):
    """BatchNormalization in inference."""

    @classmethod
    def _impl_v15(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
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
