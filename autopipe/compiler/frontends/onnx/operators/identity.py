"""Identity."""

from typing import Final

from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Identity",
        since=25,
        compute_sizes=arithmetic.pass_on,
        traits=Trait.KEEPS_ELEMENTS
        | Trait.KEEPS_WEIGHTS
        | Trait.COMPUTES_SIZES
        | Trait.EXACT_SPECIALS,
    ),
)
