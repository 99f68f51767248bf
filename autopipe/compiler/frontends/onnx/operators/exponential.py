"""Exponentials and logarithms."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(name="Erf", since=13, traits=Trait.FOLDABLE, saturation_slope=1.13),
    Operator(name="Exp", since=13, traits=Trait.FOLDABLE),
    Operator(name="Log", since=13, traits=Trait.FOLDABLE | Trait.SINGULAR_AT_ZERO),
)
