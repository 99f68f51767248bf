"""Transpose."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="Transpose",
        since=25,
        traits=Trait.FOLDABLE | Trait.KEEPS_ELEMENTS | Trait.KEEPS_WEIGHTS | Trait.EXACT_SPECIALS,
    ),
)
