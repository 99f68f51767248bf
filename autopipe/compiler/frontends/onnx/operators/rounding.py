"""Ceil, Floor and Round."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Ceil",
        since=13,
        converter=onnx_frontend.Ceil,
        compute_sizes=arithmetic.round_up,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Floor",
        since=13,
        converter=onnx_frontend.Floor,
        compute_sizes=arithmetic.round_down,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Round",
        since=22,
        converter=onnx_frontend.Round,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
)
