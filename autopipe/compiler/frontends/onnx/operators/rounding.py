"""Ceil, Floor and Round."""

from typing import Final

from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Ceil",
        since=13,
        compute_sizes=arithmetic.round_up,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Floor",
        since=13,
        compute_sizes=arithmetic.round_down,
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS,
    ),
    Operator(
        name="Round", since=22, traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.EXACT_SPECIALS
    ),
)
