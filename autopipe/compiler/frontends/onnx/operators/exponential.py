"""Exponentials and logarithms."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Erf",
        since=13,
        converter=onnx_frontend.Erf,
        traits=Trait.FOLDABLE,
        saturation_slope=1.13,
    ),
    Operator(name="Exp", since=13, converter=onnx_frontend.Exp, traits=Trait.FOLDABLE),
    Operator(
        name="Log",
        since=13,
        converter=onnx_frontend.Log,
        traits=Trait.FOLDABLE | Trait.SINGULAR_AT_ZERO,
    ),
)
