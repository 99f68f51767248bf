"""Transpose."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Transpose",
        since=25,
        converter=onnx_frontend.Transpose,
        traits=Trait.FOLDABLE | Trait.KEEPS_ELEMENTS | Trait.KEEPS_WEIGHTS | Trait.EXACT_SPECIALS,
    ),
)
