"""Concat."""

from typing import Final

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Concat",
        since=13,
        compute_sizes=arithmetic.move_numbers,
        moments=rules.mixed,
        traits=Trait.FOLDABLE
        | Trait.COMPUTES_SIZES
        | Trait.SELECTS
        | Trait.EXACT_SPECIALS
        | Trait.KEEPS_VALUES,
    ),
)
