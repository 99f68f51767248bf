"""Trigonometric and hyperbolic functions."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(name="Acos", since=22),
    Operator(name="Acosh", since=22, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Asin", since=22),
    Operator(name="Asinh", since=22),
    Operator(name="Atan", since=22),
    Operator(name="Atanh", since=22, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Cos", since=22, traits=Trait.FOLDABLE),
    Operator(name="Cosh", since=22),
    Operator(name="Sin", since=22, traits=Trait.FOLDABLE),
    Operator(name="Sinh", since=22),
    Operator(name="Tan", since=22, traits=Trait.FOLDABLE),
    Operator(name="Tanh", since=13, traits=Trait.FOLDABLE, saturation_slope=1.0),
)
