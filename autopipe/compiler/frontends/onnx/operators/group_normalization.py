"""GroupNormalization and InstanceNormalization."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(
        name="GroupNormalization",
        since=21,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
    Operator(
        name="InstanceNormalization",
        since=22,
        weights={1: "scale", 2: "shift"},
        traits=Trait.NORMALIZES,
    ),
)
