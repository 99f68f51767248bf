"""Shape and Size of a tensor."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

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
        converter=onnx_frontend.Size,
        traits=Trait.FOLDABLE | Trait.READS_SIZES,
    ),
)
