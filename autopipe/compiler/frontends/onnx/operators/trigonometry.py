"""Trigonometric and hyperbolic functions."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator, Trait

OPERATORS: Final = (
    Operator(name="Acos", since=22, converter=onnx_frontend.Acos),
    Operator(name="Acosh", since=22, converter=onnx_frontend.Acosh, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Asin", since=22, converter=onnx_frontend.Asin),
    Operator(name="Asinh", since=22, converter=onnx_frontend.Asinh),
    Operator(name="Atan", since=22, converter=onnx_frontend.Atan),
    Operator(name="Atanh", since=22, converter=onnx_frontend.Atanh, traits=Trait.SINGULAR_AT_ZERO),
    Operator(name="Cos", since=22, converter=onnx_frontend.Cos, traits=Trait.FOLDABLE),
    Operator(name="Cosh", since=22, converter=onnx_frontend.Cosh),
    Operator(name="Sin", since=22, converter=onnx_frontend.Sin, traits=Trait.FOLDABLE),
    Operator(name="Sinh", since=22, converter=onnx_frontend.Sinh),
    Operator(name="Tan", since=22, converter=onnx_frontend.Tan, traits=Trait.FOLDABLE),
    Operator(
        name="Tanh",
        since=13,
        converter=onnx_frontend.Tanh,
        traits=Trait.FOLDABLE,
        saturation_slope=1.0,
    ),
)
