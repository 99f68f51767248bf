"""Gelu, exact or approximated by tanh."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.operator import MICROSOFT, Operator

OPERATORS: Final = (
    Operator(
        name="BiasGelu", domain=MICROSOFT, inputs=("A", "B"), converter=onnx_frontend.BiasGelu
    ),
    Operator(name="FastGelu", domain=MICROSOFT, inputs=("X",), converter=onnx_frontend.FastGelu),
    Operator(name="Gelu", since=20, converter=onnx_frontend.Gelu, moments=rules.rectified),
    Operator(name="Gelu", domain=MICROSOFT, inputs=("X",), converter=onnx_frontend.Gelu),
)
