"""Shape and Size of a tensor."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(name="Shape", since=25, traits=Trait.FOLDABLE | Trait.READS_SIZES),
    Operator(name="Size", since=25, traits=Trait.FOLDABLE | Trait.READS_SIZES),
)
