"""Gelu, exact or approximated by tanh."""

from typing import Final

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator

OPERATORS: Final = (
    Operator(name="BiasGelu", domain=MICROSOFT, inputs=("A", "B")),
    Operator(name="FastGelu", domain=MICROSOFT, inputs=("X",)),
    Operator(name="Gelu", since=20, moments=rules.rectified),
    Operator(name="Gelu", domain=MICROSOFT, inputs=("X",)),
)
