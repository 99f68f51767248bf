"""GroupNormalization and InstanceNormalization."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="GroupNormalization",
        since=21,
        converter=onnx_frontend.GroupNormalization,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="InstanceNormalization",
        since=22,
        converter=onnx_frontend.InstanceNormalization,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
)
