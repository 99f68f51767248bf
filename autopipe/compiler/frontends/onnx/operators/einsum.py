"""Einsum."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator

OPERATORS: Final = (Operator(name="Einsum", since=28, empty_result=0),)
