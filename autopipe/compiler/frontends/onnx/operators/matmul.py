"""MatMul and Gemm."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Gemm",
        since=13,
        converter=onnx_frontend.Gemm,
        weights={0: "kernel", 1: "kernel", 2: "shift"},
        traits=Trait.ENDS_IMAGE | Trait.REFUSES_NO_ROWS,
    ),
    Operator(
        name="MatMul",
        since=13,
        converter=onnx_frontend.MatMul,
        empty_result=0,
        weights={0: "kernel", 1: "kernel"},
        row_moments=rules.product_of_rows,
        traits=Trait.FOLDABLE,
    ),
)
