"""Where."""

from typing import Final

from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Where",
        since=16,
        compute_sizes=arithmetic.select_numbers,
        size_dtype=lambda site: str(site.inputs[1].ty.dtype),
        traits=Trait.FOLDABLE | Trait.COMPUTES_SIZES | Trait.SELECTS | Trait.EXACT_SPECIALS,
    ),
)
