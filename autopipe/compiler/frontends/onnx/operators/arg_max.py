"""ArgMax and ArgMin: the index of the extreme element along an axis."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(name="ArgMax", since=13, empty_result=0, traits=Trait.FOLDABLE),
    Operator(name="ArgMin", since=13, empty_result=0, traits=Trait.FOLDABLE),
)
