"""Einsum."""

from typing import Final

from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.operator import Operator

OPERATORS: Final = (
    Operator(name="Einsum", since=28, converter=onnx_frontend.Einsum, empty_result=0),
)
